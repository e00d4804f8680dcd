#include "calibration/rows/import_logs.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/json_reader.h"
#include "base/text.h"
#include "calibration/rows/csv_table.h"

namespace moesim::calibration {
namespace {

using sim::CollectiveOp;

constexpr double kMostSeconds = 1e5;

std::optional<CollectiveOp> op_in(std::string_view text) {
  // Longer names first: "all_reduce" must not be read out of "reduce".
  static constexpr std::pair<std::string_view, CollectiveOp> kNames[] = {
      {"all_gather", CollectiveOp::all_gather}, {"reduce_scatter", CollectiveOp::reduce_scatter},
      {"all_reduce", CollectiveOp::all_reduce}, {"alltoall", CollectiveOp::all_to_all},
      {"all_to_all", CollectiveOp::all_to_all}, {"sendrecv", CollectiveOp::send_recv},
      {"send_recv", CollectiveOp::send_recv},   {"broadcast", CollectiveOp::broadcast},
  };
  for (const auto& [name, op] : kNames)
    if (text.find(name) != std::string_view::npos) return op;
  return std::nullopt;
}

int element_size(std::string_view type) {
  static const std::map<std::string_view, int> kSizes = {
      {"int8", 1},   {"uint8", 1},  {"char", 1}, {"fp8_e4m3", 1}, {"fp8_e5m2", 1},
      {"f8e4m3", 1}, {"f8e5m2", 1}, {"half", 2}, {"float16", 2},  {"bfloat16", 2},
      {"int32", 4},  {"uint32", 4}, {"int", 4},  {"float", 4},    {"int64", 8},
      {"uint64", 8}, {"double", 8}, {"fp8", 1},  {"bf16", 2},     {"fp32", 4}};
  const auto found = kSizes.find(type);
  return found == kSizes.end() ? 0 : found->second;
}

// "NVIDIA H100 80GB HBM3" as profiles call it; the text itself for a GPU that is not known.
std::string canonical_gpu(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kParts[] = {
      {"A100-SXM4-40GB", "A100-SXM4-40GB"},
      {"A100", "A100-SXM4-80GB"},
      {"A800", "A800-SXM4-80GB"},
      {"GH200", "GH200"},
      {"H100", "H100-SXM5-80GB"},
      {"H200", "H200-SXM5-141GB"},
      {"H800", "H800-SXM5-80GB"},
      {"GB200", "GB200"},
      {"GB300", "GB300"},
      {"B200", "B200-SXM6-180GB"},
      {"B300", "B300-SXM6"},
      {"MI300X", "MI300X"},
      {"MI355X", "MI355X"}};
  for (const auto& [part, canonical] : kParts)
    if (name.find(part) != std::string_view::npos) return std::string(canonical);
  return std::string(trim(name));
}

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

bool starts_with_digit(std::string_view word) {
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word[0]));
}

// The table columns that a header line names, after size, count and type.
struct Columns {
  bool known = false;
  bool root = false;
  std::size_t block = 4;   // columns of one timing: time algbw busbw wrong
  std::size_t blocks = 1;  // out-of-place, and in-place
  double to_seconds = 1e-6;
};

Columns columns_of(const std::vector<std::string_view>& words) {
  Columns columns;
  std::size_t times = 0;
  for (const std::string_view word : words) {
    times += word == "time";
    columns.root = columns.root || word == "root";
  }
  const auto first = std::find(words.begin(), words.end(), "time");
  if (times == 0) return columns;
  columns.blocks = times;
  columns.block = static_cast<std::size_t>(words.end() - first) / times;
  columns.known = columns.block >= 3;  // time, algbw, busbw; less is prose
  return columns;
}

// State of one log while its lines are read.
struct Log {
  std::string file;
  ImportFacts facts;
  std::optional<CollectiveOp> op;
  Columns columns;
  std::set<std::string> hosts;
  int ranks = 0;
  std::string gpu;
  std::string library = "NCCL (not recorded)";
  bool open_table = false;  // rows without the closing summary yet
  long last_row = 0;
};

