#include "calibration/rows/measurement_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/text.h"
#include "calibration/rows/devices.h"

namespace moesim::calibration {
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
  void optional_text(const char* key, const std::string& value) {
    if (!value.empty()) out_[key] = value;
  }
  template <class Int>
  void integer(const char* key, const Int& value, std::int64_t, std::int64_t) {
    out_[key] = value;
  }
  void number(const char* key, const double& value, double, double) { out_[key] = value; }
  void flag(const char* key, const bool& value) { out_[key] = value; }

 private:
  Json& out_;
};

class Reader {
 public:
  explicit Reader(JsonObject& in) : in_(in) {}
  void text(const char* key, std::string& value) { value = in_.string(key, ""); }
  void optional_text(const char* key, std::string& value) { text(key, value); }
  template <class Int>
  void integer(const char* key, Int& value, std::int64_t low, std::int64_t high) {
    value = static_cast<Int>(in_.at(key).integer(low, high));
  }
  void number(const char* key, double& value, double low, double high) {
    value = in_.at(key).number(low, high);
  }
  void flag(const char* key, bool& value) { value = in_.boolean(key, false); }

 private:
  JsonObject& in_;
};

template <class Visitor, class Row>
void visit_origin(Visitor& v, Row& row) {
  v.text("gpu", row.origin.gpu);
  v.text("source", row.origin.source);
  v.optional_text("network", row.origin.network);
}

// Rows of collectives name their operation as the simulator does.
template <class Visitor, class Row>
void visit_collective(Visitor& v, Row& row, std::string& op) {
  visit_origin(v, row);
  v.text("op", op);
  v.integer("nodes", row.nodes, 1, 1 << 24);
  v.integer("gpus_per_node", row.gpus_per_node, 1, 1024);
  v.number("bytes", row.bytes, 1, kMostBytes);
  v.number("seconds", row.seconds, 1e-9, kMostSeconds);
  v.text("datatype", row.datatype);
  v.text("library", row.library);
}

template <class Visitor, class Row>
void visit_gemm(Visitor& v, Row& row) {
  visit_origin(v, row);
  v.text("dtype", row.dtype);
  v.text("kernel", row.kernel);
  v.number("m", row.m, 1, 1e12);
  v.number("n", row.n, 1, 1e12);
  v.number("k", row.k, 1, 1e12);
  v.number("seconds", row.seconds, 1e-9, kMostSeconds);
  v.flag("sustained", row.sustained);
}

template <class Visitor, class Row>
void visit_grouped(Visitor& v, Row& row) {
  visit_origin(v, row);
  v.text("kind", row.kind);
  v.text("dtype", row.dtype);
  v.integer("groups", row.groups, 1, 1 << 20);
  v.number("m_per_group", row.m_per_group, 1, 1e12);
  v.number("n", row.n, 1, 1e12);
  v.number("k", row.k, 1, 1e12);
  v.number("seconds", row.seconds, 1e-9, kMostSeconds);
}

