#include "calibration/rows/measurements.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/text.h"
#include "calibration/rows/collective_table.h"
#include "calibration/rows/csv_table.h"
#include "calibration/rows/devices.h"
#include "models/hardware/network.h"

namespace moesim::calibration {

double wire_share(sim::CollectiveOp op, double ranks) {
  switch (op) {
    case sim::CollectiveOp::all_gather:
    case sim::CollectiveOp::reduce_scatter:
    case sim::CollectiveOp::all_to_all:
      return (ranks - 1) / ranks;
    case sim::CollectiveOp::all_reduce:
      return 2 * (ranks - 1) / ranks;
    default:
      return 1;
  }
}

void check_network(const Origin& origin) {
  std::vector<std::string> known = models::NetworkProfile::names();
  const auto& kinds = models::NetworkProfile::kinds();
  known.insert(known.end(), kinds.begin(), kinds.end());
  if (!origin.network.empty() && std::find(known.begin(), known.end(), origin.network) == known.end())
    throw InputError(origin.place, "network " + in_quotes(origin.network),
                     "nothing or one of " + join(known, ", ") + did_you_mean(origin.network, known));
}

namespace {

constexpr double kMostMicroseconds = 1e10;
constexpr long long kMostRanks = 1 << 24;
constexpr long long kMostExtent = 1LL << 32;

Origin origin_of(const CsvTable& table, std::size_t row) {
  Origin origin{table.place(row), table.text(row, "gpu"), table.text(row, "source"), ""};
  if (!table.has("network")) return origin;
  origin.network = table.text(row, "network");
  check_network(origin);
  return origin;
}

// A derived column that disagrees with its inputs reveals a wrong unit.
void check_ratio(const CsvTable& table, std::size_t row, std::string_view column, double written,
                 double computed, double tolerance) {
  if (written <= 0 || computed <= 0) return;
  if (std::abs(written / computed - 1) > tolerance && std::abs(written - computed) > 0.06)
    throw InputError(table.place(row), std::string(column) + " " + table.text(row, column),
                     one_line(std::to_string(computed)) + ", as the other columns say (wrong unit?)");
}

sim::CollectiveOp collective_named(const CsvTable& table, std::size_t row) {
  const std::string& name = table.text(row, "op");
  if (const auto op = op_named(name)) return *op;
  throw InputError(table.place(row), "the operation " + in_quotes(name),
                   "all_gather, reduce_scatter, alltoall, all_reduce, sendrecv or broadcast");
}

std::string_view expected_meaning(sim::CollectiveOp op) {
  switch (op) {
    case sim::CollectiveOp::all_gather:
      return "recv_total_per_rank";
    case sim::CollectiveOp::reduce_scatter:
    case sim::CollectiveOp::all_to_all:
      return "send_total_per_rank";
    default:
      return "buffer_per_rank";
  }
}

Measurements read_collectives(const CsvTable& table) {
  Measurements result;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    CollectiveRow row;
    row.origin = origin_of(table, i);
    row.op = collective_named(table, i);
    row.nodes = static_cast<int>(table.integer(i, "nodes", 1, kMostRanks));
    row.gpus_per_node = static_cast<int>(table.integer(i, "gpus_per_node", 1, 1024));
    row.bytes = table.number(i, "bytes", 1, kMostBytes);
    // A message is a buffer, and so is what an exchange sends: the words mean the same bytes.
    const std::string meaning =
        table.has("bytes_meaning") ? table.text(i, "bytes_meaning") : std::string(expected_meaning(row.op));
    const bool same = (row.op == sim::CollectiveOp::send_recv && meaning == "message_per_rank") ||
                      (row.op == sim::CollectiveOp::all_to_all && meaning == "buffer_per_rank");
    if (!same && meaning != expected_meaning(row.op))
      throw InputError(table.place(i), "bytes_meaning " + in_quotes(meaning),
                       std::string(expected_meaning(row.op)));
    const double us = table.number(i, "time_us", 1e-3, kMostMicroseconds);
    row.seconds = us * 1e-6;
    row.datatype = table.text(i, "datatype");
    row.library = table.text(i, "library_version");
    if (const auto algbw = table.optional_number(i, "algbw_GBps", 0, 1e6))
      check_ratio(table, i, "algbw_GBps", *algbw, row.bytes / row.seconds * 1e-9, 0.08);
    if (const auto busbw = table.optional_number(i, "busbw_GBps", 0, 1e6))
      check_ratio(table, i, "busbw_GBps", *busbw,
                  wire_share(row.op, row.ranks()) * row.bytes / row.seconds * 1e-9, 0.08);
    if (row.ranks() > 1) result.collectives.push_back(std::move(row));
  }
  return result;
}

Measurements read_gemms(const CsvTable& table) {
  Measurements result;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    GemmRow row;
    row.origin = origin_of(table, i);
    row.dtype = table.text(i, "dtype");
    row.kernel = table.text(i, "kernel");
    row.m = static_cast<double>(table.integer(i, "m", 1, kMostExtent));
    row.n = static_cast<double>(table.integer(i, "n", 1, kMostExtent));
    row.k = static_cast<double>(table.integer(i, "k", 1, kMostExtent));
    row.seconds = table.number(i, "time_us", 1e-3, kMostMicroseconds) * 1e-6;
    row.sustained = row.kernel.find("sustained") != std::string::npos;
    if (const auto tflops = table.optional_number(i, "tflops", 0, 1e6))
      check_ratio(table, i, "tflops", *tflops, 2 * row.m * row.n * row.k / row.seconds * 1e-12, 0.2);
    result.gemms.push_back(std::move(row));
  }
  return result;
}