void read_comment(Log& log, std::string_view line) {
  const auto words = words_of(line);
  if (line.find("test starting") != std::string_view::npos || line.find("_perf") != std::string_view::npos)
    if (const auto op = op_in(line)) log.op = op;
  // "#  Rank  0 Group  0 Pid 29337 on hostA device 0 [0x1b] NVIDIA H100 80GB HBM3"
  if (words.size() > 4 && words[0] == "#" && words[1] == "Rank") {
    ++log.ranks;
    const auto on = std::find(words.begin(), words.end(), "on");
    if (on != words.end() && on + 1 != words.end()) log.hosts.emplace(*(on + 1));
    const std::size_t bracket = line.rfind(']');
    if (bracket != std::string_view::npos) log.gpu = canonical_gpu(trim(line.substr(bracket + 1)));
  }
  const std::size_t version = line.find("NCCL version ");
  if (version != std::string_view::npos) {
    const auto rest = words_of(line.substr(version + 13));
    if (!rest.empty() && starts_with_digit(rest[0])) {
      const std::string_view full = rest[0];
      log.library = "NCCL " + std::string(full.substr(0, full.find('+')));
    }
  }
  if (std::find(words.begin(), words.end(), "size") != words.end() &&
      std::find(words.begin(), words.end(), "time") != words.end())
    log.columns = columns_of(words);
  if (line.find("(ms)") != std::string_view::npos && line.find("(GB/s)") != std::string_view::npos)
    log.columns.to_seconds = 1e-3;
  if (line.find("Out of bounds values") != std::string_view::npos ||
      line.find("Avg bus bandwidth") != std::string_view::npos) {
    log.open_table = false;
    // A later test of the same log starts afresh.
    if (line.find("Avg bus bandwidth") != std::string_view::npos) {
      log.ranks = 0;
      log.hosts.clear();
    }
  }
}

CollectiveRow read_row(const Log& log, const std::vector<std::string_view>& words, const SourcePlace& place,
                       int ranks, int nodes) {
  const auto number = [&](std::string_view word, const char* what, double low, double high) {
    const auto value = parse_number(word);
    if (!value || !(*value >= low && *value <= high))
      throw InputError(place, in_quotes(word) + " as " + what, "a finite number in its physical range");
    return *value;
  };
  const auto truncated = [&](std::size_t expected) {
    throw InputError(place, std::to_string(words.size()) + " columns",
                     std::to_string(expected) + " (a truncated line?)");
  };
  const std::size_t minimum = 3 + log.columns.block;
  if (words.size() < minimum) truncated(minimum);
  CollectiveRow row;
  row.op = *log.op;
  row.bytes = number(words[0], "size", 0, 1e15);
  const double count = number(words[1], "count", 0, 1e15);
  const int element = element_size(words[2]);
  if (element == 0)
    throw InputError(place, "the type " + in_quotes(words[2]),
                     "an nccl-tests type (float, half, bfloat16, int8, ...)");
  row.datatype = words[2];
  // What follows: an optional reduction name (left out by some versions), an optional root, then the timings.
  std::size_t at = 3;
  if (at < words.size() && !starts_with_digit(words[at]) && words[at][0] != '-' && words[at] != "nan" &&
      words[at] != "inf")
    ++at;
  const std::size_t timings = log.columns.block * log.columns.blocks;
  if (log.columns.root && words.size() - at == timings + 1) ++at;
  if (words.size() - at != timings) truncated(at + timings);
  const double time = number(words[at], "time", 1e-4, kMostSeconds / log.columns.to_seconds);
  row.seconds = time * log.columns.to_seconds;
  const double algbw = number(words[at + 1], "algbw", 0, 1e6);
  number(words[at + 2], "busbw", 0, 1e6);
  if (log.columns.block > 3) {
    const std::string_view wrong = words[at + 3];
    if (wrong != "N/A" &&
        number(wrong, "#wrong", 0, 1e18) >
            (wrong.find('.') != std::string_view::npos || wrong.find('e') != std::string_view::npos ? 1e-2
                                                                                                    : 0))
      throw InputError(place, in_quotes(wrong) + " wrong results", "a run whose results are right");
  }
  // The count is per rank: the size is that, or that of all ranks, for operations that gather or scatter.
  const double unit = count * element;
  if (count > 0 && row.bytes != unit && row.bytes != unit * ranks)
    throw InputError(place,
                     one_line("size " + std::string(words[0]) + " with count " + std::string(words[1]) +
                              " of " + std::string(words[2])),
                     "size = count x " + std::to_string(element) + " bytes, or that times the ranks");
  const double computed = row.bytes / row.seconds * 1e-9;
  if (algbw >= 0.1 && std::abs(algbw / computed - 1) > 0.08)
    throw InputError(place, "algbw " + std::string(words[at + 1]) + " GB/s",
                     one_line(std::to_string(computed)) + " GB/s, as size and time say (wrong unit?)");
  row.nodes = nodes;
  row.gpus_per_node = ranks / nodes;
  row.library = log.library;
  row.origin = {place, log.facts.gpu.empty() ? log.gpu : log.facts.gpu, log.facts.source};
  return row;
}

}  // namespace