template <class Visitor, class Row>
void visit_ffn(Visitor& v, Row& row) {
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

template <class Visitor, class Row>
void visit_dispatch(Visitor& v, Row& row) {
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

template <class Visitor, class Row>
void visit_kernel(Visitor& v, Row& row) {
  visit_origin(v, row);
  v.text("kernel", row.kernel);
  v.number("bytes", row.bytes, 0, kMostBytes);
  v.number("seconds", row.seconds, 1e-9, kMostSeconds);
  v.integer("launches", row.launches, 1, 1 << 20);
}

template <class Visitor, class Row>
void visit_machine(Visitor& v, Row& row) {
  visit_origin(v, row);
  v.text("what", row.what);
  v.number("value", row.value, 1e-9, kMostSeconds);
}

sim::CollectiveOp op_named(const JsonNode& node) {
  const std::string name = node.string();
  std::vector<std::string> known;
  for (int i = 0; i <= static_cast<int>(sim::CollectiveOp::barrier); ++i) {
    const auto op = static_cast<sim::CollectiveOp>(i);
    if (sim::name(op) == name) return op;
    known.emplace_back(sim::name(op));
  }
  node.fail(node.describe(), join(known, ", "));
}

template <class Row, class Visit>
void read_list(JsonObject& file, const char* key, std::vector<Row>& rows, const Visit& visit) {
  const auto list = file.find(key);
  if (!list) return;
  for (const JsonNode& node : list->items()) {
    JsonObject object(node);
    Row row;
    row.origin.place = node.place();
    Reader reader(object);
    visit(reader, object, row);
    object.finish();
    check_network(row.origin);
    rows.push_back(std::move(row));
  }
}

template <class Row, class Visit>
void write_list(Json& file, const char* key, const std::vector<Row>& rows, const Visit& visit) {
  if (rows.empty()) return;
  Json list = Json::array();
  for (const Row& row : rows) {
    Json object;
    Writer writer(object);
    visit(writer, row);
    list.push_back(std::move(object));
  }
  file[key] = std::move(list);
}

}  // namespace

Measurements parse_measurement_file(std::string_view json, const std::string& file) {
  JsonObject object(JsonNode::parse(json, file));
  const JsonNode schema = object.at("schema");
  if (schema.string() != kSchema) schema.fail(schema.describe(), "'" + std::string(kSchema) + "'");
  object.string("provenance", "");
  Measurements result;
  const auto read_collective = [](Reader& reader, JsonObject& in, CollectiveRow& row) {
    std::string op;
    visit_collective(reader, row, op);
    row.op = op_named(in.at("op"));
  };
  read_list(object, "collectives", result.collectives, read_collective);
  read_list(object, "exposed_calls", result.exposed_calls, read_collective);
  read_list(object, "gemms", result.gemms, [](Reader& r, JsonObject&, GemmRow& row) { visit_gemm(r, row); });
  read_list(object, "grouped_gemms", result.grouped,
            [](Reader& r, JsonObject&, GroupedGemmRow& row) { visit_grouped(r, row); });
  read_list(object, "expert_ffns", result.ffns,
            [](Reader& r, JsonObject&, FfnRow& row) { visit_ffn(r, row); });
  read_list(object, "dispatches", result.dispatches,
            [](Reader& r, JsonObject&, DispatchRow& row) { visit_dispatch(r, row); });
  read_list(object, "kernels", result.kernels,
            [](Reader& r, JsonObject&, Measurements::KernelRow& row) { visit_kernel(r, row); });
  read_list(object, "machine", result.machine, [](Reader& r, JsonObject& in, Measurements::MachineRow& row) {
    visit_machine(r, row);
    const auto& known = Measurements::machine_numbers();
    if (std::find(known.begin(), known.end(), row.what) == known.end())
      in.at("what").fail(in.at("what").describe(), "one of " + join(known, ", "));
  });
  object.finish();
  use_table_names(result);
  return result;
}

std::string to_json(const Measurements& measurements, const std::string& provenance) {
  Json file;
  file["schema"] = kSchema;
  file["provenance"] = provenance;
  const auto write_collective = [](Writer& w, const CollectiveRow& row) {
    std::string op(sim::name(row.op));
    visit_collective(w, row, op);
  };
  write_list(file, "collectives", measurements.collectives, write_collective);
  write_list(file, "exposed_calls", measurements.exposed_calls, write_collective);
  write_list(file, "gemms", measurements.gemms, [](Writer& w, const GemmRow& row) { visit_gemm(w, row); });
  write_list(file, "grouped_gemms", measurements.grouped,
             [](Writer& w, const GroupedGemmRow& row) { visit_grouped(w, row); });
  write_list(file, "expert_ffns", measurements.ffns, [](Writer& w, const FfnRow& row) { visit_ffn(w, row); });
  write_list(file, "dispatches", measurements.dispatches,
             [](Writer& w, const DispatchRow& row) { visit_dispatch(w, row); });
  write_list(file, "kernels", measurements.kernels,
             [](Writer& w, const Measurements::KernelRow& row) { visit_kernel(w, row); });
  write_list(file, "machine", measurements.machine,
             [](Writer& w, const Measurements::MachineRow& row) { visit_machine(w, row); });
  return json_text(file, 1);
}

}  // namespace moesim::calibration
