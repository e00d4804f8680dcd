#include "traces/kineto_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "traces/cmd_line.h"
#include "traces/kineto_rank.h"
#include "traces/recording_facts.h"

namespace moesim::traces {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostRanks = 1 << 20;

bool is_trace(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".json") || name.ends_with(".json.gz");
}

// "rank3", "worker3" or "rank-3" in a name.
std::optional<std::int64_t> rank_in_name(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const std::string_view word : {"rank", "worker"}) {
    std::size_t at = name.find(word);
    if (at == std::string::npos) continue;
    at += word.size();
    if (at < name.size() && (name[at] == '_' || name[at] == '-' || name[at] == '.')) ++at;
    std::size_t end = at;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    if (const auto number = parse_int(std::string_view(name).substr(at, end - at)); number && end - at < 8)
      return *number;
  }
  return std::nullopt;
}

std::vector<fs::path> trace_files(const fs::path& path) {
  if (!is_folder(path)) return {path};
  std::vector<fs::path> files;
  for (fs::path& entry : entries_of(path))
    if (is_file(entry) && is_trace(entry)) files.push_back(std::move(entry));
  if (files.empty())
    throw InputError(SourcePlace{path.string()}, "no *.json or *.json.gz files", "one trace per rank");
  return files;
}

// Sizes in rank order, fastest first: tp, ep, the rest of dp, pp.
struct ParallelSizes {
  std::int64_t tp = 1, ep = 1, expert_dp = 1, pp = 1;

  std::int64_t world() const { return tp * ep * expert_dp * pp; }
  std::int64_t stage_of(std::int64_t rank) const { return rank / (tp * ep * expert_dp); }
};

// A group as seen in traces: members, description, and whether all-to-alls ran on it.
struct SeenGroup {
  std::vector<std::int64_t> ranks;
  std::string description;
  bool exchanges = false;
};

bool says(std::string_view text, std::string_view word) {
  const auto same = [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  };
  return std::search(text.begin(), text.end(), word.begin(), word.end(), same) != text.end();
}

// Returns the members of the group of `rank` when tp, ep or the rest of dp vary.
std::vector<std::int64_t> members(const ParallelSizes& plan, std::int64_t rank, bool tp, bool ep, bool rest) {
  const std::int64_t t = rank % plan.tp, e = rank / plan.tp % plan.ep;
  const std::int64_t d = rank / (plan.tp * plan.ep) % plan.expert_dp, p = plan.stage_of(rank);
  std::vector<std::int64_t> out;
  for (std::int64_t dd = rest ? 0 : d; dd < (rest ? plan.expert_dp : d + 1); ++dd)
    for (std::int64_t ee = ep ? 0 : e; ee < (ep ? plan.ep : e + 1); ++ee)
      for (std::int64_t tt = tp ? 0 : t; tt < (tp ? plan.tp : t + 1); ++tt)
        out.push_back(tt + plan.tp * (ee + plan.ep * (dd + plan.expert_dp * p)));
  return out;
}

// Derives tp from groups described as tensor parallel, ep from those of experts (or, without any, from groups
// with all-to-alls), pp from the distance of ranks that send to each other (`p2p_distance`, 0 for none); each
// only where it is not given. Throws InputError (`source` for messages) for sizes that do not divide the
// world.
ParallelSizes parallel_plan(std::int64_t world, std::span<const SeenGroup> groups, std::int64_t p2p_distance,
                            std::optional<std::int64_t> tp, std::optional<std::int64_t> ep,
                            std::optional<std::int64_t> pp, const std::string& source) {
  std::int64_t tensor = 1, described_experts = 0, exchanging = 1;
  for (const SeenGroup& group : groups) {
    const auto size = static_cast<std::int64_t>(group.ranks.size());
    const bool data = says(group.description, "data") || says(group.description, "dp");
    const bool tensors = says(group.description, "tensor") || says(group.description, "mesh_tp");
    const bool experts = says(group.description, "expert") || says(group.description, "mesh_ep");
    if (tensors && !experts && !data) tensor = std::max(tensor, size);
    if (experts && !tensors && !data) described_experts = std::max(described_experts, size);
    if (group.exchanges && !tensors) exchanging = std::max(exchanging, size);
  }
  ParallelSizes plan;
  plan.tp = tp.value_or(tensor);
  plan.ep = ep.value_or(described_experts > 0 ? described_experts : exchanging);
  plan.pp = pp.value_or(p2p_distance > 0 && world % p2p_distance == 0 ? world / p2p_distance : 1);
  if (plan.tp < 1 || plan.ep < 1 || plan.pp < 1 || world % (plan.tp * plan.ep * plan.pp) != 0)
    throw InputError(SourcePlace{source},
                     fmt::format("{} ranks with tp {}, ep {} and pp {}", world, plan.tp, plan.ep, plan.pp),
                     "sizes whose product divides the ranks (--tp, --ep, --pp set them)");
  plan.expert_dp = world / (plan.tp * plan.ep * plan.pp);
  return plan;
}

