#include "calibration/rows/logged_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/text.h"

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
  std::string text;
  for (const char c : word)
    if (std::isalnum(static_cast<unsigned char>(c)))
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
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

}  // namespace moesim::calibration
