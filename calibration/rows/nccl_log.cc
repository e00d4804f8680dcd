#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "calibration/rows/collective_table.h"
#include "calibration/rows/import_logs.h"

namespace moesim::calibration {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool starts_with_digit(std::string_view word) { return !word.empty() && is_digit(word[0]); }

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while (at < line.size()) {
    while (at < line.size() && std::isspace(static_cast<unsigned char>(line[at]))) ++at;
    const std::size_t begin = at;
    while (at < line.size() && !std::isspace(static_cast<unsigned char>(line[at]))) ++at;
    if (at > begin) words.push_back(line.substr(begin, at - begin));
  }
  return words;
}

// Returns the word behind another; empty: none.
std::string_view behind(const std::vector<std::string_view>& words, std::string_view word) {
  const auto at = std::find(words.begin(), words.end(), word);
  return words.end() - at > 1 ? *(at + 1) : std::string_view();
}

std::string_view left_trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  return text;
}

bool is_dots(std::string_view line) {
  line = trim(line);
  return line.starts_with("\xe2\x80\xa6") ||
         (line.size() >= 2 && line.find_first_not_of('.') == std::string_view::npos);
}

// Returns whether text starts as a log's own line: a comment, a row, or an ellipsis.
bool begins_own_line(std::string_view text) {
  return text.starts_with('#') || starts_with_digit(text) || text.starts_with("...");
}

// "2026-01-28T14:50:17.123Z", "14:50:17", "2026-01-28".
bool is_time(std::string_view word) {
  const auto two = [&](std::size_t at) {
    return at + 1 < word.size() && is_digit(word[at]) && is_digit(word[at + 1]);
  };
  if (word.size() >= 8 && two(0) && word[2] == ':' && two(3) && word[5] == ':' && two(6)) return true;
  return word.size() >= 10 && two(0) && two(2) && word[4] == '-' && two(5) && word[7] == '-' && two(8);
}

// Returns the length of a launcher's prefix of the line; 0: none.
std::size_t prefix_length(std::string_view line) {
  constexpr std::size_t kLongest = 200;
  if (line.starts_with('[')) {  // "[1,0]<stdout>:", "[0] ", "[pod/a-0/b] "
    const std::size_t end = line.find(']');
    if (end == std::string_view::npos || end > kLongest) return 0;
    std::size_t at = end + 1;
    for (const std::string_view stream : {"<stdout>", "<stderr>", "<stddiag>"})
      if (line.substr(at).starts_with(stream)) at += stream.size();
    if (at < line.size() && line[at] == ':') ++at;
    return at;
  }
  if (line.starts_with('(')) {  // "(head, rank=0, pid=3808) "
    const std::size_t end = line.find(')');
    const bool names = line.substr(0, end).find("pid=") != std::string_view::npos;
    return end == std::string_view::npos || end > kLongest || !names ? 0 : end + 1;
  }
  if (line.starts_with("> ")) return 2;
  const std::size_t end = line.find_first_of(" \t");
  const std::string_view word = line.substr(0, end);
  if (word.size() > kLongest) return 0;
  if (is_time(word)) return end == std::string_view::npos ? 0 : end + 1;
  const std::size_t colon = word.find(':');
  if (colon != std::string_view::npos && colon > 0) {
    const std::string_view name = word.substr(0, colon), rest = left_trimmed(line.substr(colon + 1));
    // "0: 1024 ...", "0:#", "node-1: # ..."; but neither "step: 2" nor prose.
    const bool number = std::all_of(name.begin(), name.end(), is_digit);
    if (begins_own_line(rest) && (number || colon + 1 == word.size() || rest.starts_with('#')))
      return colon + 1;
    if (number && colon + 1 == word.size()) return colon + 1;
  }
  if (end != std::string_view::npos) {  // "name  | # ..."
    const std::string_view rest = left_trimmed(line.substr(end));
    if (rest.starts_with("| ")) return static_cast<std::size_t>(rest.data() - line.data()) + 2;
  }
  return 0;
}

