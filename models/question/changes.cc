#include "models/question/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"

namespace moesim::models {

namespace {

constexpr std::size_t kMostRead = 1024;  // objects kept per group: a profile is about 100 KB

// Returns the order of paths: wholes before their parts, the cluster last, since a part of a cluster that was
// not named changes the usual one.
std::vector<std::size_t> order_of(const std::vector<ScenarioPath>& paths) {
  std::vector<std::size_t> order(paths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto rank = [&](std::size_t i) {
    return std::pair(paths[i].top() == "cluster",
                     std::count(paths[i].path.begin(), paths[i].path.end(), '.'));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  return order;
}

// A routing and a price are one value, whichever of their parts is set.
void refuse_exclusive(const std::vector<ScenarioPath>& paths) {
  for (const char* alone : {"routing", "prices"}) {
    const ScenarioPath* first = nullptr;
    for (const ScenarioPath& path : paths) {
      if (path.top() != alone) continue;
      if (first)
        throw InputError(fmt::format("found both {} and {}, expected one of them", first->path, path.path));
      first = &path;
    }
  }
}

// An object is expensive to read and the same in many rows.
bool is_object(std::string_view top) {
  return top == "model" || top == "cluster" || top == "routing" || top == "dispatcher" || top == "prices" ||
         top == "placement" || top == "faults" || top == "mesh";
}

void set_one(Question& q, const ScenarioPath& path, const PathValue& value, const Origin& origin) {
  // A text may be a path relative to the folder of the question's file.
  const bool text = value.json.is_string();
  set(q.said, path, JsonNode::from_json(value.json, text ? q.file : path.path), origin);
}

}  // namespace

void set_all(Question& q, const std::vector<ScenarioPath>& paths, const std::vector<PathValue>& values,
             const Origin& origin) {
  refuse_exclusive(paths);
  for (const std::size_t i : order_of(paths)) set_one(q, paths[i], values[i], origin);
}

Changes::Changes(Question base, std::vector<ScenarioPath> paths, const Origin& origin)
    : base_(std::move(base)), paths_(std::move(paths)), origin_(origin) {
  refuse_exclusive(paths_);
  for (const std::size_t i : order_of(paths_)) {
    const std::string_view top = paths_[i].top();
    if (!is_object(top)) {
      plain_.push_back(i);
      continue;
    }
    auto group = std::ranges::find(groups_, top, &Group::top);
    if (group == groups_.end()) {
      group = groups_.insert(groups_.end(), Group{std::string(top), {}, {}, {}});
      for (const Field& field : scenario_fields())
        if (field.path == top || field.path.starts_with(std::string(top) + "."))
          group->fields.push_back(&field);
    }
    group->paths.push_back(i);
  }
}

const Scenario& Changes::part(Group& group, const std::vector<PathValue>& values) {
  std::string name;
  for (const std::size_t i : group.paths) name += values[i].text, name += '\x1f';
  if (const auto found = group.read.find(name); found != group.read.end()) return *found->second;
  Question changed = base_;
  for (const std::size_t i : group.paths) set_one(changed, paths_[i], values[i], origin_);
  if (group.read.size() >= kMostRead) group.read.clear();
  return *(group.read[name] = std::make_shared<const Scenario>(std::move(changed.said)));
}

Question Changes::make(const std::vector<PathValue>& values) {
  Question q = base_;
  for (Group& group : groups_) {
    const Scenario& read = part(group, values);
    for (const Field* field : group.fields) {
      const std::size_t bit = index_of(*field);
      field->take(q.said, read);
      q.said.given.set(bit, read.given.test(bit));
    }
    for (const std::size_t i : group.paths) {
      if (const Origin* origin = read.origins.find(paths_[i].path))
        q.said.origins.set(paths_[i].path, *origin);
      if (const Origin* whole = read.origins.find(group.top)) q.said.origins.set(group.top, *whole);
    }
  }
  for (const std::size_t i : plain_) set_one(q, paths_[i], values[i], origin_);
  return q;
}

}  // namespace moesim::models