Measurements read_grouped(const CsvTable& table) {
  Measurements result;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    GroupedGemmRow row;
    row.origin = origin_of(table, i);
    row.kind = table.text(i, "kind");
    row.dtype = table.text(i, "dtype");
    row.groups = static_cast<int>(table.integer(i, "groups", 1, 1 << 20));
    row.m_per_group = static_cast<double>(table.integer(i, "m_per_group", 1, kMostExtent));
    row.n = static_cast<double>(table.integer(i, "n", 1, kMostExtent));
    row.k = static_cast<double>(table.integer(i, "k", 1, kMostExtent));
    row.seconds = table.number(i, "time_us", 1e-3, kMostMicroseconds) * 1e-6;
    if (const auto tflops = table.optional_number(i, "tflops", 0, 1e6))
      check_ratio(table, i, "tflops", *tflops,
                  2 * row.groups * row.m_per_group * row.n * row.k / row.seconds * 1e-12, 0.2);
    result.grouped.push_back(std::move(row));
  }
  return result;
}

// The EP rank with most rows has at least the mean: a time below that arithmetic is a wrong unit.
void check_possible(const CsvTable& table, std::size_t i, const FfnRow& row) {
  constexpr double kFastestFlops = 2e16;  // beyond any GPU of the tables, 4-bit elements included
  const double rows = static_cast<double>(row.tokens) * row.topk / row.ep;
  const double least = 6 * rows * row.hidden * row.inter / row.tp / kFastestFlops;
  if (row.seconds < least)
    throw InputError(
        table.place(i), "latency_us " + table.text(i, "latency_us"),
        one_line(std::to_string(least * 1e6)) + " or more, the arithmetic at 20 PFLOP/s (wrong unit?)");
}

