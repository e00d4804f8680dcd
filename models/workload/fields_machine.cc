// Fields of a machine's faults, and of a machine that is bought.
#include <fmt/format.h>

#include "models/hardware/price_text.h"
#include "models/workload/field_makers.h"

namespace moesim::models::fields {

namespace {

template <class Item>
constexpr const char* key_of() {
  return std::is_same_v<Item, Faults::SlowGpu> ? "factor" : "bandwidth";
}

// A list of GPUs with a number each, {"gpu": 3, "factor": 1.5}; low and high are bounds of that number.
template <class Item, std::vector<Item> Faults::*List, double Item::*Value>
Field per_gpu(Field f) {
  f.type = FieldType::kObject;
  f.group = kMachine;
  f.read = [](const Field& field, Scenario& s, const JsonNode& value) {
    if (!value.is_array()) value.fail(value.describe(), "an array of objects");
    std::vector<Item>& list = s.faults.*List;
    list.clear();
    for (const JsonNode& item : value.items()) {
      JsonObject one(item);
      Item result;
      result.gpu = one.at("gpu").integer(0, static_cast<std::int64_t>(kMaxSize));
      result.*Value = one.at(key_of<Item>()).number(field.low, field.high);
      one.finish();
      list.push_back(result);
    }
  };
  f.write = [](const Scenario& s) -> ordered_json {
    ordered_json list;
    for (const Item& item : s.faults.*List)
      list.push_back({{"gpu", item.gpu}, {key_of<Item>(), item.*Value}});
    return list;
  };
  f.take = take_member<&Scenario::faults, List>;
  return f;
}

void read_faults(const Field& field, Scenario& s, const JsonNode& value) {
  set_field(field, s, JsonNode::read(beside(value, value.string())));
}

}  // namespace

std::vector<Field> fault_fields() {
  using F = Faults;
  return {
      {.path = "faults",
       .flag = "--faults",
       .type = FieldType::kObject,
       .fallback = "a healthy machine",
       .group = kMachine,
       .help = "JSON object or file: {\"slow_gpus\": [{\"gpu\": 3, \"factor\": 1.2}], \"nics\": ..., "
               "\"jitter\": 0.05, \"gpu_mtbf_hours\": 50000, ...}",
       .read = read_faults,
       .write = nothing,
       .take = take_member<&Scenario::faults>},
      per_gpu<F::SlowGpu, &F::slow_gpus, &F::SlowGpu::factor>(
          {.path = "faults.slow_gpus",
           .low = 1,
           .high = 1e6,
           .unit = "times as long as a usual GPU computes",
           .help = "Slow GPUs, {\"gpu\", \"factor\"} each"}),
      per_gpu<F::Port, &F::nvlinks, &F::Port::share>(
          {.path = "faults.nvlinks",
           .low = 1e-6,
           .high = 1,
           .unit = "share that is left",
           .help = "Degraded NVLink ports, {\"gpu\", \"bandwidth\"} each"}),
      per_gpu<F::Port, &F::nics, &F::Port::share>(
          {.path = "faults.nics",
           .low = 0,
           .high = 1,
           .unit = "share that is left",
           .help = "Degraded or failed (0) network ports, {\"gpu\", \"bandwidth\"} each"}),
      optional_number<&Scenario::faults, &F::jitter>({.path = "faults.jitter",
                                                      .low = 0,
                                                      .high = 1,
                                                      .fallback = "0",
                                                      .group = kMachine,
                                                      .help = "Relative deviation of kernel times"}),
      {.path = "faults.seed",
       .type = FieldType::kInteger,
       .low = 0,
       .high = 0x1p62,
       .fallback = "1",
       .group = kMachine,
       .help = "Seed of the jitter",
       .read = [](const Field&, Scenario& s,
                  const JsonNode& v) { s.faults.seed = static_cast<std::uint64_t>(v.integer(0)); },
       .write =
           [](const Scenario& s) {
             return s.faults.jitter > 0 ? ordered_json(s.faults.seed) : ordered_json();
           },
       .take = take_member<&Scenario::faults, &F::seed>},
      optional_number<&Scenario::faults, &F::gpu_mtbf_hours>({.path = "faults.gpu_mtbf_hours",
                                                              .low = 1e-3,
                                                              .high = 1e12,
                                                              .unit = "hours",
                                                              .scopes = Scopes::kStep,
                                                              .group = kMachine,
                                                              .help = "Mean time between failures of a GPU"}),
      optional_number<&Scenario::faults, &F::checkpoint_s>(
          {.path = "faults.checkpoint_s",
           .low = 1e-3,
           .high = 1e6,
           .unit = "seconds",
           .fallback = "30",
           .scopes = Scopes::kStep,
           .group = kMachine,
           .help = "Time that training stands still for a checkpoint"}),
      optional_number<&Scenario::faults, &F::restart_s>(
          {.path = "faults.restart_s",
           .low = 1e-3,
           .high = 1e6,
           .unit = "seconds",
           .fallback = "300",
           .scopes = Scopes::kStep,
           .group = kMachine,
           .help = "Time from a failure until training goes on"}),
      optional_number<&Scenario::faults, &F::interval_s>({.path = "faults.checkpoint_interval_s",
                                                          .low = 1e-3,
                                                          .high = 1e9,
                                                          .unit = "seconds",
                                                          .fallback = "the best",
                                                          .scopes = Scopes::kStep,
                                                          .group = kMachine,
                                                          .help = "Training between two checkpoints"}),
  };
}

std::vector<Field> ownership_fields() {
  using O = Ownership;
  constexpr double kMostPrice = 1e9;
  return {
      {.path = "ownership.buy",
       .flag = "--buy",
       .type = FieldType::kObject,
       .fallback = "rented",
       .group = kMoney,
       .help = "Price of a GPU that is bought, with its share of server, network and storage: 35000, "
               "h100=35000,b200=50000, or JSON (or a file of it): gpu or node, a number or one per profile",
       .read =
           [](const Field&, Scenario& s, const JsonNode& v) {
             s.ownership.buy = v.is_string() ? parse_prices(beside(v, v.string()), O::kKeys)
                               : v.is_object()
                                   ? PriceTable::parse(v, O::kKeys)
                                   : parse_prices(fmt::format("{}", v.number(1e-6, kMostPrice)), O::kKeys);
           },
       .write = [](const Scenario& s) { return s.ownership.buy.to_json(O::kKeys); },
       .take = take_member<&Scenario::ownership, &O::buy>},
      optional_number<&Scenario::ownership, &O::years>({.path = "ownership.years",
                                                        .flag = "--years",
                                                        .low = 0.1,
                                                        .high = 30,
                                                        .unit = "years",
                                                        .fallback = "5",
                                                        .group = kMoney,
                                                        .help = "Service life of a bought machine"}),
      optional_number<&Scenario::ownership, &O::kwh>(
          {.path = "ownership.kwh",
           .flag = "--kwh",
           .low = 0,
           .high = 1000,
           .fallback = "0",
           .group = kMoney,
           .help = "Price of a kWh, of the most that the nodes take: part of a bought machine's cost, and "
                   "added to a rent"}),
      optional_number<&Scenario::ownership, &O::pue>(
          {.path = "ownership.pue",
           .flag = "--pue",
           .low = 1,
           .high = 5,
           .fallback = "1.56",
           .group = kMoney,
           .help = "Power usage effectiveness: energy of the data center over that of its machines"}),
      optional_number<&Scenario::ownership, &O::hosting>(
          {.path = "ownership.hosting",
           .flag = "--hosting",
           .low = 0,
           .high = 1e6,
           .fallback = "0",
           .group = kMoney,
           .help = "Price of a month in a data center for a kW of a bought machine's nodes"}),
      optional_number<&Scenario::ownership, &O::idle_share>(
          {.path = "ownership.idle_share",
           .flag = "--idle-share",
           .low = 0,
           .high = 0.99,
           .fallback = "0",
           .group = kMoney,
           .help = "Share of a bought machine's years without work; its work pays for it"}),
  };
}

}  // namespace moesim::models::fields
