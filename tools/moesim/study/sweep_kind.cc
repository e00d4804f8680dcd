#include "tools/moesim/study/sweep_kind.h"

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "models/hardware/cluster.h"
#include "models/workload/scenario.h"

namespace moesim::tools {

namespace {

// Reads files that are opened when a row is answered, not when its scenario is read.
void read_later_files(const models::Scenario& scenario) {
  if (scenario.routing.kind == models::RoutingSpec::Kind::kFile) read_file(scenario.routing.path);
  if (scenario.cluster && is_file(scenario.cluster->fabric)) read_file(scenario.cluster->fabric);
}

// Combines each value that may name a file with values of the other axes. The code that computes rows does
// the reading, wherever a name leads (a folder, a file beside the scenario, the profile of a cluster).
class NamedFiles {
 public:
  NamedFiles(const Base& base, const models::Points& points, const OfScenario& of_scenario) : base_(base) {
    std::map<std::string, std::size_t> axes;
    for (const ScenarioPath& path : points.paths()) {
      if (!of_scenario(path) || !axes.emplace(path.path, paths_.size()).second) continue;
      paths_.push_back(path);
    }
    few_.resize(paths_.size());
    named_.resize(paths_.size());
    points.for_each_value([&](const ScenarioPath& path, const PathValue& value) {
      const auto axis = axes.find(path.path);
      if (axis == axes.end()) return;
      if (few_[axis->second].size() < kTries) few_[axis->second].push_back(value);
      if (may_name_a_file(value)) named_[axis->second].emplace(value.text, value);
    });
  }

  void read() {
    for (std::size_t axis = 0; axis < paths_.size(); ++axis)
      for (const auto& [text, value] : named_[axis]) read(axis, value);
  }

 private:
  // Attempts per axis: an invalid value of another axis hides the file named here.
  static constexpr std::size_t kTries = 16;

  bool may_name_a_file(const PathValue& value) const {
    if (value.json.is_structured()) return true;
    return value.json.is_string() &&
           (path_exists(value.text) || path_exists(models::beside(base_.question.file, value.text)));
  }

  void read(std::size_t axis, const PathValue& value) {
    for (std::size_t attempt = 0; attempt < kTries; ++attempt) {
      std::vector<ScenarioPath> paths;
      std::vector<PathValue> values;
      for (std::size_t i = 0; i < paths_.size(); ++i) {
        if (few_[i].empty()) continue;  // drawn from a range
        paths.push_back(paths_[i]);
        values.push_back(i == axis ? value : few_[i][attempt % few_[i].size()]);
      }
      if (read_all(paths, values)) return;
    }
    read_all({paths_[axis]}, {value});
  }

  // Returns whether it is a scenario; if not, its rows will report the error.
  bool read_all(const std::vector<ScenarioPath>& paths, const std::vector<PathValue>& values) const {
    try {
      Question changed = base_.question;
      models::set_all(changed, paths, values, Origin::said("--grid"));
      read_later_files(changed.said);
      return true;
    } catch (const InputError&) {
      return false;
    }
  }

  const Base& base_;
  std::vector<ScenarioPath> paths_;
  std::vector<std::vector<PathValue>> few_;              // the first values of every axis
  std::vector<std::map<std::string, PathValue>> named_;  // its values that may name a file
};

}  // namespace

nlohmann::ordered_json said_json(const Said& said) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [option, value] : said) json[option] = value;
  return json;
}

void refuse_beside_axes(const Said& said, const models::Points& points) {
  for (const auto& [option, value] : said)
    for (const ScenarioPath& path : points.paths())
      if (path.path == option || option.ends_with("." + path.path))
        throw InputError(
            fmt::format("--{}: found beside an axis of that name, expected one of them", path.path));
}

void for_each_input(const models::Points& points,
                    const std::function<void(const ScenarioPath&, const PathValue&)>& visit) {
  points.for_each_value([&](const ScenarioPath& path, const PathValue& value) {
    try {
      visit(path, value);
    } catch (const InputError&) {
    }
  });
}

void read_named(const Base& base, const models::Points& points, const OfScenario& of_scenario) {
  NamedFiles(base, points, of_scenario).read();
  read_later_files(base.question.said);
}

}  // namespace moesim::tools
