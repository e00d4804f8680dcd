#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "calibration/rows/import_logs.h"
#include "models/costs/ep_kernel.h"

namespace moesim::calibration {
namespace {

constexpr double kMostGBps = 1e5, kMostUs = 1e9;
constexpr int kMostRanks = 1 << 20;

// Returns the number before `unit`, from `at` on: "352.43" of "352.43 GB/s (NVL)"; moves past it.
std::optional<double> number_before(std::string_view line, std::string_view unit, std::size_t& at) {
  at = line.find(unit, at);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t end = at;
  while (end > 0 && line[end - 1] == ' ') --end;
  std::size_t begin = end;
  while (begin > 0 && (std::isdigit(static_cast<unsigned char>(line[begin - 1])) || line[begin - 1] == '.'))
    --begin;
  at += unit.size();
  return parse_number(line.substr(begin, end - begin));
}

// Returns the integer after `key`: "SMs 24", "num_tokens=4096", "[rank 3]".
std::optional<std::int64_t> number_behind(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = line.substr(at + key.size());
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  std::size_t end = 0;
  while (end < rest.size() && std::isdigit(static_cast<unsigned char>(rest[end]))) ++end;
  return parse_int(rest.substr(0, end));
}

// The parameters of a test.
struct Setting {
  std::int64_t tokens = 0, hidden = 0, topk = 0, experts = 0, groups = 0, sms = 0;
  int nodes = 0, gpus_per_node = 0;
  friend bool operator==(const Setting&, const Setting&) = default;
};

struct Sample {
  SourcePlace place;
  int rank = -1;  // -1: unknown
  double gbps = 0, us = 0, notify_us = 0;
};

struct Kernel {
  std::string name, dtype;
  std::int64_t sms = 0;
  bool network = false;  // bandwidth of the network between nodes
  friend auto operator<=>(const Kernel&, const Kernel&) = default;
};

class DeepEpReader {
 public:
  DeepEpReader(const std::string& file, const ImportFacts& facts) : file_(file), facts_(facts) {
    if (facts_.source.empty()) facts_.source = file;
  }

  Imported read(std::string_view text) {
    for (const std::string_view line : split(text, '\n')) {
      ++number_;
      take(line);
    }
    finish();
    if (result_.rows.dispatches.empty())
      throw InputError({file_, number_, 0}, "no timing of a dispatch or combine",
                       "the output of DeepEP's or HybridEP's tests");
    return std::move(result_);
  }

 private:
  SourcePlace place() const { return {file_, number_, 0}; }

  void take(std::string_view given) {
    // "[rank 3]", "[tuning]" and "[config]" look like a launcher's.
    const std::string_view line = trim(given);
    if (line.find("Best dispatch") != std::string_view::npos ||
        line.find("Best combine") != std::string_view::npos)
      return take_best(line);
    if (line.find("HybridEP") != std::string_view::npos) return take_hybrid(line);
    if (line.find("Dispatch bandwidth:") != std::string_view::npos) return take_low_latency(line);
    if (line.find("| ") != std::string_view::npos && line.find("EP:") != std::string_view::npos)
      return take_v2(line);
    take_setting(line);
  }

  void take_setting(std::string_view line) {
    Setting next = setting_;
    const auto value = [&](std::string_view key, std::int64_t& into) {
      if (const auto found = number_behind(line, key); found && *found >= 1 && *found <= 1 << 24)
        into = *found;
    };
    if (line.find("[config]") != std::string_view::npos) {
      next = {};
      value("num_tokens=", next.tokens);
      value("hidden=", next.hidden);
      value("num_topk=", next.topk);
      value("num_experts=", next.experts);
      value("num_topk_groups=", next.groups);
    } else if (line.find("> Ranks:") != std::string_view::npos) {
      next = {};
      std::int64_t nodes = 0, gpus = 0;
      value("Ranks:", nodes);
      value(" x ", gpus);
      next.nodes = static_cast<int>(nodes), next.gpus_per_node = static_cast<int>(gpus);
    } else if (line.find("> Experts:") != std::string_view::npos) {
      value("Experts:", next.topk);
      value("/", next.experts);
    } else if (line.find("> Tokens:") != std::string_view::npos) {
      // For the printing rank: rank r sends r fewer than the most.
      value("Tokens:", next.tokens);
      value("max:", next.tokens);
      value("hidden:", next.hidden);
    } else if (line.find("> #SM:") != std::string_view::npos) {
      value("#SM:", next.sms);
    } else if (const auto fp8 = number_behind(line, "use_fp8_dispatch="); fp8) {
      fp8_ = *fp8 != 0;
      return;
    } else {
      return;
    }
    if (!(next == setting_) && !samples_.empty()) finish();
    setting_ = next;
  }

