// Fields of a machine's faults, of its rent, and of a machine that is bought.
#include <fmt/format.h>

#include "base/input_error.h"
#include "models/hardware/cluster.h"
#include "models/hardware/rental_list.h"
#include "models/workload/field_makers.h"

namespace moesim::models {

namespace fields {

namespace {

using F = Faults;
using O = Ownership;
constexpr auto kFaults = &Scenario::faults;
constexpr auto kOwnership = &Scenario::ownership;
constexpr double kMostGpu = 2147483648.0;  // 2^31

template <class Item>
constexpr const char* key_of() {
  return std::is_same_v<Item, F::SlowGpu> ? "factor" : "bandwidth";
}

// A list of GPUs with a number each, {"gpu": 3, "factor": 1.5}; low and high are bounds of that number.
template <class Item, std::vector<Item> F::*List, double Item::*Value>
Field per_gpu(std::string_view path, std::string_view help, Field more) {
  more.form = fmt::format(
      R"({{"type": "array", "items": {{"type": "object", "required": ["gpu", "{0}"], "properties": {{
        "gpu": {{"type": "integer", "minimum": 0, "maximum": {1}}},
        "{0}": {{"type": "number", "minimum": {2}, "maximum": {3}}}}}, "additionalProperties": false}}}})",
      key_of<Item>(), kMostGpu, more.low, more.high);
  more.read = [](const Field& field, Scenario& s, const JsonNode& value) {
    if (!value.is_array()) value.fail(value.describe(), "an array of objects");
    std::vector<Item>& list = s.faults.*List;
    list.clear();
    for (const JsonNode& item : value.items()) {
      JsonObject one(item);
      Item result;
      result.gpu = one.at("gpu").integer(0, static_cast<std::int64_t>(kMostGpu));
      result.*Value = one.at(key_of<Item>()).number(field.low, field.high);
      one.finish();
      list.push_back(result);
    }
  };
  more.value = [](const Field&, const Scenario& s) -> ordered_json {
    ordered_json list;
    for (const Item& item : s.faults.*List)
      list.push_back({{"gpu", item.gpu}, {key_of<Item>(), item.*Value}});
    return list;
  };
  return field<kFaults, List>(FieldType::kObject, path, "", kMachine, help, std::move(more));
}

void read_faults(const Field& field, Scenario& s, const JsonNode& value) {
  set_field(field, s, JsonNode::read(beside(value, value.string())));
}

// The JSON schema of a table of prices; `others`: other forms.
std::string price_form(const PriceTable::Keys& keys, std::string_view others) {
  constexpr std::string_view kPrice =
      R"({"type": ["number", "object"], "exclusiveMinimum": 0, "minProperties": 1,
    "additionalProperties": {"type": "number", "exclusiveMinimum": 0}, "description": "a number, or one per profile"})";
  return fmt::format(
      R"({{"anyOf": [{3}, {{"type": "object", "additionalProperties": false,
        "properties": {{"{0}": {2}, "{1}": {2}, "currency": {{"type": "string"}}}},
        "oneOf": [{{"required": ["{0}"]}}, {{"required": ["{1}"]}}]}}]}})",
      keys.gpu, keys.node, kPrice, others);
}

}  // namespace

std::vector<Field> fault_fields() {
  return {
      field<kFaults>(FieldType::kObject, "faults", "--faults", kMachine,
                     "JSON object or file: {\"slow_gpus\": [{\"gpu\": 3, \"factor\": 1.2}], \"nics\": ..., "
                     "\"jitter\": 0.05, \"gpu_mtbf_hours\": 50000, ...}",
                     {.fallback = "a healthy machine", .read = read_faults, .written = never}),
      per_gpu<F::SlowGpu, &F::slow_gpus, &F::SlowGpu::factor>(
          "faults.slow_gpus", "Slow GPUs, {\"gpu\", \"factor\"} each",
          {.low = 1, .high = 1e6, .unit = "times as long as a usual GPU computes"}),
      per_gpu<F::Port, &F::nvlinks, &F::Port::share>("faults.nvlinks",
                                                     "Degraded NVLink ports, {\"gpu\", \"bandwidth\"} each",
                                                     {.low = 1e-6, .high = 1, .unit = "share that is left"}),
      per_gpu<F::Port, &F::nics, &F::Port::share>(
          "faults.nics", "Degraded or failed (0) network ports, {\"gpu\", \"bandwidth\"} each",
          {.low = 0, .high = 1, .unit = "share that is left"}),
      number<kFaults, &F::jitter>("faults.jitter", "", kMachine, "Relative deviation of kernel times",
                                  {.low = 0, .high = 1, .fallback = "0"}),
      integer<kFaults, &F::seed>(
          "faults.seed", "", kMachine, "Seed of the jitter",
          {.low = 0,
           .high = 0x1p62,
           .valid_if = {{[](const Scenario& s) { return s.gave("faults.jitter"); },
                         "without faults.jitter, expected both"}},
           .said_default = true,
           .written = [](const Field&, const Scenario& s) { return s.faults.jitter > 0; }}),
      number<kFaults, &F::gpu_mtbf_hours>("faults.gpu_mtbf_hours", "", kMachineOfStep,
                                          "Mean time between failures of a GPU",
                                          {.low = 1e-3, .high = 1e12, .unit = "hours"}),
      number<kFaults, &F::checkpoint_s>("faults.checkpoint_s", "", kMachineOfStep,
                                        "Time that training stands still for a checkpoint",
                                        {.low = 1e-3, .high = 1e6, .unit = "seconds", .fallback = "30"}),
      number<kFaults, &F::restart_s>("faults.restart_s", "", kMachineOfStep,
                                     "Time from a failure until training goes on",
                                     {.low = 1e-3, .high = 1e6, .unit = "seconds", .fallback = "300"}),
      number<kFaults, &F::interval_s>("faults.checkpoint_interval_s", "", kMachineOfStep,
                                      "Training between two checkpoints",
                                      {.low = 1e-3, .high = 1e9, .unit = "seconds", .fallback = "the best"}),
  };
}