Measurements import_nccl_tests(std::string_view text, const std::string& file, const ImportFacts& facts) {
  Log log;
  log.file = file;
  log.facts = facts;
  log.op = facts.op ? facts.op : op_in(std::filesystem::path(file).filename().string());
  if (log.facts.source.empty()) log.facts.source = file;
  Measurements result;
  long number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++number;
    const auto words = words_of(line);
    if (words.empty()) continue;
    const bool row = words.size() >= 3 && starts_with_digit(words[0]) && parse_int(words[0]) &&
                     starts_with_digit(words[1]) && log.columns.known;
    if (!row) {
      // A row cut after its first words would look like prose.
      if (log.open_table && words.size() <= 2 && parse_int(words[0]))
        throw InputError({file, number, 0}, std::to_string(words.size()) + " columns",
                         "a whole row (a truncated line?)");
      read_comment(log, line);
      continue;
    }
    const SourcePlace place{file, number, 0};
    if (!log.op) throw InputError(place, "a table of an unnamed test", "a log that names its test, or --op");
    const int nodes = facts.nodes > 0 ? facts.nodes : std::max<int>(static_cast<int>(log.hosts.size()), 1);
    const int ranks = facts.gpus_per_node > 0 ? facts.gpus_per_node * nodes : log.ranks;
    if (ranks < 1 || ranks % nodes != 0)
      throw InputError(place, std::to_string(ranks) + " ranks on " + std::to_string(nodes) + " nodes",
                       "rank lines in the log, or --nodes and --gpus-per-node");
    if (log.facts.gpu.empty() && log.gpu.empty()) throw InputError(place, "no GPU name in the log", "--gpu");
    CollectiveRow measured = read_row(log, words, place, ranks, nodes);
    if (measured.bytes > 0 && ranks > 1) result.collectives.push_back(std::move(measured));
    log.open_table = true;
    log.last_row = number;
  }
  if (result.collectives.empty())
    throw InputError({file, number, 0}, "no result rows", "an nccl-tests or rccl-tests log");
  if (log.open_table)
    throw InputError({file, log.last_row, 0}, "the end of the log after this row",
                     "the closing '# Out of bounds values' or '# Avg bus bandwidth' (truncated log?)");
  return result;
}

namespace {

// "all_gather/ranks:8/nodes:1/bytes:1048576/dtype:bf16": the first part, and the values by key.
struct BenchName {
  std::vector<std::string> parts;
  std::map<std::string, std::string, std::less<>> values;
};

BenchName bench_name(std::string_view name) {
  BenchName result;
  for (const std::string_view part : split(name, '/')) {
    const std::size_t colon = part.find(':');
    if (colon == std::string_view::npos || result.parts.empty())
      result.parts.emplace_back(part);
    else
      result.values[std::string(part.substr(0, colon))] = std::string(part.substr(colon + 1));
  }
  return result;
}

class BenchRow {
 public:
  BenchRow(const JsonNode& node, BenchName name) : node_(node), name_(std::move(name)) {}
  double value(std::string_view key, double low, double high) const {
    const auto found = name_.values.find(key);
    const auto number = found == name_.values.end() ? std::nullopt : parse_number(found->second);
    if (!number || *number < low || *number > high)
      fail("one with " + std::string(key) + ":<number> in range");
    return *number;
  }
  // A number without a fraction.
  double count(std::string_view key, double low, double high) const {
    const double number = value(key, low, high);
    if (number != std::floor(number)) fail("a whole number of " + std::string(key));
    return number;
  }
  std::string text(std::string_view key) const {
    const auto found = name_.values.find(key);
    if (found == name_.values.end()) fail("one with " + std::string(key) + ":<name>");
    return found->second;
  }
  const BenchName& name() const { return name_; }
  [[noreturn]] void fail(const std::string& expected) const {
    node_.fail("the benchmark name " + in_quotes(node_.find("name")->string(), 120), expected);
  }

