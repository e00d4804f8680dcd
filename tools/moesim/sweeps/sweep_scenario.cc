#include "tools/moesim/sweeps/sweep_scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/input_error.h"

namespace moesim::tools {

namespace {

using models::Scenario;

constexpr std::size_t kMostRead = 1024;  // parts kept of one key: a profile is about 100 KB

std::string_view top_of(std::string_view path) { return path.substr(0, path.find('.')); }
std::string key_of(const ScenarioPath& path) { return std::string(top_of(path.path)); }

// The order of set_all(): by (is it the cluster, length).
std::vector<std::size_t> order_of(const std::vector<ScenarioPath>& paths) {
  std::vector<std::size_t> order(paths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto rank = [&](std::size_t i) {
    return std::pair(key_of(paths[i]) == "cluster",
                     std::count(paths[i].path.begin(), paths[i].path.end(), '.'));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  return order;
}

}  // namespace

void set_all(ScenarioDocument& document, const std::vector<ScenarioPath>& paths,
             const std::vector<PathValue>& values) {
  for (const char* alone : {"routing", "prices"}) {
    const auto below = [&](const ScenarioPath& path) { return key_of(path) == alone; };
    const auto first = std::find_if(paths.begin(), paths.end(), below);
    if (first == paths.end()) continue;
    const auto second = std::find_if(first + 1, paths.end(), below);
    if (second != paths.end())
      throw InputError(fmt::format("found both {} and {}, expected one of them", first->path, second->path));
  }
  for (const std::size_t i : order_of(paths)) document.set(paths[i], values[i].json);
}

ScenarioMaker::ScenarioMaker(ScenarioDocument base, std::vector<ScenarioPath> paths)
    : base_(std::move(base)), scenario_(base_.scenario()), paths_(std::move(paths)) {
  scenario_.files.clear();
  const bool cluster = base_.document().contains("cluster");
  for (const std::size_t i : order_of(paths_)) {
    const std::string key = key_of(paths_[i]);
    if (key == "cluster" && !cluster && paths_[i].path != key) whole_ = true;
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.key == key; });
    if (group == groups_.end()) {
      group = groups_.insert(groups_.end(), Group{});
      group->key = key;
      for (const models::Field& field : models::scenario_fields()) {
        if (top_of(field.path) != key) continue;
        group->fields.push_back(&field);
        group->given.set(models::index_of(field));
      }
    }
    group->paths.push_back(i);
  }
  for (const Group& group : groups_)
    if (group.paths.size() > 1 && (group.key == "routing" || group.key == "prices"))
      throw InputError(fmt::format("found both {} and {}, expected one of them", paths_[group.paths[0]].path,
                                   paths_[group.paths[1]].path));
}

const Scenario& ScenarioMaker::part(Group& group, const std::vector<PathValue>& values) {
  std::string name;
  for (const std::size_t i : group.paths) name += values[i].text, name += '\x1f';
  if (const auto found = group.read.find(name); found != group.read.end()) return *found->second;
  ScenarioDocument changed = base_;
  for (const std::size_t i : group.paths) changed.set(paths_[i], values[i].json);
  if (group.read.size() >= kMostRead) group.read.clear();
  return *(group.read[name] = std::make_shared<const Scenario>(changed.part(group.key)));
}

Scenario ScenarioMaker::make(const std::vector<PathValue>& values) {
  if (whole_) {
    ScenarioDocument changed = base_;
    set_all(changed, paths_, values);
    Scenario s = changed.scenario();
    s.files.clear();
    return s;
  }
  Scenario s = scenario_;
  for (Group& group : groups_) {
    const Scenario& read = part(group, values);
    for (const models::Field* field : group.fields) field->take(s, read);
    s.given = (s.given & ~group.given) | (read.given & group.given);
  }
  return s;
}

}  // namespace moesim::tools
