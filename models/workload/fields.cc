#include "models/workload/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/input_error.h"
#include "models/hardware/cluster.h"
#include "models/workload/field_makers.h"
#include "models/workload/origin.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

const std::vector<Field>& table() {
  static const std::vector<Field> all = [] {
    std::vector<Field> joined;
    for (const std::vector<Field>& some :
         {fields::subject_fields(), fields::step_fields(), fields::scope_fields(), fields::sharding_fields(),
          fields::fault_fields(), fields::parallel_fields(), fields::question_fields(),
          fields::money_fields()})
      joined.insert(joined.end(), some.begin(), some.end());
    check(joined.size() <= kMostFields, "a bit for every field");
    return joined;
  }();
  return all;
}

// The value as text, for a message.
std::string value_text(const Field& field, const Scenario& s) {
  if (field.path == "model") return s.model.name;
  const nlohmann::ordered_json value = field.value(field, s);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Returns the words of a condition with the values that they name.
std::string filled(std::string_view words, const Field& field, const Scenario& s) {
  std::string text;
  for (std::size_t open; (open = words.find('{')) != std::string_view::npos;) {
    const std::size_t close = words.find('}', open);
    const std::string_view name = words.substr(open + 1, close - open - 1);
    text += words.substr(0, open);
    text += name == "profile" ? s.cluster->profile.name()
                              : value_text(name.empty() ? field : *find_field(name), s);
    words.remove_prefix(close + 1);
  }
  return text + std::string(words);
}

// Returns the first condition that does not hold for a value; nullptr: all hold.
const Condition* broken(const Field& field, const std::vector<Condition>& conditions, const Scenario& s) {
  if (conditions.empty()) return nullptr;
  const bool said = s.given.test(index_of(field));
  if (field.said_itself && !said) return nullptr;
  if (!(field.said_default && said) && !fields::changed(field, s)) return nullptr;
  const auto found = std::ranges::find_if(conditions, [&](const Condition& c) { return !c.holds(s); });
  return found == conditions.end() ? nullptr : &*found;
}

}  // namespace

nlohmann::ordered_json Field::write(const Scenario& scenario) const {
  return written && !written(*this, scenario) ? nlohmann::ordered_json() : value(*this, scenario);
}

std::vector<WithoutEffect> without_effect(const Scenario& sized) {
  std::vector<WithoutEffect> all;
  for (const Field& field : table()) {
    const Condition* condition = broken(field, field.used_if, sized);
    if (!condition) continue;
    const std::string text = filled(condition->words, field, sized);
    all.push_back({field.path, text.substr(0, text.rfind("; expected ")),
                   fmt::format("{}: found {}", field.path, text), condition->cause});
  }
  return all;
}

void drop_without_effect(Scenario& sized) {
  // A dropped value may leave another one without effect.
  for (std::vector<WithoutEffect> all; !(all = without_effect(sized)).empty();)
    for (const WithoutEffect& one : all) {
      const Field& field = *find_field(one.path);
      field.take(sized, fields::defaults());
      sized.given.reset(index_of(field));
      sized.origins.erase(one.path);
    }
}

void check_valid(const Scenario& scenario) {
  for (const Field& field : table())
    if (const Condition* condition = broken(field, field.valid_if, scenario))
      throw InputError(fmt::format("{}: found {}", field.path, filled(condition->words, field, scenario)));
}

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
                     name_of(scenario.scope), field.used_in(Scopes::kStep) ? "step" : "layer");
}

}  // namespace moesim::models
