#include "calibration/rows/import_logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/json_reader.h"
#include "base/text.h"
#include "calibration/rows/collective_table.h"
#include "calibration/rows/csv_table.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"

namespace moesim::calibration {
namespace {

using sim::CollectiveOp;

// Parses "all_gather/ranks:8/nodes:1/bytes:1048576/dtype:bf16": the first part, and the values by key.
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
  // Returns a number without a fraction.
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
  if (const auto op = op_named(kind); op && kind.size() < 16) {
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
  } else if (kind == "latency" && bench.name().parts.size() > 1) {
    const std::string& what = bench.name().parts[1];
    const auto& known = Measurements::machine_numbers();
    if (std::find(known.begin(), known.end(), what) != known.end())
      out.machine.push_back({origin, what, seconds});
  }
}

}  // namespace

Imported import_nccl_tests(std::string_view text, const std::string& file, const ImportFacts& facts) {
  if (is_inspector_log(text))
    throw InputError({file, 1, 0}, "a log of NCCL Inspector",
                     "one of nccl-tests or rccl-tests ('calibrate import nccl-inspector' reads it)");
  if (is_nccl_json(text)) return read_nccl_json(text, file, facts);
  if (is_rccl_csv(text)) return read_rccl_csv(text, file, facts);
  return read_nccl_log(text, file, facts);
}

Imported import_google_benchmark(std::string_view json, const std::string& file, const ImportFacts& facts) {
  constexpr std::string_view kAlone = "product_alone", kBesideCopies = "product_beside_copies";
  const JsonNode root = JsonNode::parse(json, file);
  if (!root.is_object() || !root.find("benchmarks"))
    root.fail(root.describe(), "Google Benchmark's JSON with 'benchmarks'");
  std::string gpu;
  if (const auto context = root.find("context"))
    if (const auto device = context->find("gpu")) gpu = table_name(device->string());
  if (gpu.empty()) gpu = facts.gpu;
  if (gpu.empty()) root.fail("no device in the context", "--gpu");
  // A median replaces its repetitions.
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
  std::map<std::string, double> beside;
  std::map<std::string, int> left_out;  // reason -> benchmarks
  for (const JsonNode& node : rows) {
    const std::string name = run_name(node);
    if (const auto error = node.find("error_occurred"); error && error->boolean()) {
      const auto message = node.find("error_message");
      // The benchmark reports what a machine lacks (a second GPU), which is skipped here; a wrong result is
      // an error.
      if (message && message->string().starts_with("skipped:")) {
        ++left_out[one_line(message->string())];
        continue;
      }
      node.fail("the benchmark " + in_quotes(name, 100) +
                " failed: " + (message ? one_line(message->string()) : "no message"));
    }
    const std::string aggregate = aggregate_of(node);
    if (with_median.contains(name) ? aggregate != "median" : !aggregate.empty()) continue;
    const std::size_t before = result.size();
    const BenchRow bench(node, bench_name(name));
    // Forecasts price memory, so rows of a warm cache are reported and left out.
    if (const auto cache = bench.name().values.find("cache"); cache != bench.name().values.end()) {
      if (cache->second != "warm" && cache->second != "cold") bench.fail("cache:warm or cache:cold");
      if (cache->second == "warm") {
        ++left_out["a warm cache, where forecasts price memory"];
        continue;
      }
    }
    const double seconds = seconds_of(node);
    add_bench_row(bench, seconds, {node.place(), gpu, facts.source.empty() ? file : facts.source}, result);
    const std::vector<std::string>& parts = bench.name().parts;
    const bool overlap = parts.front() == "overlap";
    if (parts.size() < 2 && (overlap || parts.front() == "latency"))
      node.fail("the benchmark " + in_quotes(name, 100), parts.front() + "/ and what it measures");
    if (overlap) beside[parts[1]] = seconds;
    if (result.size() > before || (overlap && (parts[1] == kAlone || parts[1] == kBesideCopies))) continue;
    if (!overlap && parts.front() != "latency")
      node.fail("the benchmark " + in_quotes(name, 100),
                "one of calibration/bench (all_gather, gemm, grouped_gemm, kernel, ...)");
    ++left_out[fmt::format("{}/{}, which no profile has a number for", parts[0], parts[1])];
  }
  // A product beside copies, against the same product alone.
  const auto alone = beside.find(std::string(kAlone)), copies = beside.find(std::string(kBesideCopies));
  if (alone != beside.end() && copies != beside.end())
    result.machine.push_back({{root.place(), gpu, facts.source.empty() ? file : facts.source},
                              "compute_under_communication",
                              copies->second / alone->second});
  if (result.size() == 0) root.fail("no usable benchmark", "results of calibration/bench");
  Imported imported{std::move(result), {}};
  for (const auto& [reason, count] : left_out)
    imported.notes.push_back(
        fmt::format("{}: {} benchmark{} left out: {}", file, count, count > 1 ? "s" : "", reason));
  return imported;
}

namespace {

bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

// Returns whether the first non-comment line names the columns of one of our tables.
bool is_table(std::string_view text) {
  for (const std::string_view line : split(text, '\n')) {
    if (trim(line).empty() || line.starts_with('#')) continue;
    // "[config] num_tokens=4096" is a line of DeepEP's.
    if (line.find('=') != std::string_view::npos) return false;
    return has_any(line, {"time_us", "latency_us", "bottleneck_GBps", "busbw_GBps", "num_tokens"});
  }
  return false;
}

}  // namespace

Imported import_any(std::string_view text, const std::string& file, const ImportFacts& facts) {
  if (trim(text).starts_with('{')) {
    if (has_any(text, {"\"moesim.measurements/"})) return {parse_measurement_file(text, file), {}};
    if (has_any(text, {"\"benchmarks\""})) return import_google_benchmark(text, file, facts);
  }
  if (is_inspector_log(text))
    return import_inspector(
        {file}, [&](const std::string&) { return std::string(text); }, facts);
  if (is_nccl_json(text) || is_rccl_csv(text)) return import_nccl_tests(text, file, facts);
  if (is_table(text)) return {read_table(text, file), {}};
  if (has_any(text, {"Best dispatch", "Best combine", "HybridEP", "Dispatch bandwidth:", "> Ranks:", "EP:"}))
    return import_deepep(text, file, facts);
  return import_nccl_tests(text, file, facts);
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