  void add(const Kernel& kernel, int rank, double gbps, double us, double notify_us = 0) {
    if (!(gbps >= 0 && gbps <= kMostGBps && us >= 0 && us <= kMostUs && gbps + us > 0))
      throw InputError(place(), fmt::format("{} GB/s in {} us", gbps, us),
                       "finite numbers in their physical range");
    samples_[kernel].push_back({place(), rank, gbps, us, notify_us});
  }

  // Reads "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 20, RDMA chunk 32: 58.46 GB/s (RDMA), 191.15 GB/s
  // (NVL)", with "t: 453.49 us", "1012 us", or "transmit: 27.54 us, notify: 31.65 us" in versions that print
  // times.
  void take_best(std::string_view line) {
    const bool dispatch = line.find("Best dispatch") != std::string_view::npos;
    double network = 0, nvlink = 0, us = 0, notify = 0;
    std::size_t at = 0;
    while (const auto value = number_before(line, "GB/s", at))
      (line.substr(at).starts_with(" (RDMA)") ? network : nvlink) = *value;
    at = 0;
    while (const auto value = number_before(line, " us", at)) {
      const std::string_view before = line.substr(0, at);
      const bool of_notify = before.rfind("notify") != std::string_view::npos &&
                             (before.rfind("transmit") == std::string_view::npos ||
                              before.rfind("notify") > before.rfind("transmit"));
      (of_notify ? notify : us) = *value;
    }
    if (network == 0 && nvlink == 0 && us == 0)
      throw InputError(place(), "a best result without bandwidth", "GB/s or us (cut?)");
    const bool fp8 = line.find("(FP8)") != std::string_view::npos;
    add({dispatch ? "deepep_v1_normal_dispatch" : "deepep_v1_normal_combine", fp8 ? "fp8" : "bf16",
         number_behind(line, "SMs").value_or(0), network > 0},
        -1, network > 0 ? network : nvlink, us, notify);
  }

  int rank_of(std::string_view line) const {
    const auto rank = number_behind(line, "[rank ");
    if (!rank || *rank < 0 || *rank >= kMostRanks)
      throw InputError(place(), "a line of no rank", "[rank N] in front");
    return static_cast<int>(*rank);
  }

  // "[rank 7] Dispatch bandwidth: 42.32 GB/s, avg_t=177.50 us | Combine bandwidth: 44.52 GB/s, avg_t=326.54
  // us"
  void take_low_latency(std::string_view line) {
    const std::size_t bar = line.find('|');
    if (bar == std::string_view::npos)
      throw InputError(place(), "half a line", "Dispatch and Combine bandwidth");
    for (const bool dispatch : {true, false}) {
      const std::string_view part = dispatch ? line.substr(0, bar) : line.substr(bar);
      std::size_t gb = 0, us = 0;
      const auto rate = number_before(part, "GB/s", gb), time = number_before(part, " us", us);
      if (!rate || !time) throw InputError(place(), "half a line", "Dispatch and Combine bandwidth");
      add({dispatch ? "deepep_v1_lowlatency_dispatch" : "deepep_v1_lowlatency_combine",
           dispatch ? "fp8" : "bf16", 0, false},
          rank_of(line), *rate, *time);
    }
  }

  // "[rank 0] HybridEP dispatch torch API (FP8): 120.00 GB/s (NVL), t: 321.00 us, nvl_recv_bytes: ...", and
  // two kernels on one line: "HybridEP dispatch kernel(NVL) (FP8): 200.00 GB/s, avg_t=123.45 us | HybridEP
  // combine ..."
  void take_hybrid(std::string_view line) {
    const int rank = rank_of(line);
    for (const std::string_view part : split(line, '|')) {
      const std::size_t begin = part.find("HybridEP ");
      std::size_t gb = 0, us = 0;
      const auto rate = number_before(part, "GB/s", gb), time = number_before(part, " us", us);
      if (begin == std::string_view::npos || !rate || !time)
        throw InputError(place(), "half a line", "GB/s and us");
      const bool dispatch = part.substr(begin + 9).starts_with("dispatch"),
                 kernel = part.find("kernel") != std::string_view::npos;
      std::string name = dispatch ? "hybridep_dispatch" : "hybridep_combine";
      if (part.find("permute") != std::string_view::npos) name += dispatch ? "_permute" : "_unpermute";
      add({name + (kernel ? "_kernel" : "_api"),
           part.find("(FP8)") != std::string_view::npos ? "fp8" : "bf16", 0,
           part.find("(IB)") != std::string_view::npos},
          rank, *rate, *time);
    }
  }