std::vector<Field> money_fields() {
  constexpr double kMostPrice = 1e9;
  return {
      field<&Scenario::prices>(
          FieldType::kObject, "prices", "--prices", kMachine,
          "Price of a GPU-hour: 2.10, h100=2.10,b200=4, or JSON (or its file): gpu_hour or node_hour, a "
          "number or one per profile; currency",
          {.fallback = "none",
           .form = price_form(PriceTable::kHours, R"({"type": "string"})"),
           .read =
               [](const Field&, Scenario& s, const JsonNode& v) {
                 s.prices = v.is_string() ? parse_prices(beside(v, v.string())) : PriceTable::parse(v);
               },
           .value = [](const Field&, const Scenario& s) { return s.prices.to_json(); }}),
      field<kOwnership, &O::buy>(
          FieldType::kObject, "ownership.buy", "--buy", kMoney,
          "Price of a GPU that is bought, with its share of server, network and storage: 35000, "
          "h100=35000,b200=50000, or JSON (or a file of it): gpu or node, a number or one per profile",
          {.fallback = "rented",
           .form = price_form(O::kKeys, R"({"type": ["number", "string"], "exclusiveMinimum": 0})"),
           .read =
               [](const Field&, Scenario& s, const JsonNode& v) {
                 s.ownership.buy =
                     v.is_string()   ? parse_prices(beside(v, v.string()), O::kKeys)
                     : v.is_object() ? PriceTable::parse(v, O::kKeys)
                                     : parse_prices(fmt::format("{}", v.number(1e-6, kMostPrice)), O::kKeys);
               },
           .value = [](const Field&, const Scenario& s) { return s.ownership.buy.to_json(O::kKeys); }}),
      number<kOwnership, &O::years>("ownership.years", "--years", kMoney, "Service life of a bought machine",
                                    {.low = 0.1, .high = 30, .unit = "years", .fallback = "5"}),
      number<kOwnership, &O::kwh>(
          "ownership.kwh", "--kwh", kMoney,
          "Price of a kWh, of the most that the nodes take: part of a bought machine's cost, and added to a "
          "rent",
          {.low = 0, .high = 1000, .fallback = "0"}),
      number<kOwnership, &O::pue>(
          "ownership.pue", "--pue", kMoney,
          "Power usage effectiveness: energy of the data center over that of its machines",
          {.low = 1, .high = 5, .fallback = "1.56"}),
      number<kOwnership, &O::hosting>(
          "ownership.hosting", "--hosting", kMoney,
          "Price of a month in a data center for a kW of a bought machine's nodes",
          {.low = 0, .high = 1e6, .fallback = "0"}),
      number<kOwnership, &O::idle_share>(
          "ownership.idle_share", "--idle-share", kMoney,
          "Share of a bought machine's years without work; its work pays for it",
          {.low = 0, .high = 0.99, .fallback = "0"}),
  };
}

}  // namespace fields

void Faults::check_against(const Cluster& cluster) const {
  for (const auto& [key, seconds] : {std::pair{"checkpoint_s", checkpoint_s},
                                     {"restart_s", restart_s},
                                     {"checkpoint_interval_s", interval_s}})
    if (gpu_mtbf_hours == 0 && seconds > 0)
      throw InputError(fmt::format(
          "faults.{}: found without gpu_mtbf_hours, expected it with how often a GPU fails", key));
  const auto exists = [&](std::int64_t gpu, const char* key) {
    if (gpu >= cluster.ranks())
      throw InputError(fmt::format("faults.{}: found GPU {}, expected 0 to {} on {}", key, gpu,
                                   cluster.ranks() - 1, cluster.name));
  };
  for (const SlowGpu& g : slow_gpus) exists(g.gpu, "slow_gpus");
  for (const Port& p : nvlinks) exists(p.gpu, "nvlinks");
  for (const Port& p : nics) {
    exists(p.gpu, "nics");
    constexpr double kLeast = 1e-6;
    if (p.share > 0 && p.share < kLeast)
      throw InputError(fmt::format("faults.nics: found {} of the bandwidth of GPU {}, expected 0 or {} to 1",
                                   p.share, p.gpu, kLeast));
    if (p.share == 0 && cluster.nic.ports_per_node < 2)
      throw InputError(
          fmt::format("faults.nics: found a failed port of GPU {}, expected a bandwidth above 0: its node "
                      "has no other port",
                      p.gpu));
  }
}

}  // namespace moesim::models