Measurements read_ffns(const CsvTable& table) {
  Measurements result;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    FfnRow row;
    row.origin = origin_of(table, i);
    row.framework = table.text(i, "framework");
    row.kernel = table.text(i, "kernel");
    row.dtype = table.text(i, "dtype");
    row.routing = table.text(i, "routing");
    row.tokens = table.integer(i, "num_tokens", 1, 1LL << 40);
    row.hidden = static_cast<int>(table.integer(i, "hidden", 1, 1 << 24));
    row.inter = static_cast<int>(table.integer(i, "moe_inter", 1, 1 << 24));
    row.topk = static_cast<int>(table.integer(i, "topk", 1, 1 << 20));
    row.experts = static_cast<int>(table.integer(i, "experts", 1, 1 << 20));
    row.tp = static_cast<int>(table.integer(i, "tp", 1, 1 << 20));
    row.ep = static_cast<int>(table.integer(i, "ep", 1, 1 << 20));
    if (row.topk > row.experts || row.experts % row.ep != 0)
      throw InputError(table.place(i),
                       std::to_string(row.experts) + " experts with top-k " + std::to_string(row.topk) +
                           " on " + std::to_string(row.ep) + " ranks",
                       "ranks that divide the experts, top-k at most the experts");
    row.seconds = table.number(i, "latency_us", 1e-3, kMostMicroseconds) * 1e-6;
    check_possible(table, i, row);
    result.ffns.push_back(std::move(row));
  }
  return result;
}

// nccl-tests rows in tables of dispatch kernels: the rate is their busbw.
std::optional<CollectiveRow> exchange_of(const DispatchRow& row) {
  constexpr double kLargest = 8.0 * (1u << 30);  // "the largest rate over sizes" is far beyond every ramp
  const bool peak = row.kernel == "nccl_alltoall_peak";
  if ((row.kernel != "nccl_alltoall_reference" && !peak) || row.bandwidth <= 0 || row.ep < 2)
    return std::nullopt;
  CollectiveRow c;
  c.origin = row.origin;
  c.op = sim::CollectiveOp::all_to_all;
  c.nodes = row.nodes;
  c.gpus_per_node = row.ep / std::max(1, row.nodes);
  c.bytes = peak ? kLargest : row.tokens * row.hidden * 2;
  c.seconds = c.bytes * (row.ep - 1) / row.ep / row.bandwidth;
  if (c.bytes <= 0) return std::nullopt;
  return c;
}

// Where a data set suspects a part of a run (the large messages of one kernel on so many nodes), the rest has
// the same seconds per token: the whole run is suspect.
void suspect_whole_runs(std::vector<DispatchRow>& rows) {
  constexpr const char* kWord = "suspect";
  const auto run = [](const DispatchRow& row) {
    return std::tuple(row.origin.source, row.origin.gpu, row.kernel, row.ep, row.nodes);
  };
  std::set<decltype(run(rows.front()))> runs;
  for (const DispatchRow& row : rows)
    if (row.note.find(kWord) != std::string::npos) runs.insert(run(row));
  for (DispatchRow& row : rows)
    if (row.note.find(kWord) == std::string::npos && runs.contains(run(row)))
      row.note += std::string(row.note.empty() ? "" : "; ") + kWord + ": of a run with rows that are";
}

// Maps names of one kernel: a tuner names it by the place of its ranks, a fork by its transport.
std::string kernel_named(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"mori_ep_intranode_", "mori_ep_normal_"},
      {"mori_ep_internodev1_", "mori_ep_normal_"},
      {"mori_ep_dispatch", "mori_ep_normal_dispatch"},
      {"mori_ep_combine", "mori_ep_normal_combine"},
      {"uccl_ep_cxi_", "uccl_ep_"}};
  for (const auto& [other, usual] : kNames)
    if (name.starts_with(other)) return std::string(usual) + name.substr(other.size());
  return name;
}

