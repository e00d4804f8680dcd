#include "calibration/rows/collective_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "calibration/rows/devices.h"

namespace moesim::calibration {
namespace {

using sim::CollectiveOp;

// Tolerance beyond rounding: averages over ranks, and rounding by people.
constexpr double kSlack = 2e-3;

// Names of tests without separators; the value is nccl-tests' own.
const std::map<std::string, std::string, std::less<>>& tests() {
  static const std::map<std::string, std::string, std::less<>> kTests{
      {"allreduce", "all_reduce"},  {"allgather", "all_gather"}, {"reducescatter", "reduce_scatter"},
      {"alltoall", "alltoall"},     {"all2all", "alltoall"},     {"alltoallv", "alltoallv"},
      {"allgatherv", "allgatherv"}, {"sendrecv", "sendrecv"},    {"broadcast", "broadcast"},
      {"bcast", "broadcast"},       {"reduce", "reduce"},        {"gather", "gather"},
      {"scatter", "scatter"},       {"hypercube", "hypercube"}};
  return kTests;
}

// Returns lower case, without additions of a launcher or build.
std::string plain(std::string_view word) {
  std::string text = lower(word);
  std::erase_if(text, [](unsigned char c) { return std::isalnum(c) == 0; });
  for (const std::string_view before : {"nccl", "rccl"})
    if (text.starts_with(before) && text.size() > before.size()) text.erase(0, before.size());
  for (const std::string_view after : {"perf", "bw"})
    if (text.ends_with(after) && text.size() > after.size()) text.erase(text.size() - after.size());
  return text;
}

std::string short_number(double value) { return fmt::format("{:.4g}", value); }

bool gathers(CollectiveOp op) {
  return op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter ||
         op == CollectiveOp::all_to_all;
}

void narrow(RankRange& range, double low, double high) {
  range.low = std::max(range.low, low);
  range.high = std::min(range.high, high);
}

// Narrows by a share (n-1) / n between two bounds.
void narrow_by_share(RankRange& range, double low, double high) {
  narrow(range, low >= 1 ? 1e9 : 1 / (1 - std::max(low, 0.0)),
         high >= 1 ? 1e9 : 1 / (1 - std::max(high, 0.0)));
}

constexpr const char* kShapeOptions = "--nodes and --gpus-per-node";

}  // namespace

std::optional<Rounded> Rounded::parse(std::string_view text) {
  const auto value = parse_number(text);
  if (!value) return std::nullopt;
  const std::size_t e = text.find_first_of("eE");
  const std::string_view mantissa = text.substr(0, e);
  const std::size_t dot = mantissa.find('.');
  int digits = dot == std::string_view::npos ? 0 : static_cast<int>(mantissa.size() - dot - 1);
  if (e != std::string_view::npos)
    digits -= static_cast<int>(std::clamp<std::int64_t>(
        parse_int(text.substr(e + (text[e + 1] == '+' ? 2 : 1))).value_or(0), -300, 300));
  return Rounded{*value, 0.5 * std::pow(10.0, -digits)};
}

std::string test_named(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  std::set<std::string> found;
  for (std::size_t i = 0; i < words.size();) {
    std::size_t used = 0;
    for (std::size_t n = std::min<std::size_t>(3, words.size() - i); n > 0 && used == 0; --n) {
      std::string joined;
      for (std::size_t k = i; k < i + n; ++k) joined += words[k];
      const auto at = tests().find(plain(joined));
      if (at == tests().end()) continue;
      found.insert(at->second);
      used = n;
    }
    i += std::max<std::size_t>(used, 1);
  }
  return found.size() == 1 ? *found.begin() : "";
}

std::optional<CollectiveOp> op_named(std::string_view name) {
  static const std::map<std::string, CollectiveOp, std::less<>> kOps{
      {"all_gather", CollectiveOp::all_gather}, {"reduce_scatter", CollectiveOp::reduce_scatter},
      {"all_reduce", CollectiveOp::all_reduce}, {"alltoall", CollectiveOp::all_to_all},
      {"sendrecv", CollectiveOp::send_recv},    {"broadcast", CollectiveOp::broadcast}};
  const auto test = tests().find(plain(name));
  if (test == tests().end()) return std::nullopt;
  const auto op = kOps.find(test->second);
  return op == kOps.end() ? std::nullopt : std::optional(op->second);
}

int element_size(std::string_view type) {
  static const std::map<std::string_view, int> kSizes = {
      {"int8", 1},   {"uint8", 1},   {"char", 1},    {"fp8_e4m3", 1},    {"fp8_e5m2", 1},
      {"f8e4m3", 1}, {"f8e5m2", 1},  {"half", 2},    {"float16", 2},     {"bfloat16", 2},
      {"int32", 4},  {"uint32", 4},  {"int", 4},     {"float", 4},       {"int64", 8},
      {"uint64", 8}, {"double", 8},  {"fp8", 1},     {"bf16", 2},        {"fp16", 2},
      {"fp32", 4},   {"float32", 4}, {"float64", 8}, {"float8_e4m3", 1}, {"float8_e5m2", 1}};
  const auto found = kSizes.find(type);
  return found == kSizes.end() ? 0 : found->second;
}

std::string RankRange::text() const {
  const auto whole = [](double value) { return std::to_string(static_cast<std::int64_t>(value)); };
  const double first = std::ceil(low - 1e-9), last = std::floor(high + 1e-9);
  if (high >= 1e8) return whole(first) + " or more";
  if (first >= last) return whole(std::round((low + high) / 2));
  return whole(first) + " to " + whole(last);
}

RankRange ranks_of(const LoggedRow& row, CollectiveOp op) {
  RankRange range;
  const Rounded &alg = row.algbw, &bus = row.busbw;
  const auto fail = [&](const std::string& found, const std::string& expected) {
    throw InputError(row.place, found, expected);
  };
  if (row.count && *row.count > 0) {
    const int element = element_size(row.type);
    const double unit = *row.count * element;
    const double times = row.bytes / unit;
    const bool whole = times == std::floor(times) && times >= 1;
    if (!whole || (!gathers(op) && times != 1))
      fail("size " + fmt::format("{:.0f}", row.bytes) + " with count " + fmt::format("{:.0f}", *row.count) +
               " of " + one_line(row.type),
           "size = count x " + std::to_string(element) + " bytes" + (gathers(op) ? " x the ranks" : ""));
    // Once only: some versions print the count of all ranks.
    if (gathers(op) && times > 1) narrow(range, times, times);
  }
  // Smaller bandwidths have fewer than two significant digits.
  if (!(alg.low() > 0 && alg.value > 20 * alg.half)) return range;
  const double ratio_low = bus.low() / alg.high() * (1 - kSlack / 10),
               ratio_high = bus.high() / alg.low() * (1 + kSlack / 10);
  if (ratio_low > (op == CollectiveOp::all_reduce ? 2 : 1))
    fail("busbw / algbw of " + short_number(bus.value / alg.value),
         "at most " + std::string(op == CollectiveOp::all_reduce ? "2" : "1") +
             ", as in tables of this operation (another --op?)");
  const bool equal = ratio_low <= 1 && ratio_high >= 1;
  RankRange by_ratio = range;
  if (op == CollectiveOp::all_reduce) {
    narrow_by_share(by_ratio, ratio_low / 2, ratio_high / 2);
  } else if (gathers(op) && !(equal && op != CollectiveOp::all_to_all)) {
    narrow_by_share(by_ratio, ratio_low, ratio_high);
  } else if (gathers(op)) {
    // Old versions, or so many ranks that (n-1) / n is one to the last digit.
    const double share = alg.value * 1e9 * row.seconds() / row.bytes;
    const double slack = kSlack + alg.half / alg.value + row.time.half / std::max(row.time.value, 1e-12);
    RankRange old = range, now = range;
    narrow_by_share(old, share * (1 - slack), share * (1 + slack));
    narrow_by_share(now, ratio_low, ratio_high);
    if (share * (1 + slack) < 1)
      by_ratio = old;
    else
      narrow(by_ratio, std::min(old.low, now.low), 1e9);
  } else if (!equal) {
    fail("busbw / algbw of " + short_number(bus.value / alg.value),
         "1, as in tables of this operation (another --op?)");
  }
  if (by_ratio.low > by_ratio.high * (1 + 1e-9))
    fail("busbw / algbw of " + short_number(bus.value / alg.value) +
             (range.low == range.high ? " among " + range.text() + " ranks" : ""),
         "the ratio of this operation (another --op?)");
  return by_ratio;
}

void check_row(const LoggedRow& row, CollectiveOp op, int ranks, const std::string& said_by) {
  const bool reduces = op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter;
  // Some versions print one for exchanges, too.
  const bool says = op != CollectiveOp::send_recv && op != CollectiveOp::all_to_all;
  if (row.redop && says && reduces != (*row.redop != "none"))
    throw InputError(row.place, "a row with redop " + in_quotes(*row.redop),
                     fmt::format("a row of {} (another --op?)", sim::name(op)));
  const RankRange range = ranks_of(row, op);
  if (!range.contains(ranks))
    throw InputError(row.place,
                     "size, count and bandwidths of " + range.text() + " ranks (busbw / algbw is " +
                         short_number(row.busbw.value / std::max(row.algbw.value, 1e-12)) + ")",
                     fmt::format("{}, as {} say", ranks, said_by));
  if (row.algbw.value < 0.1) return;
  const double computed = row.bytes / row.seconds() * 1e-9;
  const bool old = gathers(op) && op != CollectiveOp::all_to_all && row.busbw.value > 0.99 * row.algbw.value;
  const double share = old ? (ranks - 1.0) / ranks : 1;
  const double error =
      std::min(std::abs(row.algbw.value / computed - 1), std::abs(row.algbw.value / (computed * share) - 1));
  if (error > 0.08)
    throw InputError(row.place, "algbw " + short_number(row.algbw.value) + " GB/s",
                     short_number(computed) + " GB/s, as size and time say (wrong unit?)");
}

void RankLines::add(RankLine line, const SourcePlace& place) {
  for (const RankLine& other : lines)
    if (other.rank == line.rank && other.group == line.group)
      throw InputError(place, fmt::format("rank {} twice", line.rank), "the ranks of one run");
  lines.push_back(std::move(line));
}

int RankLines::ranks() const {
  return lines.empty() ? 0 : 1 + std::ranges::max_element(lines, {}, &RankLine::rank)->rank;
}

std::vector<std::string> RankLines::hosts() const {
  std::vector<RankLine> sorted = lines;
  std::ranges::stable_sort(sorted, {}, &RankLine::rank);
  std::vector<std::string> hosts;
  for (const RankLine& line : sorted)
    if (std::ranges::find(hosts, line.host) == hosts.end()) hosts.push_back(line.host);
  return hosts;
}

CollectiveTables::CollectiveTables(const std::string& file, const ImportFacts& facts)
    : file_(file), facts_(facts) {
  if (facts_.source.empty()) facts_.source = file;
}

void CollectiveTables::fail(const std::string& found, const std::string& expected) const {
  throw InputError(rows_.front().place, found, expected);
}

void CollectiveTables::set_library_code(long long code) {
  if (code < 2000 || code > 10'000'000 || !library_.empty()) return;
  // From 2.9 on two digits for the minor version.
  library_ = code > 10000 ? fmt::format("NCCL {}.{}.{}", code / 10000, code % 10000 / 100, code % 100)
                          : fmt::format("NCCL {}.{}.{}", code / 1000, code % 1000 / 100, code % 100);
}

void CollectiveTables::name_last(const std::string& test, const SourcePlace& place) {
  if (rows_.empty()) return;
  if (!name_.empty() && name_ != test)
    throw InputError(place, "the end of " + in_quotes(test), "that of " + in_quotes(name_) + ", which began");
  name_ = test;
}

// Returns the test of the rows, as nccl-tests names it; empty where unknown.
std::string CollectiveTables::test() const {
  if (!name_.empty()) {
    const std::string test = test_named(name_);
    return test.empty() ? name_ : test;
  }
  return facts_.op ? std::string() : test_named(std::filesystem::path(file_).stem().string());
}

RankRange CollectiveTables::range_of(CollectiveOp op) const {
  RankRange all;
  for (const LoggedRow& row : rows_) {
    const RankRange one = ranks_of(row, op);
    narrow(all, one.low, one.high);
  }
  return all;
}

// Returns nodes and GPUs from the options, completed from the columns.
std::optional<NodesOf> CollectiveTables::given_shape(const RankRange& range) const {
  const int nodes = facts_.nodes, gpus = facts_.gpus_per_node;
  if (nodes == 0 && gpus == 0) return std::nullopt;
  if (nodes > 0 && gpus > 0) return NodesOf{nodes, gpus};
  int ranks = ranks_.complete() ? ranks_.ranks() : 0;
  if (ranks == 0 && range.low > 1.5 && std::ceil(range.low - 1e-9) == std::floor(range.high + 1e-9))
    ranks = static_cast<int>(std::round(range.low));
  if (ranks == 0) return std::nullopt;
  const int part = nodes > 0 ? nodes : gpus;
  if (ranks % part != 0)
    fail(fmt::format("{} ranks", ranks),
         fmt::format("a multiple of {} {}", nodes > 0 ? "--nodes" : "--gpus-per-node", part));
  return nodes > 0 ? NodesOf{nodes, ranks / nodes} : NodesOf{ranks / gpus, gpus};
}

// Throws InputError where rank lines contradict the shape or are insufficient.
void CollectiveTables::check_hosts(const NodesOf& shape, const RankRange& range) const {
  if (ranks_.lines.empty()) return;
  const bool given = facts_.nodes > 0 || facts_.gpus_per_node > 0;
  const int listed = ranks_.ranks();
  const std::vector<std::string> hosts = ranks_.hosts();
  if (ranks_.complete() ? shape.ranks() != listed : shape.ranks() < listed)
    fail(fmt::format("rank lines of {} ranks", listed),
         fmt::format("{}, as --nodes {} and --gpus-per-node {} say", shape.ranks(), shape.nodes,
                     shape.gpus_per_node));
  std::map<std::string, int> on_host;
  std::set<std::pair<std::string, std::string>> devices;
  const RankLine* again = nullptr;
  for (const RankLine& line : ranks_.lines) {
    ++on_host[line.host];
    if (!devices.emplace(line.host, line.device).second) again = &line;
  }
  if (again && !given)
    fail(fmt::format("rank {} on a device of {} that another rank has", again->rank, in_quotes(again->host)),
         fmt::format("names that tell nodes apart, or {}", kShapeOptions));
  if (!again && ranks_.complete()) {
    if (static_cast<int>(hosts.size()) != shape.nodes)
      fail(fmt::format("rank lines of {} nodes", hosts.size()),
           fmt::format("{}, as --nodes or --gpus-per-node say", shape.nodes));
    for (const auto& [host, ranks] : on_host)
      if (ranks != shape.gpus_per_node)
        fail(fmt::format("{} ranks on {}", ranks, in_quotes(host)),
             fmt::format("{} on every node", shape.gpus_per_node));
  }
  if (ranks_.complete() || given) return;
  // Some lines are missing: the others must belong to whole nodes in order, and the columns must give the
  // number of ranks.
  for (const RankLine& line : ranks_.lines)
    if (hosts[static_cast<std::size_t>(line.rank / shape.gpus_per_node)] != line.host)
      fail(fmt::format("rank lines of which some are left out, rank {} on {}", line.rank,
                       in_quotes(line.host)),
           kShapeOptions);
  if (!(range.contains(shape.ranks()) && range.low > shape.ranks() - shape.gpus_per_node &&
        range.high < shape.ranks() + shape.gpus_per_node))
    fail(fmt::format("rank lines of which some are left out, and columns of {} ranks", range.text()),
         kShapeOptions);
}

NodesOf CollectiveTables::shape_of(CollectiveOp op) const {
  const RankRange range = range_of(op);
  std::set<std::string> groups;
  for (const RankLine& line : ranks_.lines) groups.insert(line.group);
  if (groups.size() > 1)
    fail(fmt::format("rank lines of {} groups", groups.size()),
         "one operation among all ranks (no NCCL_TESTS_SPLIT)");
  NodesOf shape;
  if (shape_) {
    shape = *shape_;
    const bool other = (facts_.nodes > 0 && facts_.nodes != shape.nodes) ||
                       (facts_.gpus_per_node > 0 && facts_.gpus_per_node != shape.gpus_per_node);
    if (other)
      fail(fmt::format("{} nodes of {} GPUs", shape.nodes, shape.gpus_per_node),
           "those of --nodes and --gpus-per-node");
    return shape;
  }
  if (const auto given = given_shape(range)) {
    shape = *given;
  } else if (ranks_.lines.empty() && ranks_.shape) {
    shape = *ranks_.shape;
  } else {
    const int nodes = static_cast<int>(ranks_.hosts().size()), ranks = ranks_.ranks();
    const std::string told = range.low > 1 ? fmt::format(" ({} ranks by its columns)", range.text()) : "";
    if (nodes == 0) fail("a table without rank lines" + told, kShapeOptions);
    if (ranks % nodes != 0)
      fail(fmt::format("{} ranks on {} nodes", ranks, nodes),
           fmt::format("as many on each, or {}", kShapeOptions));
    shape = {nodes, ranks / nodes};
  }
  check_hosts(shape, range);
  if (ranks_.told > 0 && ranks_.told != shape.ranks())
    fail(fmt::format("nranks {} of NCCL", ranks_.told),
         fmt::format("{}, as rank lines or options say", shape.ranks()));
  return shape;
}

std::string CollectiveTables::gpu() const {
  std::set<std::string> names;
  for (const RankLine& line : ranks_.lines)
    if (!line.gpu.empty()) names.insert(table_name(line.gpu));
  if (names.size() > 1)
    fail("ranks on " + in_quotes(*names.begin()) + " and " + in_quotes(*names.rbegin()), "one kind of GPU");
  if (facts_.gpu.empty()) return names.empty() ? "" : *names.begin();
  const Device *said = device_of_gpu(facts_.gpu),
               *listed = names.empty() ? nullptr : device_of_gpu(*names.begin());
  if (said && listed && said != listed)
    fail("rank lines on " + in_quotes(*names.begin()), in_quotes(facts_.gpu) + ", as --gpu says");
  return facts_.gpu;
}

void CollectiveTables::finish() {
  if (rows_.empty()) return;
  const std::string test = this->test();
  const auto op = name_.empty() && facts_.op ? facts_.op : op_named(test);
  if (!op && !test.empty()) {
    if (facts_.op)
      fail("a table of " + in_quotes(test), fmt::format("one of {}, as --op says", sim::name(*facts_.op)));
    left_out_ = fmt::format("{} rows of {}", rows_.size(), in_quotes(test));
    note(fmt::format("{}: {} are left out: no forecast uses this operation", rows_.front().place.str(),
                     left_out_));
  } else {
    std::vector<std::string> found, expected;
    if (!op) found.emplace_back("the name of its test"), expected.emplace_back("--op");
    if (op && facts_.op && *op != *facts_.op)
      fail("a table of " + in_quotes(test), fmt::format("one of {}, as --op says", sim::name(*facts_.op)));
    if (ranks_.lines.empty() && !ranks_.shape && !shape_ && facts_.nodes == 0 && facts_.gpus_per_node == 0)
      found.emplace_back("rank lines"), expected.emplace_back(kShapeOptions);
    const std::string gpu = this->gpu();
    if (gpu.empty()) found.emplace_back("a GPU's name"), expected.emplace_back("--gpu");
    if (!found.empty()) {
      // No other operation's busbw exceeds its algbw.
      const bool sums = std::any_of(rows_.begin(), rows_.end(), [](const LoggedRow& row) {
        return row.busbw.low() > 1.01 * row.algbw.high();
      });
      const RankRange range = op ? range_of(*op) : sums ? range_of(CollectiveOp::all_reduce) : RankRange();
      fail("a table without " + join(found, ", ") +
               (range.low > 1 ? fmt::format(" ({} ranks by its columns)", range.text()) : ""),
           join(expected, ", "));
    }
    const NodesOf shape = shape_of(*op);
    const bool given = facts_.nodes > 0 || facts_.gpus_per_node > 0;
    const std::string said_by = shape_  ? "nodes and ranks of the file"
                                : given ? fmt::format("{} nodes of {} GPUs", shape.nodes, shape.gpus_per_node)
                                : ranks_.lines.empty() ? "NCCL's own lines"
                                                       : "the rank lines";
    for (const LoggedRow& row : rows_) {
      check_row(row, *op, shape.ranks(), said_by);
      if (row.bytes <= 0 || shape.ranks() < 2) continue;
      CollectiveRow measured;
      measured.op = *op;
      measured.nodes = shape.nodes;
      measured.gpus_per_node = shape.gpus_per_node;
      measured.bytes = row.bytes;
      measured.seconds = row.seconds();
      measured.datatype = row.type;
      measured.algorithm = row.algorithm;
      measured.library = !library_.empty()         ? library_
                         : !facts_.library.empty() ? facts_.library
                                                   : default_library_;
      measured.origin = {row.place, gpu, facts_.source, network_};
      result_.rows.collectives.push_back(std::move(measured));
    }
    if (shape.ranks() < 2) {
      left_out_ = fmt::format("{} rows of one rank", rows_.size());
      note(fmt::format("{}: {} are left out: nothing is sent", rows_.front().place.str(), left_out_));
    }
  }
  rows_.clear();
  name_.clear();
}

Imported CollectiveTables::imported(long last_line) {
  if (result_.rows.collectives.empty())
    throw InputError({file_, last_line, 0},
                     left_out_.empty() ? "no result rows" : "no result rows but " + left_out_,
                     "a log or JSON of nccl-tests or rccl-tests");
  return std::move(result_);
}

}  // namespace moesim::calibration