  // "* EP:   0/16 | dispatch: 90 GB/s (SO), 150 GB/s (SU), 1234.567 us, 5 bytes | copy: ..."
  void take_v2(std::string_view line) {
    const auto parts = split(line, '|');
    const auto rank = number_behind(parts[0], "EP:"), ranks = number_behind(parts[0], "/");
    if (parts.size() < 2 || !rank || !ranks) return;
    if (setting_.nodes == 0)
      throw InputError(place(), "a timing without its Config", "'> Ranks: N x M' before it");
    const std::string_view part = trim(parts[1]);
    const std::string name(part.substr(0, part.find(':')));
    static const std::map<std::string, const char*, std::less<>> kNames{
        {"dispatch", "deepep_v2_dispatch"},
        {"combine", "deepep_v2_combine"},
        {"reduced combine", "deepep_v2_reduced_combine"}};
    const auto found = kNames.find(name);
    if (found == kNames.end()) return;  // variants that no job runs
    double out = 0, up = 0;
    std::size_t at = 0;
    while (const auto value = number_before(part, "GB/s", at))
      (line_is(part, at, " (SO)") ? out : up) = *value;
    at = 0;
    const auto us = number_before(part, " us", at);
    if (!us) throw InputError(place(), "half a line", "GB/s and us");
    const bool network = setting_.nodes > 1;
    add({found->second, name == "dispatch" && fp8_ ? "fp8" : "bf16", setting_.sms, network},
        static_cast<int>(*rank), network ? out : up, *us);
  }
  static bool line_is(std::string_view line, std::size_t at, std::string_view what) {
    return line.substr(std::min(at, line.size())).starts_with(what);
  }

  // Returns the sizes of the log, else of the options; where both give one, they must agree.
  Setting known() const {
    Setting s = setting_;
    const auto take = [&](auto& value, auto given, const char* option) {
      if (given > 0 && value > 0 && value != given)
        throw InputError(first().place, fmt::format("{}", value),
                         fmt::format("{} {}, as given", option, given));
      if (value == 0) value = given;
    };
    take(s.tokens, facts_.tokens, "--tokens");
    take(s.hidden, facts_.hidden, "--hidden");
    take(s.topk, facts_.topk, "--topk");
    take(s.experts, facts_.experts, "--experts");
    take(s.nodes, facts_.nodes, "--nodes");
    take(s.gpus_per_node, facts_.gpus_per_node, "--gpus-per-node");
    return s;
  }
  const Sample& first() const { return samples_.begin()->second.front(); }

  // Returns the number of printing ranks, where all print; 0 where unknown.
  int ranks_that_print() const {
    std::set<int> ranks;
    for (const auto& [kernel, samples] : samples_)
      for (const Sample& one : samples)
        if (one.rank >= 0) ranks.insert(one.rank);
    return ranks.empty() || static_cast<int>(ranks.size()) != *ranks.rbegin() + 1
               ? 0
               : static_cast<int>(ranks.size());
  }