// Returns "tp", "exp", "exp_dp", "dp", or "" for any other group. A group that matches several (ep = dp) is
// "exp" where all-to-alls run on it, else the largest.
std::string_view group_label(const ParallelSizes& plan, std::span<const std::int64_t> ranks, bool exchange) {
  if (ranks.empty() || ranks.front() < 0 || ranks.back() >= plan.world()) return {};
  const auto is = [&](bool tp, bool ep, bool rest) {
    return std::ranges::equal(members(plan, ranks.front(), tp, ep, rest), ranks);
  };
  if (exchange && is(false, true, false)) return "exp";
  if (is(false, true, true)) return "dp";
  if (is(false, true, false)) return "exp";
  if (is(false, false, true)) return "exp_dp";
  if (is(true, false, false)) return "tp";
  return {};
}

std::string_view name_of(const KinetoOperation& operation) {
  switch (operation.phase) {
    case KinetoPhase::forward:
      return "forward_step";
    case KinetoPhase::backward:
      return "backward_step";
    case KinetoPhase::optimizer:
      return "optimizer_step";
  }
  return "";
}

class Importer {
 public:
  Importer(const fs::path& path, const KinetoReadOptions& options, ScanEvents scan)
      : options_(options), scan_(scan), chakra_(scan == scan_chakra) {
    recording_.source = path.string();
  }

  Recording run(const fs::path& path) {
    read_ranks(trace_files(path));
    require_one_clock();
    know_groups();
    find_plan();
    label_calls();
    match_calls();
    for (const auto& [rank, read] : ranks_) write_rank(rank, read);
    finish();
    return std::move(recording_);
  }

 private:
  struct Labelled {
    std::string_view group;  // "" for a call that counts as computing
    bool hidden = false;     // on every rank
  };

  [[noreturn]] void refuse(const std::string& file, const std::string& found,
                           const std::string& expected) const {
    throw InputError(SourcePlace{file}, found, expected);
  }

  void read_ranks(const std::vector<fs::path>& files) {
    for (const fs::path& file : files) {
      KinetoRank read = read_kineto_rank(file, options_.step, options_.iterations, scan_);
      const auto rank = read.facts.rank ? read.facts.rank : rank_in_name(file);
      if (!rank && files.size() > 1)
        refuse(read.file, chakra_ ? "no rank in the name" : "no rank in \"distributedInfo\" or the name",
               chakra_ ? "NAME.<rank>.json" : "rank<number> in the file's name");
      const std::int64_t number = rank.value_or(0);
      if (number < 0 || number >= kMostRanks)
        refuse(read.file, fmt::format("rank {}", number), fmt::format("0 to {}", kMostRanks - 1));
      if (const auto at = ranks_.find(number); at != ranks_.end())
        refuse(read.file, fmt::format("a second trace of rank {}", number),
               fmt::format("one per rank, beside {}", at->second.file));
      if (read.facts.world) {
        if (world_ > 0 && *read.facts.world != world_)
          refuse(read.file, fmt::format("a world of {} ranks", *read.facts.world),
                 fmt::format("{} as in {}", world_, ranks_.begin()->second.file));
        world_ = *read.facts.world;
      }
      ranks_.emplace(number, std::move(read));
    }
    if (world_ == 0) world_ = ranks_.rbegin()->first + 1;
    if (world_ < 1 || world_ > kMostRanks)
      refuse(recording_.source, fmt::format("a world of {} ranks", world_),
             fmt::format("1 to {}", kMostRanks));
    if (const auto there = static_cast<std::int64_t>(ranks_.size()); there < world_)
      recording_.warnings.push_back(
          fmt::format("traces of {} of {} ranks: the recording holds these, and `moesim replay "
                      "--ranks-missing` fills the "
                      "others by symmetry",
                      there, world_));
    if (ranks_.begin()->second.facts.backend == "fake")
      recording_.warnings.emplace_back(
          "a trace on torch's fake process group: it lacks every transfer between ranks, so calls have to come "
          "from the job's arguments (moesim compare) or from `python3 -m moesim_capture fake -- COMMAND`");
    if (ranks_.rbegin()->first >= world_)
      refuse(ranks_.rbegin()->second.file, fmt::format("rank {}", ranks_.rbegin()->first),
             fmt::format("less than the world of {}", world_));
  }

