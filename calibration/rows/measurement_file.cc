#include <algorithm>
#include <concepts>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/text.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"

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

// Matches a row that is read or written.
template <class Row, class Of>
concept Is = std::same_as<std::remove_const_t<Row>, Of>;

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