 private:
  const JsonNode& node_;
  BenchName name_;
};

double seconds_of(const JsonNode& node) {
  const auto unit = node.find("time_unit");
  const auto time = node.find("real_time");
  if (!unit || !time) node.fail("a benchmark without real_time and time_unit");
  const std::string name = unit->string();
  const double scale = name == "ns" ? 1e-9 : name == "us" ? 1e-6 : name == "ms" ? 1e-3 : name == "s" ? 1 : 0;
  if (scale == 0) unit->fail(unit->describe(), "ns, us, ms or s");
  const double seconds = time->number(0, 1e18) * scale;
  if (!(seconds > 0 && seconds < kMostSeconds)) time->fail(time->describe(), "a positive time");
  return seconds;
}

void add_bench_row(const BenchRow& bench, double seconds, const Origin& origin, Measurements& out) {
  const std::string& kind = bench.name().parts.front();
  if (const auto op = op_in(kind); op && kind.size() < 16) {
    CollectiveRow row;
    row.origin = origin;
    row.op = *op;
    row.nodes = static_cast<int>(bench.count("nodes", 1, 1 << 20));
    const double ranks = bench.count("ranks", 2, 1 << 24);
    if (std::fmod(ranks, row.nodes) != 0) bench.fail("ranks that the nodes divide");
    row.gpus_per_node = static_cast<int>(ranks) / row.nodes;
    row.bytes = bench.count("bytes", 1, 1e15);
    row.datatype = bench.text("dtype");
    row.library = bench.text("library");
    row.seconds = seconds;
    out.collectives.push_back(std::move(row));
  } else if (kind == "gemm") {
    GemmRow row;
    row.origin = origin;
    row.dtype = bench.text("dtype");
    row.kernel = bench.text("library");
    row.m = bench.value("m", 1, 1e9);
    row.n = bench.count("n", 1, 1e9);
    row.k = bench.count("k", 1, 1e9);
    row.sustained = bench.text("clocks") == "sustained";
    row.seconds = seconds;
    out.gemms.push_back(std::move(row));
  } else if (kind == "grouped_gemm") {
    GroupedGemmRow row;
    row.origin = origin;
    row.kind = bench.text("backend") + " " + bench.text("pass") + " " + bench.text("skew");
    row.dtype = bench.text("dtype");
    row.groups = static_cast<int>(bench.count("groups", 1, 1 << 20));
    row.m_per_group = bench.value("m", 1, 1e9);
    row.n = bench.count("n", 1, 1e9);
    row.k = bench.count("k", 1, 1e9);
    row.seconds = seconds;
    out.grouped.push_back(std::move(row));
  } else if (kind == "kernel") {
    Measurements::KernelRow row;
    row.origin = origin;
    row.kernel = bench.text("class");
    row.bytes = bench.value("bytes", 0, 1e15);
    row.launches = static_cast<int>(bench.count("launches", 1, 1 << 20));
    row.seconds = seconds;
    out.kernels.push_back(std::move(row));
  }
}

}  // namespace

Measurements import_google_benchmark(std::string_view json, const std::string& file,
                                     const ImportFacts& facts) {
  const JsonNode root = JsonNode::parse(json, file);
  if (!root.is_object() || !root.find("benchmarks"))
    root.fail(root.describe(), "Google Benchmark's JSON with 'benchmarks'");
  std::string gpu = facts.gpu;
  if (gpu.empty())
    if (const auto context = root.find("context"))
      if (const auto device = context->find("gpu")) gpu = device->string();
  if (gpu.empty()) root.fail("no device in the context", "--gpu");
  // A median replaces the repetitions it was made of.
  std::set<std::string> with_median;
  const auto rows = root.find("benchmarks")->items();
  const auto aggregate_of = [](const JsonNode& node) {
    const auto name = node.find("aggregate_name");
    return name ? name->string() : std::string();
  };
  const auto run_name = [](const JsonNode& node) {
    const auto run = node.find("run_name");
    const auto name = node.find("name");
    if (!name) node.fail("a benchmark without a name");
    return run ? run->string() : name->string();
  };
  for (const JsonNode& node : rows)
    if (aggregate_of(node) == "median") with_median.insert(run_name(node));
  Measurements result;
  for (const JsonNode& node : rows) {
    const std::string name = run_name(node);
    if (const auto error = node.find("error_occurred"); error && error->boolean()) {
      const auto message = node.find("error_message");
      // What a machine lacks (a second GPU) is said by the bench and skipped here; a wrong result is no
      // measurement.
      if (message && message->string().starts_with("skipped:")) continue;
      node.fail("the benchmark " + in_quotes(name, 100) +
                " failed: " + (message ? one_line(message->string()) : "no message"));
    }
    const std::string aggregate = aggregate_of(node);
    if (with_median.contains(name) ? aggregate != "median" : !aggregate.empty()) continue;
    const std::size_t before = result.size();
    add_bench_row(BenchRow(node, bench_name(name)), seconds_of(node),
                  {node.place(), gpu, facts.source.empty() ? file : facts.source}, result);
    if (result.size() == before && !name.starts_with("latency/") && !name.starts_with("overlap/"))
      node.fail("the benchmark " + in_quotes(name, 100),
                "one of calibration/bench (all_gather, gemm, grouped_gemm, kernel, ...)");
  }
  if (result.size() == 0) root.fail("no usable benchmark", "results of calibration/bench");
  return result;
}

