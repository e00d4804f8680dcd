#include "tools/moesim/questions/around.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "models/hardware/cluster.h"
#include "models/hardware/hardware.h"
#include "models/workload/scenario.h"
#include "tools/moesim/questions/crossover.h"
#include "tools/moesim/questions/sweep_range.h"

namespace moesim::tools {

namespace {

using models::Scenario;
using nlohmann::ordered_json;

struct Axis {
  ScenarioPath path;
  std::string what;
  double now = 0;
  std::vector<double> values;  // ascending, with the present one
};

// Multiples of a number, so many octaves up and down.
std::vector<double> around(double now, int octaves, int steps_an_octave) {
  std::vector<double> values;
  for (int i = -octaves * steps_an_octave; i <= octaves * steps_an_octave; ++i)
    values.push_back(now * std::exp2(static_cast<double>(i) / steps_an_octave));
  return values;
}

std::vector<Axis> axes_of(const Scenario& s) {
  // A step takes long enough that fewer values are tried.
  const bool step = s.is_step();
  const int octaves = step ? 1 : 2;
  std::vector<Axis> axes;
  const auto add = [&](std::string_view name, std::string_view what, int steps_an_octave) {
    Axis axis{find_path(name), std::string(what), 0, {}};
    axis.now = axis.path.number(s);
    if (!(axis.now > 0)) return;
    for (const double value : around(axis.now, octaves, steps_an_octave))
      // One and a half experts are none.
      if (axis.path.type != models::FieldType::kInteger || (value >= 1 && value == std::floor(value)))
        axis.values.push_back(value);
    axes.push_back(std::move(axis));
  };
  for (const models::HardwareNumber& number : models::hardware_numbers()) {
    const bool rate =
        number.unit == models::HardwareUnit::kBandwidth || number.unit == models::HardwareUnit::kFlops;
    const bool used = number.path != "nic.bandwidth" || s.cluster->ranks() > s.cluster->nvlink.domain;
    if (rate && used) add("cluster." + std::string(number.path), number.what, step ? 1 : 2);
  }
  for (const auto& [path, what] : {std::pair{"parallel.ep", "EP"},
                                   {"parallel.tp", "TP"},
                                   {"parallel.micro_batch", "sequences per microbatch"},
                                   {"parallel.seq", "tokens per sequence"},
                                   {"topk", "experts per token"}})
    add(path, what, 1);
  using Kind = models::RoutingSpec::Kind;
  if (s.routing.kind == Kind::kBalanced || s.routing.kind == Kind::kZipf) {
    Axis skew{find_path("routing.zipf"), "skew of the routing (Zipf)", 0, {0, 0.4, 0.8}};
    if (!step) skew.values.insert(skew.values.end(), {1.2, 1.6});
    if (s.routing.kind == Kind::kZipf) skew.now = skew.path.number(s);
    if (std::ranges::find(skew.values, skew.now) == skew.values.end()) skew.values.push_back(skew.now);
    std::ranges::sort(skew.values);
    axes.push_back(std::move(skew));
  }
  return axes;
}

ordered_json turned(const Axis& axis, double value, const std::string& dispatcher) {
  return {{"value", shown(axis.path, value)}, {"dispatcher", dispatcher}};
}

}  // namespace

ordered_json map_around(const Base& base) {
  Scenario scenario = base.resolved.scenario;
  scenario.resolve();
  ordered_json all = ordered_json::array();
  for (const Axis& axis : axes_of(scenario)) {
    SweepRange range;
    range.path = axis.path;
    for (const double value : axis.values) range.values.push_back(value_of(axis.path, value));
    try {
      const CrossoverResult r = find_crossovers(base, range, "", 0);
      if (r.points.size() < 2) continue;
      ordered_json below, above;
      for (const Crossover& c : r.crossings) {
        if (c.above <= axis.now) below = turned(axis, c.below, c.from);
        if (c.below >= axis.now && above.is_null()) above = turned(axis, c.above, c.to);
      }
      all.push_back({{"path", axis.path.path},
                     {"what", axis.what},
                     {"now", shown(axis.path, axis.now)},
                     {"from", shown(axis.path, r.points.front().value)},
                     {"to", shown(axis.path, r.points.back().value)},
                     {"below", std::move(below)},
                     {"above", std::move(above)}});
    } catch (const InputError&) {  // no other value has a forecast
    }
  }
  return all;
}

}  // namespace moesim::tools