// The table columns that a header line names, after size, count and type.
struct Columns {
  bool known = false, root = false, stamped = false;
  std::size_t block = 4;   // columns of one timing: time algbw busbw wrong, and more
  std::size_t blocks = 1;  // out-of-place, and in-place
  double to_seconds = 1e-6;
};

Columns columns_of(const std::vector<std::string_view>& words) {
  Columns columns;
  std::vector<std::size_t> times;
  std::size_t end = words.size();
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "time") times.push_back(i);
    columns.root = columns.root || words[i] == "root";
    if (words[i] == "timestamp") columns.stamped = true, end = std::min(end, i);
  }
  if (times.empty()) return columns;
  columns.blocks = times.size();
  columns.block = times.size() > 1 ? times[1] - times[0] : end - times[0];
  columns.known = columns.block >= 3 && columns.blocks <= 2;  // time, algbw, busbw; fewer are prose
  return columns;
}

// Returns whether NCCL's own log wrote (the end of) the line: "host:12:13 [0] NCCL INFO ...".
bool by_nccl(std::string_view line) {
  return line.find("NCCL INFO") != std::string_view::npos || line.find("NCCL WARN") != std::string_view::npos;
}

// Returns the length of a row's words before a line of NCCL's: "... sum -1host:12:13 [0] NCCL INFO"; 0: none.
std::size_t before_nccl(std::string_view line) {
  if (!by_nccl(line) || !starts_with_digit(line)) return 0;
  const std::size_t host = line.find_last_of(" \t", line.find(" [") - 1) + 1;
  // The root, or the number of wrong results, has no blank behind it.
  for (const std::string_view last : {"-1", "N/A", "0"})
    if (line.substr(host).starts_with(last)) return host + last.size();
  return host;
}