bool is_echo_table(std::string_view text) { return text.starts_with("size_bytes,size_str,count_elements,"); }

Measurements import_echo(std::string_view text, const std::string& file, const ImportFacts& facts) {
  const CsvTable table = CsvTable::parse(text, file);
  const std::string name = std::filesystem::path(file).filename().string();
  const bool send = name.find("sendrecv") != std::string::npos;
  int gpus = 0, nodes = facts.nodes;
  const auto number_before = [&](std::string_view what) {
    const std::size_t at = name.find(what);
    if (at == std::string::npos) return 0;
    std::size_t begin = at;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1]))) --begin;
    return static_cast<int>(parse_int(std::string_view(name).substr(begin, at - begin)).value_or(0));
  };
  if (send) {
    gpus = 2;
    if (nodes == 0) nodes = name.starts_with("multi_node") ? 2 : 1;
  } else {
    gpus = number_before("gpu");
    if (nodes == 0) nodes = std::max(number_before("node"), 1);
  }
  const SourcePlace place{file, 0, 0};
  if (gpus < 2 || gpus > 1 << 20 || nodes < 1 || gpus % nodes != 0)
    throw InputError(place, "the file name " + in_quotes(name),
                     "allreduce_<N>gpu_[<M>node_]*.csv or (single|multi)_node_sendrecv_*.csv");
  if (facts.gpu.empty()) throw InputError(place, "a table without a GPU name", "--gpu");
  Measurements result;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    CollectiveRow row;
    row.op = send ? CollectiveOp::send_recv : CollectiveOp::all_reduce;
    row.bytes = table.number(i, "size_bytes", 1, 1e15);
    const double count = table.number(i, "count_elements", 1, 1e15);
    const int element = element_size(table.text(i, "type"));
    if (element == 0 || row.bytes != count * element)
      throw InputError(table.place(i),
                       "size " + table.text(i, "size_bytes") + " with count " +
                           table.text(i, "count_elements") + " of " + one_line(table.text(i, "type")),
                       "size = count x element size");
    const double seconds = table.number(i, "time_us", 1e-3, 1e10) * 1e-6;
    const double written = table.number(i, "algbw_gbps", 0, 1e9);
    // Send/recv times are of a round trip and its rate is in GiB/s; all_reduce rates are in Gbit/s.
    const double computed =
        send ? 2 * row.bytes / seconds / (1024.0 * 1024 * 1024) : row.bytes * 8 / seconds * 1e-9;
    if (std::abs(written / computed - 1) > 0.02)
      throw InputError(table.place(i), "algbw_gbps " + table.text(i, "algbw_gbps"),
                       one_line(std::to_string(computed)) +
                           (send ? " (2 x bytes / time in GiB/s)" : " (bits / time in Gbit/s)"));
    row.seconds = send ? seconds / 2 : seconds;
    row.nodes = nodes;
    row.gpus_per_node = gpus / nodes;
    row.datatype = table.text(i, "type");
    row.library = "NCCL 2.18.6 (PyTorch, host-timed)";
    row.origin = {table.place(i), facts.gpu,
                  facts.source.empty() ? "fwyc0573/moe_mg (Echo) " + name : facts.source};
    result.collectives.push_back(std::move(row));
  }
  return result;
}

}  // namespace moesim::calibration