Measurements read_dispatches(const CsvTable& table) {
  Measurements result;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    DispatchRow row;
    row.origin = origin_of(table, i);
    row.kernel = kernel_named(table.text(i, "kernel"));
    row.dtype = table.text(i, "dtype");
    row.note = table.text(i, "note");
    row.ep = static_cast<int>(table.optional_number(i, "ep", 1, kMostRanks).value_or(0));
    row.nodes = static_cast<int>(table.optional_number(i, "nodes", 1, kMostRanks).value_or(1));
    row.tokens = table.optional_number(i, "tokens", 0, 1e12).value_or(0);
    row.hidden = static_cast<int>(table.optional_number(i, "hidden", 1, 1 << 24).value_or(0));
    row.topk = static_cast<int>(table.optional_number(i, "topk", 1, 1 << 20).value_or(0));
    row.topk_groups = table.optional_number(i, "topk_groups", 0, 1 << 20).value_or(0);
    row.bandwidth = table.optional_number(i, "bottleneck_GBps", 0, 1e6).value_or(0) * 1e9;
    row.seconds = table.optional_number(i, "latency_us", 1e-3, kMostMicroseconds).value_or(0) * 1e-6;
    // "256-288" stands for a number that the source leaves open.
    if (!table.has("experts") || table.text(i, "experts").find('-') == std::string::npos)
      row.experts = static_cast<int>(table.optional_number(i, "experts", 1, 1 << 20).value_or(0));
    // No kernel takes less than one launch, nor moves a token's row faster than caches do.
    constexpr double kLaunch = 1e-6, kFastestBytes = 50e12;
    const double least = std::max(kLaunch, row.tokens * row.hidden / kFastestBytes);
    if (row.seconds > 0 && row.seconds < least)
      throw InputError(table.place(i), "latency_us " + table.text(i, "latency_us"),
                       one_line(std::to_string(least * 1e6)) + " or more (wrong unit?)");
    row.sms = table.optional_number(i, "sms", 0, 1e4).value_or(0);
    // MoRI's tuner prints thread blocks, and for each size those of its best run.
    if (row.kernel.starts_with("mori_ep_")) row.sms = 0;
    if (auto exchange = exchange_of(row))
      result.collectives.push_back(*std::move(exchange));
    else
      result.dispatches.push_back(std::move(row));
  }
  suspect_whole_runs(result.dispatches);
  return result;
}

}  // namespace

const std::vector<std::string>& Measurements::machine_numbers() {
  static const std::vector<std::string> names{"launch", "host_sync", "smallest_kernel", "d2h_copy",
                                              "compute_under_communication"};
  return names;
}

std::size_t Measurements::size() const {
  std::size_t rows = 0;
  each_list([&](const auto& list) { rows += list.size(); });
  return rows;
}

void Measurements::append(Measurements other) {
  named_lists(*this, [&](std::string_view name, auto& rows) {
    named_lists(other, [&](std::string_view theirs, auto& more) {
      if constexpr (std::is_same_v<decltype(rows), decltype(more)>)
        if (name == theirs) std::ranges::move(more, std::back_inserter(rows));
    });
  });
}

namespace {

Measurements rows_of(const CsvTable& table, const std::string& file) {
  if (table.has("busbw_GBps") && table.has("gpus_per_node")) return read_collectives(table);
  if (table.has("m_per_group")) return read_grouped(table);
  if (table.has("num_tokens") && table.has("moe_inter")) return read_ffns(table);
  if (table.has("bottleneck_GBps")) return read_dispatches(table);
  if (table.has("m") && table.has("n") && table.has("k") && table.has("time_us")) return read_gemms(table);
  throw InputError(
      {file, 0, 0}, "the columns " + in_quotes(join(table.columns(), ","), 100),
      "a table of collectives, dense or grouped GEMMs, expert FFNs, or dispatch and combine calls");
}

}  // namespace

Measurements read_table(std::string_view text, const std::string& file) {
  Measurements rows = rows_of(CsvTable::parse(text, file), file);
  use_table_names(rows);
  return rows;
}

Measurements read_measurements(const std::filesystem::path& path) {
  const std::string text = read_file(path, std::uint64_t{1} << 30);
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') {
    // The output of moesim-bench-host and moesim-bench-cuda is Google Benchmark's.
    if (text.find("\"moesim.measurements/") == std::string::npos &&
        text.find("\"benchmarks\"") != std::string::npos)
      return import_google_benchmark(text, path.string(), {}).rows;
    return parse_measurement_file(text, path.string());
  }
  return read_table(text, path.string());
}

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema = "moesim.measurements/1";
constexpr double kMostSeconds = 1e5;
constexpr std::int64_t kMostCount = std::int64_t{1} << 40;