  // Steps of the same number must overlap, or their times have different origins.
  void require_one_clock() {
    const KinetoRank* latest = nullptr;
    const KinetoRank* earliest_end = nullptr;
    for (const auto& [rank, read] : ranks_) {
      const auto start = read.operations.front().start_ns, end = read.operations.back().end_ns;
      origin_ns_ = latest == nullptr ? start : std::min(origin_ns_, start);
      if (latest == nullptr || start > latest->operations.front().start_ns) latest = &read;
      if (earliest_end == nullptr || end < earliest_end->operations.back().end_ns) earliest_end = &read;
    }
    if (latest == nullptr || earliest_end == nullptr) return;  // no ranks, no clocks
    const double apart_ms =
        static_cast<double>(latest->operations.front().start_ns - earliest_end->operations.back().end_ns) /
        1e6;
    if (apart_ms > 0)
      refuse(latest->file,
             fmt::format("a step that begins {:.1f} ms after that of {} ends", apart_ms, earliest_end->file),
             "one clock and one step for all ranks");
    origin_ns_ -= kFirstNs;
  }

  // Collects the ranks of a group by its name, as far as any file lists them.
  void know_groups() {
    if (chakra_) return know_callers();
    for (const auto& [rank, read] : ranks_)
      for (const KinetoGroup& group : read.facts.groups)
        if (group.ranks.size() > 1) listed_[{rank, group.name}] = group;
  }

  // A group's callers are its members; a call without a group belongs to all ranks.
  void know_callers() {
    std::map<std::string, KinetoGroup> groups;
    for (const auto& [rank, read] : ranks_)
      for (const KinetoCall& call : read.calls) {
        if (is_p2p(call)) continue;
        if (ranks_.size() == 1)
          refuse(read.file, "transfers between ranks in the trace of one",
                 "files NAME.<rank>.json of all of them");
        KinetoGroup& group = groups[call.group_name];
        group.name = call.group_name;
        if (group.description.empty()) group.description = call.group_description;
        if (group.ranks.empty() || group.ranks.back() != rank) group.ranks.push_back(rank);
      }
    for (const auto& [name, group] : groups)
      for (const std::int64_t rank : group.ranks) listed_[{rank, name}] = group;
  }

