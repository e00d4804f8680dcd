#include "models/workload/faults.h"

#include <fmt/format.h>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMaxGpu = std::int64_t{1} << 31;

template <class Item>
void read_list(JsonObject& o, const char* key, const char* value, double low, double high,
               std::vector<Item>& out, double Item::*field) {
  const auto list = o.find(key);
  if (!list) return;
  if (!list->is_array()) list->fail(list->describe(), "an array of objects");
  for (const JsonNode& item : list->items()) {
    JsonObject one(item);
    Item result;
    result.gpu = one.at("gpu").integer(0, kMaxGpu);
    result.*field = one.at(value).number(low, high);
    one.finish();
    out.push_back(result);
  }
}

}  // namespace

Faults Faults::parse(const JsonNode& node) {
  Faults f;
  JsonObject o(node);
  read_list(o, "slow_gpus", "factor", 1, 1e6, f.slow_gpus, &SlowGpu::factor);
  read_list(o, "nvlinks", "bandwidth", 1e-6, 1, f.nvlinks, &Port::share);
  read_list(o, "nics", "bandwidth", 0, 1, f.nics, &Port::share);
  f.jitter = o.number("jitter", 0, 0, 1);
  f.seed = static_cast<std::uint64_t>(o.integer("seed", 1, 0));
  f.gpu_mtbf_hours = o.number("gpu_mtbf_hours", 0, 1e-3, 1e12);
  f.checkpoint_s = o.number("checkpoint_s", 0, 0, 1e6);
  f.restart_s = o.number("restart_s", 0, 0, 1e6);
  f.interval_s = o.number("checkpoint_interval_s", 0, 1e-3, 1e9);
  for (const char* key : {"checkpoint_s", "restart_s", "checkpoint_interval_s"})
    if (f.gpu_mtbf_hours == 0 && node.find(key))
      node.find(key)->fail(fmt::format("\"{}\" without \"gpu_mtbf_hours\"", key), "how often a GPU fails");
  o.finish();
  return f;
}

void Faults::check_against(const Cluster& cluster) const {
  const auto exists = [&](std::int64_t gpu, const char* key) {
    if (gpu >= cluster.ranks())
      throw InputError(fmt::format("faults.{}: found GPU {}, expected 0 to {} on {}", key, gpu,
                                   cluster.ranks() - 1, cluster.name));
  };
  for (const SlowGpu& g : slow_gpus) exists(g.gpu, "slow_gpus");
  for (const Port& p : nvlinks) exists(p.gpu, "nvlinks");
  for (const Port& p : nics) {
    exists(p.gpu, "nics");
    if (p.share == 0 && cluster.nic.ports_per_node < 2)
      throw InputError(
          fmt::format("faults.nics: found a failed port of GPU {}, expected a bandwidth above 0: its node "
                      "has no other port",
                      p.gpu));
  }
}

}  // namespace moesim::models