// Converts one list of rows to and from JSON: `Visit` is called with every field of a row in file order,
// either to write or to read it, so that both always agree.
class Writer {
 public:
  explicit Writer(Json& out) : out_(out) {}
  void text(const char* key, const std::string& value) { out_[key] = value; }
  void one_of(const char* key, const std::string& value, const std::vector<std::string>&) {
    text(key, value);
  }
  void optional_text(const char* key, const std::string& value) {
    if (!value.empty()) out_[key] = value;
  }
  template <class Int>
  void integer(const char* key, const Int& value, std::int64_t, std::int64_t) {
    out_[key] = value;
  }
  void number(const char* key, const double& value, double, double) { out_[key] = value; }
  void flag(const char* key, const bool& value) { out_[key] = value; }
  void op(const char* key, const sim::CollectiveOp& value) { out_[key] = sim::name(value); }

 private:
  Json& out_;
};

class Reader {
 public:
  explicit Reader(JsonObject& in) : in_(in) {}
  void text(const char* key, std::string& value) { value = in_.string(key, ""); }
  void one_of(const char* key, std::string& value, const std::vector<std::string>& known) {
    text(key, value);
    if (std::ranges::find(known, value) == known.end())
      in_.at(key).fail(in_.at(key).describe(), "one of " + join(known, ", "));
  }
  void optional_text(const char* key, std::string& value) { text(key, value); }
  template <class Int>
  void integer(const char* key, Int& value, std::int64_t low, std::int64_t high) {
    value = static_cast<Int>(in_.at(key).integer(low, high));
  }
  void number(const char* key, double& value, double low, double high) {
    value = in_.at(key).number(low, high);
  }
  void flag(const char* key, bool& value) { value = in_.boolean(key, false); }
  // Rows of collectives name their operation as the simulator does.
  void op(const char* key, sim::CollectiveOp& value) {
    const JsonNode node = in_.at(key);
    std::vector<std::string> known;
    for (int i = 0; i <= static_cast<int>(sim::CollectiveOp::barrier); ++i) {
      value = static_cast<sim::CollectiveOp>(i);
      if (sim::name(value) == node.string()) return;
      known.emplace_back(sim::name(value));
    }
    node.fail(node.describe(), join(known, ", "));
  }

 private:
  JsonObject& in_;
};

template <class Visitor, class Row>
void visit_origin(Visitor& v, Row& row) {
  v.text("gpu", row.origin.gpu);
  v.text("source", row.origin.source);
  v.optional_text("network", row.origin.network);
}

template <class Visitor, Is<CollectiveRow> Row>
void visit(Visitor& v, Row& row) {
  visit_origin(v, row);
  v.op("op", row.op);
  v.integer("nodes", row.nodes, 1, 1 << 24);
  v.integer("gpus_per_node", row.gpus_per_node, 1, 1024);
  v.number("bytes", row.bytes, 1, kMostBytes);
  v.number("seconds", row.seconds, 1e-9, kMostSeconds);
  v.text("datatype", row.datatype);
  v.text("library", row.library);
  v.optional_text("algorithm", row.algorithm);
}

template <class Visitor, Is<GemmRow> Row>
void visit(Visitor& v, Row& row) {
  visit_origin(v, row);
  v.text("dtype", row.dtype);
  v.text("kernel", row.kernel);
  v.number("m", row.m, 1, 1e12);
  v.number("n", row.n, 1, 1e12);
  v.number("k", row.k, 1, 1e12);
  v.number("seconds", row.seconds, 1e-9, kMostSeconds);
  v.flag("sustained", row.sustained);
}