  std::vector<std::int64_t> ranks_of(std::int64_t rank, const KinetoCall& call) const {
    if (call.expert_kernel) return expert_group(rank);
    std::vector<std::int64_t> ranks = call.group_ranks;
    if (const auto at = listed_.find({rank, call.group_name}); ranks.empty() && at != listed_.end())
      ranks = at->second.ranks;
    if (ranks.empty() && call.group_size.value_or(world_) == world_) {
      ranks.resize(static_cast<std::size_t>(world_));
      std::iota(ranks.begin(), ranks.end(), 0);
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  // From the plan; kernels of experts name no group.
  std::vector<std::int64_t> expert_group(std::int64_t rank) const {
    const std::int64_t first = rank - rank % (plan_.tp * plan_.ep) + rank % plan_.tp;
    std::vector<std::int64_t> ranks;
    for (std::int64_t e = 0; e < plan_.ep; ++e) ranks.push_back(first + e * plan_.tp);
    return ranks;
  }

  std::string description_of(std::int64_t rank, const KinetoCall& call) const {
    if (!call.group_description.empty()) return call.group_description;
    const auto at = listed_.find({rank, call.group_name});
    return at == listed_.end() ? "" : at->second.description;
  }

  static bool is_p2p(const KinetoCall& call) { return call.comm == "send" || call.comm == "recv"; }

  void find_plan() {
    std::map<std::vector<std::int64_t>, SeenGroup> groups;
    std::int64_t distance = 0;
    for (const auto& [rank, read] : ranks_)
      for (const KinetoCall& call : read.calls) {
        if (is_p2p(call)) {
          if (!call.peer)
            refuse(read.file, fmt::format("a {} without its peer", call.comm),
                   "traces of PyTorch 2.2 or newer, which name it");
          const std::int64_t far = std::abs(*call.peer - rank);
          distance = distance == 0 ? far : std::min(distance, far);
          continue;
        }
        if (call.expert_kernel) continue;  // they follow from the plan
        SeenGroup& group = groups[ranks_of(rank, call)];
        group.ranks = ranks_of(rank, call);
        if (group.description.empty()) group.description = description_of(rank, call);
        group.exchanges |= call.comm == "all_to_all";
      }
    std::vector<SeenGroup> seen;
    seen.reserve(groups.size());
    for (auto& [ranks, group] : groups) seen.push_back(std::move(group));
    plan_ = parallel_plan(world_, seen, distance, options_.tp, options_.ep, options_.pp, recording_.source);
    const bool expert_kernels =
        std::ranges::any_of(ranks_, [](const auto& read) { return read.second.expert_kernels > 0; });
    if (!expert_kernels || plan_.ep > 1 || options_.ep) return;
    // Rows are exchanged within an unnamed group: assumes all ranks of a stage.
    plan_ = parallel_plan(world_, seen, distance, plan_.tp, world_ / (plan_.tp * plan_.pp), plan_.pp,
                          recording_.source);
    recording_.warnings.push_back(fmt::format(
        "kernels of DeepEP or HybridEP name no process group: taken as exchanges of all {} ranks of a stage; "
        "--ep tells otherwise",
        plan_.ep));
  }

  void label_calls() {
    std::set<std::string> strange;
    for (const auto& [rank, read] : ranks_) {
      auto& labels = labels_[rank];
      for (const KinetoCall& call : read.calls) {
        Labelled label;
        if (!is_p2p(call)) {
          const auto ranks = ranks_of(rank, call);
          const bool inside = std::ranges::find(ranks, rank) != ranks.end();
          if (call.expert_kernel)
            label.group = "exp";
          else if (inside && ranks.size() > 1)
            label.group = group_label(plan_, ranks, call.comm == "all_to_all");
          if (label.group.empty() && ranks.size() != 1)
            strange.insert(call.group_name.empty() ? "without a name" : in_quotes(call.group_name));
        }
        labels.push_back(label);
      }
    }
    if (!strange.empty())
      recording_.warnings.push_back(fmt::format(
          "calls on process groups {} fit no group of tp {}, ep {}, dp {}, pp {}: their time stays in the "
          "computing around them, and no rank waits for another in them",
          join(std::vector<std::string>(strange.begin(), strange.end()), ", "), plan_.tp, plan_.ep,
          plan_.ep * plan_.expert_dp, plan_.pp));
  }

  // The k-th calls of all members on a group match. Calls that no member waited for are hidden.
  void match_calls() {
    struct Sequence {
      std::int64_t rank = 0;
      std::vector<std::size_t> calls;
    };
    std::map<std::pair<std::string_view, std::vector<std::int64_t>>, std::vector<Sequence>> groups;
    for (const auto& [rank, read] : ranks_) {
      std::map<std::pair<std::string_view, std::vector<std::int64_t>>, Sequence> own;
      for (std::size_t c = 0; c < read.calls.size(); ++c) {
        const std::string_view label = labels_.at(rank)[c].group;
        if (label.empty()) continue;
        Sequence& sequence = own[{label, ranks_of(rank, read.calls[c])}];
        sequence.rank = rank;
        sequence.calls.push_back(c);
      }
      for (auto& [key, sequence] : own) groups[key].push_back(std::move(sequence));
    }
    for (const auto& [key, sequences] : groups) {
      const Sequence& first = sequences.front();
      const KinetoRank& model = ranks_.at(first.rank);
      for (const std::int64_t member : key.second) {
        if (!ranks_.contains(member)) continue;  // not recorded
        const auto at = std::ranges::find(sequences, member, &Sequence::rank);
        const std::size_t count = at == sequences.end() ? 0 : at->calls.size();
        if (count != first.calls.size())
          refuse(ranks_.at(member).file,
                 fmt::format("{} calls of rank {} on its {} group", count, member, key.first),
                 fmt::format("the {} of rank {} ({})", first.calls.size(), first.rank, model.file));
        for (std::size_t k = 0; k < count; ++k) {
          const KinetoCall& mine = ranks_.at(member).calls[at->calls[k]];
          const KinetoCall& its = model.calls[first.calls[k]];
          if (mine.comm != its.comm)
            refuse(
                ranks_.at(member).file,
                fmt::format("{} as call {} of rank {} on its {} group", mine.comm, k + 1, member, key.first),
                fmt::format("{} as on rank {} ({})", its.comm, first.rank, model.file));
        }
      }
      for (std::size_t k = 0; k < first.calls.size(); ++k) {
        const bool hidden = std::ranges::all_of(sequences, [&](const Sequence& sequence) {
          return ranks_.at(sequence.rank).calls[sequence.calls[k]].waited_ns == 0;
        });
        for (const Sequence& sequence : sequences)
          labels_.at(sequence.rank)[sequence.calls[k]].hidden = hidden;
      }
    }
  }

  Shape shape_of(const KinetoCall& call, const std::string& file) {
    if (!call.elements) return recording_.pool.shape_none();
    if (too_large(*call.elements, call.dtype))
      refuse(file, fmt::format("{} of {} elements of {}", call.comm, *call.elements, call.dtype),
             kPossibleTensor);
    const std::int64_t dims[] = {std::max<std::int64_t>(1, *call.elements)};
    return recording_.pool.shape(dims);
  }

  void write_rank(std::int64_t rank, const KinetoRank& read) {
    Pool& pool = recording_.pool;
    RankRecording out;
    out.rank = static_cast<std::int32_t>(rank);
    out.file = fmt::format("wd{}_tp{}_pp{}_exp{}_rank{}.txt", world_, plan_.tp, plan_.pp, plan_.ep, rank);
    out.header = {
        std::string(kRealRunHeader),
        fmt::format(" from {}, a trace of {}{}", fs::path(read.file).filename().string(), producer(),
                    read.facts.device.empty() ? "" : " on " + printable(read.facts.device))};
    if (!read.facts.device.empty()) out.header.push_back(" device: cuda, " + printable(read.facts.device));
    std::map<std::string, std::int32_t> counters;
    std::size_t next = 0;
    std::vector<std::size_t> order(read.calls.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return read.calls[a].operation < read.calls[b].operation;
    });
    for (std::size_t o = 0; o < read.operations.size(); ++o) {
      const KinetoOperation& from = read.operations[o];
      Operation operation;
      std::string name(name_of(from));
      operation.shape = pool.shape_none();
      operation.dtype = pool.name("None");
      operation.group_kind = pool.name("None");
      std::vector<SubOperation> subs;
      std::int64_t reached = from.start_ns;
      for (; next < order.size() && read.calls[order[next]].operation == o; ++next) {
        const KinetoCall& call = read.calls[order[next]];
        const Labelled& label = labels_.at(rank)[order[next]];
        if (from.p2p) {
          // Activations go up the pipeline, their gradients down.
          const bool forward = (call.comm == "send") == (*call.peer > rank);
          name = call.comm + (forward ? "_forward" : "_backward");
          operation.shape = shape_of(call, read.file);
          operation.dtype = pool.name(call.dtype);
          operation.group_kind = pool.name("pp");
          continue;
        }
        if (label.group.empty()) continue;
        SubOperation sub;
        sub.source = pool.name(fmt::format("{}_{}{}", call.expert_kernel ? "expert_kernel" : "nccl",
                                           call.comm, label.hidden ? "_async" : ""));
        const std::int64_t waited = label.hidden ? call.end_ns - call.start_ns : call.waited_ns;
        const std::int64_t end = std::clamp(call.end_ns, reached, std::max(reached, from.end_ns));
        sub.duration = Decimal::from_ns(label.hidden ? waited : std::min(waited, end - reached));
        sub.timestamp = Decimal::from_ns(end - origin_ns_);
        if (!label.hidden) reached = end;
        sub.shape = shape_of(call, read.file);
        sub.dtype = pool.name(call.dtype);
        sub.group = pool.name(label.group);
        sub.comm_func = pool.name(call.comm);
        subs.push_back(sub);
      }
      operation.name = pool.name(name);
      operation.stage_id = static_cast<std::int32_t>(plan_.stage_of(rank));
      operation.batch_id = counters[name]++;
      operation.state = pool.name("None");
      operation.duration = Decimal::from_ns(from.end_ns - from.start_ns);
      operation.timestamp = Decimal::from_ns(from.end_ns - origin_ns_);
      operation.description = pool.name(chakra_ ? "Chakra" : "PyTorch profiler");
      out.add(operation, subs);
    }
    recording_.ranks.push_back(std::move(out));
  }

  const char* producer() const { return chakra_ ? "Chakra" : "the PyTorch profiler"; }

  static std::string printable(std::string text) {
    std::erase_if(text, [](char c) { return c < ' ' || c > '~'; });
    return text;
  }

  void finish() {
    std::size_t unsized = 0, unknown = 0, steps = 0;
    bool backward = false, repeated = false;
    std::map<std::string, std::size_t> notes;
    for (const auto& [rank, read] : ranks_) {
      for (const std::string& note : read.facts.notes) ++notes[note];
      backward = backward || read.has_backward;
      repeated = repeated || read.by_repetition;
      unsized += read.unsized;
      unknown += read.unknown;
      steps = std::max(steps, read.steps);
    }
    for (const auto& [note, files] : notes)
      recording_.warnings.push_back(
          fmt::format("{}{}", note, files > 1 ? fmt::format(" ({} files)", files) : ""));
    if (unsized > 0)
      recording_.warnings.push_back(fmt::format(
          "{} calls without a size: their recorded time holds, but they cannot be priced anew", unsized));
    if (unknown > 0)
      recording_.warnings.push_back(fmt::format(
          "{} NCCL kernels of unknown kind: their time stays in the computing around them", unknown));
    if (steps > 1)
      recording_.warnings.push_back(fmt::format(
          "the traces hold {} {}; this is number {}", steps,
          repeated ? "iterations, found by repetition as no ProfilerStep marks them" : "profiled steps",
          options_.step));
    if (steps == 0)
      recording_.warnings.emplace_back(
          "no ProfilerStep marks an iteration and nothing repeats: the trace is taken as one; --iterations N "
          "tells how many it holds");
    if (!backward)
      recording_.warnings.emplace_back(
          "no work was launched by autograd's threads: a trace of inference, or of a profiler that did not "
          "record them (2020 and 2021), whose backward pass is then part of forward_step");
    recording_.passes = std::max<std::size_t>(1, steps);
    recording_.pass = options_.step;
    recording_.named.world = world_;
    recording_.named.tp = plan_.tp;
    recording_.named.pp = plan_.pp;
    recording_.named.ep = plan_.ep;
  }

  KinetoReadOptions options_;
  ScanEvents scan_;
  bool chakra_;
  Recording recording_;
  std::map<std::int64_t, KinetoRank> ranks_;
  std::map<std::int64_t, std::vector<Labelled>> labels_;  // by rank, of its calls
  std::map<std::pair<std::int64_t, std::string>, KinetoGroup> listed_;
  ParallelSizes plan_;
  std::int64_t world_ = 0;
  std::int64_t origin_ns_ = 0;
};

}  // namespace

Recording read_kineto(const fs::path& path, const KinetoReadOptions& options) {
  return Importer(path, options, scan_kineto).run(path);
}

Recording read_chakra(const fs::path& path, const KinetoReadOptions& options) {
  return Importer(path, options, scan_chakra).run(path);
}

}  // namespace moesim::traces
