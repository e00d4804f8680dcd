#include "tools/moesim/sweeps/sweep_inputs.h"

#include "base/file_io.h"
#include "base/input_error.h"

namespace moesim::tools {

void read_named(const ScenarioDocument& base, const SweepPlan& plan) {
  plan.for_each_value([&](const ScenarioPath& path, const PathValue& value) {
    if (!value.json.is_string() || !is_file(value.text)) return;
    read_file(value.text);
    try {
      ScenarioDocument changed = base;
      changed.set(path, value.json);
      changed.scenario();
    } catch (const InputError&) {  // its rows will say so
    }
  });
  if (const models::RoutingSpec& routing = base.scenario().routing;
      routing.kind == models::RoutingSpec::Kind::kFile)
    read_file(routing.path);
}

}  // namespace moesim::tools