template <class Visitor, Is<GroupedGemmRow> Row>
void visit(Visitor& v, Row& row) {
  visit_origin(v, row);
  v.text("kind", row.kind);
  v.text("dtype", row.dtype);
  v.integer("groups", row.groups, 1, 1 << 20);
  v.number("m_per_group", row.m_per_group, 1, 1e12);
  v.number("n", row.n, 1, 1e12);
  v.number("k", row.k, 1, 1e12);
  v.number("seconds", row.seconds, 1e-9, kMostSeconds);
}

template <class Visitor, Is<FfnRow> Row>
void visit(Visitor& v, Row& row) {
  visit_origin(v, row);
  v.text("framework", row.framework);
  v.text("kernel", row.kernel);
  v.text("dtype", row.dtype);
  v.text("routing", row.routing);
  v.integer("tokens", row.tokens, 1, kMostCount);
  v.integer("hidden", row.hidden, 1, 1 << 24);
  v.integer("inter", row.inter, 1, 1 << 24);
  v.integer("topk", row.topk, 1, 1 << 20);
  v.integer("experts", row.experts, 1, 1 << 20);
  v.integer("tp", row.tp, 1, 1 << 20);
  v.integer("ep", row.ep, 1, 1 << 20);
  v.number("seconds", row.seconds, 1e-9, kMostSeconds);
}

template <class Visitor, Is<DispatchRow> Row>
void visit(Visitor& v, Row& row) {
  visit_origin(v, row);
  v.text("kernel", row.kernel);
  v.text("dtype", row.dtype);
  v.text("note", row.note);
  v.integer("ep", row.ep, 0, 1 << 24);
  v.integer("nodes", row.nodes, 1, 1 << 24);
  v.number("tokens", row.tokens, 0, 1e12);
  v.integer("hidden", row.hidden, 0, 1 << 24);
  v.integer("topk", row.topk, 0, 1 << 20);
  v.number("topk_groups", row.topk_groups, 0, 1 << 20);
  v.number("bandwidth", row.bandwidth, 0, 1e15);
  v.number("seconds", row.seconds, 0, kMostSeconds);
  v.integer("experts", row.experts, 0, 1 << 20);
  v.number("sms", row.sms, 0, 1e5);
}

template <class Visitor, Is<Measurements::KernelRow> Row>
void visit(Visitor& v, Row& row) {
  visit_origin(v, row);
  v.text("kernel", row.kernel);
  v.number("bytes", row.bytes, 0, kMostBytes);
  v.number("seconds", row.seconds, 1e-9, kMostSeconds);
  v.integer("launches", row.launches, 1, 1 << 20);
}

template <class Visitor, Is<Measurements::MachineRow> Row>
void visit(Visitor& v, Row& row) {
  visit_origin(v, row);
  v.one_of("what", row.what, Measurements::machine_numbers());
  v.number("value", row.value, 1e-9, kMostSeconds);
}

}  // namespace

Measurements parse_measurement_file(std::string_view json, const std::string& file) {
  JsonObject object(JsonNode::parse(json, file));
  const JsonNode schema = object.at("schema");
  if (schema.string() != kSchema) schema.fail(schema.describe(), "'" + std::string(kSchema) + "'");
  object.string("provenance", "");
  Measurements result;
  Measurements::named_lists(result, [&]<class Row>(const char* key, std::vector<Row>& rows) {
    const auto list = object.find(key);
    if (!list) return;
    for (const JsonNode& node : list->items()) {
      JsonObject fields(node);
      Row row;
      row.origin.place = node.place();
      Reader reader(fields);
      visit(reader, row);
      fields.finish();
      check_network(row.origin);
      rows.push_back(std::move(row));
    }
  });
  object.finish();
  use_table_names(result);
  return result;
}

std::string to_json(const Measurements& measurements, const std::string& provenance) {
  Json file;
  file["schema"] = kSchema;
  file["provenance"] = provenance;
  Measurements::named_lists(measurements, [&](const char* key, const auto& rows) {
    for (const auto& row : rows) {
      Writer writer(file[key].emplace_back());
      visit(writer, row);
    }
  });
  return json_text(file, 1);
}

}  // namespace moesim::calibration
