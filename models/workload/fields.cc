#include "models/workload/fields.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/check.h"
#include "models/workload/field_makers.h"
#include "models/workload/origin.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

const std::vector<Field>& table() {
  static const std::vector<Field> all = [] {
    std::vector<Field> joined;
    for (const std::vector<Field>& some :
         {fields::subject_fields(), fields::step_fields(), fields::overlap_fields(), fields::scope_fields(),
          fields::sharding_fields(), fields::optimizer_fields(), fields::fault_fields(),
          fields::parallel_fields(), fields::question_fields(), fields::ownership_fields()})
      joined.insert(joined.end(), some.begin(), some.end());
    check(joined.size() <= kMostFields, "a bit for every field");
    return joined;
  }();
  return all;
}

}  // namespace

std::span<const Field> scenario_fields() { return table(); }

std::size_t index_of(const Field& field) { return static_cast<std::size_t>(&field - table().data()); }

const Field* find_field(std::string_view path) {
  for (const Field& field : table())
    if (field.path == path) return &field;
  return nullptr;
}

bool Scenario::gave(std::string_view path) const {
  const Field* field = find_field(path);
  check(field != nullptr, "a field of this path");
  return given.test(index_of(*field));
}

void Scenario::give(std::string_view path) {
  const Field* field = find_field(path);
  check(field != nullptr, "a field of this path");
  given.set(index_of(*field));
}

void Scenario::give(std::string_view path, Origin origin) {
  give(path);
  origins.set(path, std::move(origin));
}

Origin Scenario::origin_of(std::string_view path) const {
  if (!gave(path)) return {};
  const Origin* origin = origins.find(path);
  return origin ? *origin : Origin{Origin::Kind::kSaid, ""};
}

const Field* unused_field(const Scenario& scenario) {
  const Scopes scope = scope_of(scenario);
  for (const Field& field : table())
    if (scenario.given.test(index_of(field)) && !field.used_in(scope)) return &field;
  return nullptr;
}

std::string unused_message(const Field& field, std::string_view named, const Scenario& scenario) {
  return fmt::format("{}: found with scope {}, which does not use it; scope {} does", named,
                     fields::kScopes[static_cast<std::size_t>(scenario.scope)],
                     field.used_in(Scopes::kStep) ? "step" : "layer");
}

}  // namespace moesim::models