  void settle(Setting& s) const {
    const bool network =
        std::any_of(samples_.begin(), samples_.end(), [](const auto& one) { return one.first.network; });
    const bool low_latency = samples_.begin()->first.name.find("lowlatency") != std::string::npos;
    // Only a link inside of the node was measured.
    if (s.nodes == 0 && !network && !low_latency) s.nodes = 1;
    const int ranks = ranks_that_print();
    if (ranks > 0 && s.nodes > 0 && s.gpus_per_node == 0 && ranks % s.nodes == 0)
      s.gpus_per_node = ranks / s.nodes;
    if (ranks > 0 && s.nodes == 0 && s.gpus_per_node > 0 && ranks % s.gpus_per_node == 0)
      s.nodes = ranks / s.gpus_per_node;
    std::vector<std::string> missing;
    const auto need = [&](bool there, const char* option) {
      if (!there) missing.emplace_back(option);
    };
    need(!facts_.gpu.empty(), "--gpu");
    need(s.nodes > 0, "--nodes");
    need(s.gpus_per_node > 0, "--gpus-per-node");
    need(s.tokens > 0, "--tokens");
    need(s.hidden > 0, "--hidden");
    need(s.topk > 0, "--topk");
    if (!missing.empty())
      throw InputError(first().place, "a timing of sizes that the log does not say", join(missing, ", "));
    if (ranks > 0 && ranks != s.nodes * s.gpus_per_node)
      throw InputError(
          first().place, fmt::format("lines of {} ranks", ranks),
          fmt::format("{} nodes of {} GPUs, as the options or the log say", s.nodes, s.gpus_per_node));
    if (network && s.nodes < 2)
      throw InputError(first().place, "a bandwidth between nodes", "--nodes 2 or more");
  }

  // Throws InputError where bandwidth x time contradicts the bytes of the sizes; routing of the tests is
  // uniform.
  static void check_bytes(const Kernel& kernel, const Setting& s, const Sample& one) {
    const bool low_latency = kernel.name.find("lowlatency") != std::string::npos;
    if (one.gbps <= 0 || one.us <= 0 || (s.nodes > 1 && !low_latency)) return;
    const auto hidden = static_cast<double>(s.hidden);
    const double token = kernel.dtype == "fp8" ? hidden + hidden / 128 * 4 : 2 * hidden;
    const double copies = one.gbps * 1e9 * one.us * 1e-6 / (token * static_cast<double>(s.tokens));
    const double expected =
        low_latency ? static_cast<double>(s.topk)
                    : models::distinct_places(s.nodes * s.gpus_per_node, static_cast<int>(s.topk));
    constexpr double kOff = 0.2;
    if (std::abs(copies / expected - 1) > kOff)
      throw InputError(one.place,
                       fmt::format("{} GB/s in {} us, {:.2f} copies of a token", one.gbps, one.us, copies),
                       fmt::format("about {:.2f}, as {} tokens of {} with top-{} on {} ranks say", expected,
                                   s.tokens, s.hidden, s.topk, s.nodes * s.gpus_per_node));
  }

  void finish() {
    if (samples_.empty()) return;
    Setting s = known();
    settle(s);
    for (const auto& [kernel, samples] : samples_) {
      DispatchRow row;
      double us = 0, gbps = 0, notify = 0;
      for (const Sample& one : samples) {
        check_bytes(kernel, s, one);
        us += one.us / static_cast<double>(samples.size());
        gbps += one.gbps / static_cast<double>(samples.size());
        notify += one.notify_us / static_cast<double>(samples.size());
      }
      row.origin = {samples.front().place, facts_.gpu, facts_.source};
      row.kernel = kernel.name;
      row.dtype = kernel.dtype;
      row.ep = s.nodes * s.gpus_per_node;
      row.nodes = s.nodes;
      row.tokens = static_cast<double>(s.tokens);
      row.hidden = static_cast<int>(s.hidden);
      row.topk = static_cast<int>(s.topk);
      row.experts = static_cast<int>(s.experts);
      // test_internode's default where it does not print it.
      const bool normal = kernel.name.find("v1_normal") != std::string::npos;
      row.topk_groups = s.groups > 0            ? static_cast<double>(s.groups)
                        : normal && s.nodes > 1 ? std::min(s.nodes, 4)
                                                : 0;
      row.sms = static_cast<double>(kernel.sms);
      row.bandwidth = gbps * 1e9;
      row.seconds = us * 1e-6;
      row.note = fmt::format("mean of {}", samples.size());
      if (notify > 0) row.note += fmt::format("; notify_us {:.2f}", notify);
      result_.rows.dispatches.push_back(std::move(row));
    }
    samples_.clear();
  }

  std::string file_;
  ImportFacts facts_;
  Setting setting_;
  bool fp8_ = false;
  std::map<Kernel, std::vector<Sample>> samples_;
  Imported result_;
  long number_ = 0;
};

}  // namespace

Imported import_deepep(std::string_view text, const std::string& file, const ImportFacts& facts) {
  return DeepEpReader(file, facts).read(text);
}

}  // namespace moesim::calibration
