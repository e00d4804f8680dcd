#include "tools/moesim/sweeps/sweep_inputs.h"

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "base/input_error.h"
#include "tools/moesim/sweeps/sweep_scenario.h"

namespace moesim::tools {

namespace {

void read_routing(const models::Scenario& scenario) {
  if (scenario.routing.kind == models::RoutingSpec::Kind::kFile) read_file(scenario.routing.path);
}

// Each value on its own, beside the first values of the other axes: what a row reads is read by the row's own
// code, wherever a name leads (a folder, a file beside the scenario, the profile of a cluster).
class NamedFiles {
 public:
  NamedFiles(const ScenarioDocument& base, const SweepPlan& plan, const OfScenario& of_scenario)
      : base_(base), plan_(plan) {
    std::vector<PathValue> first;
    if (plan.size() > 0) plan.point(0, first);
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (!of_scenario(plan.paths()[i])) continue;
      paths_.push_back(plan.paths()[i]);
      values_.push_back(first[i]);
    }
  }

  void read() {
    plan_.for_each_value([&](const ScenarioPath& path, const PathValue& value) {
      if (!value.json.is_string()) return;
      for (std::size_t i = 0; i < paths_.size(); ++i)
        if (paths_[i].path == path.path && seen_.emplace(i, value.text).second) read(i, value);
    });
  }

 private:
  void read(std::size_t axis, const PathValue& value) {
    std::vector<PathValue> values = values_;
    values[axis] = value;
    if (!read_all(paths_, values)) read_all({paths_[axis]}, {value});  // without a bad value of another axis
  }

  // Whether it is a scenario; if not, its rows will say so.
  bool read_all(const std::vector<ScenarioPath>& paths, const std::vector<PathValue>& values) const {
    try {
      ScenarioDocument changed = base_;
      set_all(changed, paths, values);
      read_routing(changed.scenario());
      return true;
    } catch (const InputError&) {
      return false;
    }
  }

  const ScenarioDocument& base_;
  const SweepPlan& plan_;
  std::vector<ScenarioPath> paths_;
  std::vector<PathValue> values_;
  std::set<std::pair<std::size_t, std::string>> seen_;
};

}  // namespace

void read_named(const ScenarioDocument& base, const SweepPlan& plan, const OfScenario& of_scenario) {
  NamedFiles(base, plan, of_scenario).read();
  read_routing(base.scenario());
}

}  // namespace moesim::tools