// "AllReduce: 1024 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}" (NCCL from 2.24), "1024 Bytes ->
// Algo 1 proto 2 time 46.1" (before): "ring/simple/16", "ring/simple".
std::string choice_of(const std::vector<std::string_view>& words) {
  static constexpr std::string_view kAlgorithms[] = {
      "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
  static constexpr std::string_view kProtocols[] = {"ll", "ll128", "simple"};
  const auto named = [](std::string_view word, const auto& names) {
    const auto number = parse_int(word);
    if (number && *number >= 0 && *number < static_cast<std::int64_t>(std::size(names)))
      return std::string(names[static_cast<std::size_t>(*number)]);
    return lower(word);
  };
  std::string choice =
      named(behind(words, "Algo"), kAlgorithms) + "/" + named(behind(words, "proto"), kProtocols);
  const std::string_view span = words.back().substr(words.back().find('=') + 1);
  const std::size_t dots = span.find("..");
  if (words.back().starts_with("channel{") && span.starts_with('{') && dots != std::string_view::npos) {
    const auto low = parse_int(span.substr(1, dots - 1)),
               high = parse_int(span.substr(dots + 2, span.size() - dots - 3));
    if (low && high && *high >= *low) choice += fmt::format("/{}", *high - *low + 1);
  }
  return choice;
}

class LogReader {
 public:
  LogReader(const std::string& file, const ImportFacts& facts) : file_(file), tables_(file, facts) {}

  Imported read(std::string_view text) {
    const bool ends_whole = text.ends_with('\n');
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      ++number_;
      take(text.substr(0, end));
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
    if (!row_.empty() || (open_ && last_row_ == number_ && !ends_whole))
      throw InputError({file_, row_.empty() ? last_row_ : number_, 0}, "the end of the log inside this row",
                       "a whole row and a line end (truncated log?)");
    if (open_)
      tables_.note(
          fmt::format("{}:{}: the log ends behind this row, without its closing summary; the rows before are "
                      "taken",
                      file_, last_row_));
    finish();
    return tables_.imported(number_);
  }

 private:
  void take(std::string_view line) {
    std::string launcher, joined;
    line = without_prefix(line, launcher);
    // NCCL writes into the row that nccl-tests is printing: its words stand before NCCL's lines and behind.
    if (const std::size_t length = columns_.known ? before_nccl(line) : 0; length > 0) {
      row_ += std::string(line.substr(0, length)) + " ";
      line = line.substr(length);
    }
    auto words = words_of(line);
    if (words.empty()) return;
    if (!row_.empty() && !by_nccl(line) && parse_number(words[0])) {
      joined = row_ + std::string(line);
      row_.clear();
      words = words_of(joined);
    }
    if (is_dots(line)) {
      tables_.ranks().cut = tables_.ranks().cut || !has_rows_;
      return;
    }
    const bool numbers = words.size() >= 3 && starts_with_digit(words[0]) && parse_int(words[0]) &&
                         starts_with_digit(words[1]);
    // Where an excerpt begins after the header, a row is recognised by its type and its length.
    if (numbers && !columns_.known && parse_int(words[1]) && element_size(words[2]) > 0 && words.size() >= 11)
      columns_ = {true, true, false, 4, 2, 1e-6};
    if (numbers && columns_.known) {
      take_row(words, launcher);
      return;
    }
    // A row cut after its first words would look like prose.
    if (open_ && words.size() <= 2 && parse_int(words[0]))
      throw InputError({file_, number_, 0}, fmt::format("{} columns", words.size()),
                       "a whole row (a truncated line?)");
    read_comment(line, words);
  }

  void take_row(const std::vector<std::string_view>& words, const std::string& launcher) {
    if (closed_) finish();
    if (has_rows_ && launcher != row_launcher_)
      throw InputError({file_, number_, 0},
                       "a row of " + in_quotes(launcher) + " in a table of " + in_quotes(row_launcher_),
                       "the output of one process (each prints its own table)");
    row_launcher_ = launcher;
    tables_.add(row_of(words));
    has_rows_ = open_ = true;
    last_row_ = number_;
  }

  LoggedRow row_of(const std::vector<std::string_view>& words) const {
    const SourcePlace place{file_, number_, 0};
    const auto number = [&](std::string_view word, const char* what, double low, double high) {
      const auto value = Rounded::parse(word);
      if (!value || !(value->value >= low && value->value <= high))
        throw InputError(place, in_quotes(word) + " as " + what, "a finite number in its physical range");
      return *value;
    };
    const auto truncated = [&](std::size_t expected) {
      throw InputError(place, fmt::format("{} columns", words.size()),
                       fmt::format("{} (a truncated line?)", expected));
    };
    const std::size_t minimum = 3 + columns_.block;
    if (words.size() < minimum) truncated(minimum);
    LoggedRow row;
    row.place = place;
    row.bytes = number(words[0], "size", 0, kMostBytes).value;
    row.count = number(words[1], "count", 0, kMostBytes).value;
    if (element_size(words[2]) == 0)
      throw InputError(place, "the type " + in_quotes(words[2]),
                       "an nccl-tests type (float, half, bfloat16, int8, ...)");
    row.type = words[2];
    for (const auto& said : {std::pair(false, row.bytes), {true, *row.count * element_size(row.type)}})
      if (const auto chosen = choices_.find(said); chosen != choices_.end()) row.algorithm = chosen->second;
    // Then an optional reduction name (left out by some versions), an optional root, and the timings.
    std::size_t at = 3;
    if (at < words.size() && !starts_with_digit(words[at]) && words[at][0] != '-' && words[at] != "nan" &&
        words[at] != "inf") {
      row.redop = words[at];
      ++at;
    } else {
      row.redop = "none";
    }
    const std::size_t timings = columns_.block * columns_.blocks, stamp = columns_.stamped ? 2 : 0;
    if (columns_.root && words.size() - at == timings + stamp + 1) ++at;
    if (words.size() - at != timings + stamp) truncated(at + timings + stamp);
    row.time_unit = columns_.to_seconds;
    row.time = number(words[at], "time", 1e-4, kMostSeconds / columns_.to_seconds);
    row.algbw = number(words[at + 1], "algbw", 0, 1e6);
    row.busbw = number(words[at + 2], "busbw", 0, 1e6);
    if (columns_.block > 3) {
      const std::string_view wrong = words[at + 3];
      const bool rounded = wrong.find_first_of(".e") != std::string_view::npos;
      if (wrong != "N/A" && number(wrong, "#wrong", 0, 1e18).value > (rounded ? 1e-2 : 0))
        throw InputError(place, in_quotes(wrong) + " wrong results", "a run whose results are right");
    }
    return row;
  }

  // "#  Rank  0 Group  0 Pid 29337 on hostA device 0 [0x1b] NVIDIA H100 80GB HBM3"
  bool read_rank(std::string_view line, std::vector<std::string_view> words) {
    if (!words.empty() && words.front() == "#") words.erase(words.begin());
    if (words.size() < 5 || words[0] != "Rank") return false;
    const auto rank = parse_int(words[1]);
    RankLine one;
    one.host = behind(words, "on");
    one.device = behind(words, "device");
    if (!rank || *rank < 0 || *rank >= 1 << 20 || one.host.empty() || one.device.empty()) return false;
    if (closed_ || has_rows_) begin_section();
    one.rank = static_cast<int>(*rank);
    one.group = behind(words, "Group");
    const std::size_t open = line.rfind('['), close = line.rfind(']');
    if (open != std::string_view::npos && close != std::string_view::npos && open < close) {
      one.device += line.substr(open, close - open + 1);
      one.gpu = trim(line.substr(close + 1));
    }
    tables_.ranks().add(std::move(one), {file_, number_, 0});
    return true;
  }

  // "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE", "NET/OFI Selected Provider is efa": the last kind that it names.
  void read_network(std::string_view line) {
    static constexpr std::pair<std::string_view, const char*> kKinds[] = {
        {":1/IB", "infiniband"},         {":1/RoCE", "roce"},     {"rovider is efa", "efa"},
        {"rovider is cxi", "slingshot"}, {"NET/FasTrak", "tcpx"}, {"NET/GPUDirectTCPX", "tcpx"}};
    for (const auto& [said, kind] : kKinds)
      if (line.find(said) != std::string_view::npos) tables_.set_network(kind);
  }

  void read_library(std::string_view line) {
    if (line.find("rccl-tests") != std::string_view::npos) tables_.set_default_library("RCCL (not recorded)");
    for (const std::string_view name : {"RCCL version", "NCCL version"}) {
      const std::size_t at = line.find(name);
      if (at == std::string_view::npos) continue;
      auto rest = words_of(line.substr(at + name.size()));
      if (!rest.empty() && rest.front() == ":") rest.erase(rest.begin());
      if (rest.empty() || !starts_with_digit(rest[0])) continue;
      tables_.set_library(std::string(name.substr(0, 4)) + " " +
                          std::string(rest[0].substr(0, rest[0].find_first_of("+-,"))));
      return;
    }
    // "nccl-library=22902": major, minor, patch
    const std::string_view key = "nccl-library=";
    const std::size_t at = line.find(key);
    if (at == std::string_view::npos) return;
    const auto rest = words_of(line.substr(at + key.size()));
    if (!rest.empty()) tables_.set_library_code(parse_int(rest[0]).value_or(0));
  }

  // Reads tests that a line names by their programs: "/opt/nccl-tests/build/all_reduce_perf -b 8".
  void read_programs(std::string_view line) {
    std::string only;
    bool several = false;
    for (std::size_t at = 0; (at = line.find("_perf", at)) != std::string_view::npos; at += 5) {
      std::size_t begin = at;
      while (begin > 0 &&
             (std::isalnum(static_cast<unsigned char>(line[begin - 1])) || line[begin - 1] == '_'))
        --begin;
      std::string name(line.substr(begin, at - begin));
      several = several || (!only.empty() && only != name);
      only = std::move(name);
    }
    if (only.empty()) return;
    if (line.find("concluded") != std::string_view::npos) {
      tables_.name_last(only, {file_, number_, 0});
      closed_ = true;
      open_ = false;
      return;
    }
    const bool starts = line.find("Collective test starting") != std::string_view::npos;
    if (starts || has_rows_) begin_section();
    if (starts) programs_.clear();
    // A script may name many and run one.
    if (several) programs_.insert("");
    programs_.insert(only);
    tables_.name(programs_.size() == 1 ? only : "");
  }

  void read_comment(std::string_view line, const std::vector<std::string_view>& words) {
    if (read_rank(line, words)) return;
    read_library(line);
    if (by_nccl(line)) {
      const auto number = [&](std::string_view word) { return parse_int(behind(words, word)).value_or(0); };
      tables_.ranks().told = std::max(tables_.ranks().told, number("nranks"));
      // With multi-node NVLink (MNNVL 1) NCCL counts racks as nodes.
      if (const auto nodes = number("nNodes"), each = number("localRanks");
          nodes > 0 && nodes < 1 << 20 && each > 0 && each <= 1024 && nodes * each == number("nRanks") &&
          number("MNNVL") == 0)
        tables_.ranks().shape = {static_cast<int>(nodes), static_cast<int>(each)};
      read_network(line);
      const auto arrow = std::find(words.begin(), words.end(), "->");
      if (line.find(" Bytes -> Algo ") != std::string_view::npos && arrow - words.begin() > 1) {
        const auto bytes = static_cast<double>(parse_int(*(arrow - 2)).value_or(0));
        choices_[{words.back().starts_with("channel{"), bytes}] = choice_of(words);
        tables_.leave_out("NCCL's own estimates (subsystem TUNING), which are no measured times");
      }
      return;
    }
    const bool arguments =
        line.find("nThread") != std::string_view::npos && line.find("minBytes") != std::string_view::npos;
    if (arguments && (has_rows_ || !tables_.ranks().lines.empty())) begin_section();
    if (line.find("_perf") != std::string_view::npos) read_programs(line);
    const auto has = [&](const char* word) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    if (has("size") && has("count") && (has("time") || has("cputime"))) {
      if (has_rows_) begin_table();
      columns_ = columns_of(words);
      if (has("cputime"))
        throw InputError({file_, number_, 0}, "a table of times on the CPU", "one without --report_cputime");
    }
    if (has("bytes") && has("N") && has("time")) {  // version 1, in milliseconds
      if (has_rows_) begin_table();
      columns_ = columns_of(words);
      columns_.to_seconds = 1e-3;
    }
    if (line.find("(ms)") != std::string_view::npos && line.find("(GB/s)") != std::string_view::npos)
      columns_.to_seconds = 1e-3;
    if (line.find("Out of bounds values") != std::string_view::npos ||
        line.find("Avg bus bandwidth") != std::string_view::npos) {
      open_ = false;
      closed_ = closed_ || has_rows_;
      if (line.find("FAILED") != std::string_view::npos &&
          line.find("Out of bounds") != std::string_view::npos)
        throw InputError({file_, number_, 0}, "a test that failed", "a run whose results are right");
    }
  }

  void finish() {
    if (has_rows_) programs_.clear();
    tables_.finish();
    has_rows_ = open_ = closed_ = false;
    row_launcher_.clear();
  }
  // Begins another table, possibly with the same ranks.
  void begin_table() {
    const bool same = !closed_;
    finish();
    if (!same) tables_.ranks() = {};
  }
  // Begins another test: earlier statements do not apply to it.
  void begin_section() {
    finish();
    tables_.ranks() = {};
    columns_ = {};
    choices_.clear();
  }

  std::string file_;
  CollectiveTables tables_;
  Columns columns_;
  long number_ = 0, last_row_ = 0;
  bool has_rows_ = false, open_ = false, closed_ = false;
  std::string row_launcher_, row_;  // `row_`: the words of a row that NCCL's lines have cut
  // NCCL's choice by bytes: of the buffer, and (true, from NCCL 2.24) of the piece that "count" counts.
  std::map<std::pair<bool, double>, std::string> choices_;
  std::set<std::string> programs_;  // since the last table
};

}  // namespace

std::string_view without_prefix(std::string_view line, std::string& launcher) {
  launcher.clear();
  std::string_view rest = left_trimmed(line);
  while (const std::size_t length = prefix_length(rest)) {
    const std::string_view taken = trim(rest.substr(0, length));
    if (!is_time(taken.substr(taken.starts_with('[') ? 1 : 0))) launcher += taken;
    rest = left_trimmed(rest.substr(length));
  }
  return rest;
}

Imported read_nccl_log(std::string_view text, const std::string& file, const ImportFacts& facts) {
  return LogReader(file, facts).read(text);
}

}  // namespace moesim::calibration
