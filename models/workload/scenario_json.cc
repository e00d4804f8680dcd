// Reads and writes scenarios as JSON by the table of fields, and the schema of such files.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/workload/field_makers.h"

namespace moesim::models {

namespace {

using nlohmann::ordered_json;

// A key of a scenario file: a field, an object of keys, or both (an object, or a short form of it).
struct Key {
  std::string name;
  const Field* field = nullptr;
  std::vector<Key> keys;
};

Key& below(Key& parent, std::string_view name) {
  for (Key& key : parent.keys)
    if (key.name == name) return key;
  return parent.keys.emplace_back(Key{std::string(name), nullptr, {}});
}

const Key& root() {
  static const Key root = [] {
    Key top;
    // Older paths first, so that they do not overwrite details of newer ones.
    for (const Field& field : scenario_fields())
      if (!field.also.empty()) below(top, field.also).field = &field;
    for (const Field& field : scenario_fields()) {
      Key* at = &top;
      for (const std::string_view name : split(field.path, '.')) at = &below(*at, name);
      at->field = &field;
    }
    return top;
  }();
  return root;
}

const Key& key_of(const Field& field) {
  const Key* at = &root();
  for (const std::string_view name : split(field.path, '.'))
    at = &*std::find_if(at->keys.begin(), at->keys.end(), [&](const Key& key) { return key.name == name; });
  return *at;
}

void read_one(const Field& field, Scenario& scenario, const JsonNode& value, const Origin* origin) {
  try {
    field.read(field, scenario, value);
  } catch (const InputError& error) {
    if (!error.place().file.empty() || value.place().file.empty()) throw;
    throw InputError(value.place(), error.what());
  }
  scenario.given.set(index_of(field));
  if (const SourcePlace place = value.place(); place.line > 0)
    scenario.origins.set(field.path, Origin::file(place.str()));
  else if (origin)
    scenario.origins.set(field.path, *origin);
}

void read_keys(const Key& parent, Scenario& scenario, const JsonNode& node, const Origin* origin) {
  JsonObject object(node);
  for (const Key& key : parent.keys) {
    const auto value = object.find(key.name);
    if (!value) continue;
    if (!key.keys.empty() && (value->is_object() || !key.field)) {
      read_keys(key, scenario, *value, origin);
      continue;
    }
    if (!key.field->also.empty() && scenario.given.test(index_of(*key.field)))
      value->fail(fmt::format("both {} and {}", key.field->also, key.field->path), "one of them");
    read_one(*key.field, scenario, *value, origin);
  }
  object.finish();
}

// Removes values below a key that a new value replaces.
void forget(const Key& parent, Scenario& scenario) {
  for (const Key& key : parent.keys) {
    if (key.field) {
      key.field->take(scenario, fields::defaults());
      scenario.given.reset(index_of(*key.field));
      scenario.origins.erase(key.field->path);
    }
    forget(key, scenario);
  }
}

// The largest whole number that every reader of JSON keeps.
constexpr double kMostWhole = 9007199254740992.0;

ordered_json schema_of(const Field& field) {
  ordered_json schema;
  const bool whole = field.type == FieldType::kInteger;
  const auto bound = [&](double value) {
    return whole ? ordered_json(static_cast<std::int64_t>(value)) : ordered_json(value);
  };
  if (!field.form.empty()) {
    schema = ordered_json::parse(field.form);
  } else if (field.type == FieldType::kBoolean) {
    schema["type"] = "boolean";
  } else if (field.type == FieldType::kChoice) {
    schema["enum"] = field.choices;
  } else if (is_number(field.type)) {
    schema["type"] = whole ? "integer" : "number";
    schema["minimum"] = bound(field.low);
    if (!whole || field.high <= kMostWhole) schema["maximum"] = bound(field.high);
  } else {
    schema["type"] = "string";
  }
  std::string text(field.help);
  if (!field.unit.empty()) text += "; " + std::string(field.unit);
  if (field.scopes != Scopes::kBoth)
    text +=
        fmt::format("; of scope {}", name_of(field.used_in(Scopes::kStep) ? Scope::kStep : Scope::kLayer));
  if (!field.fallback.empty()) text += fmt::format(" [{}]", field.fallback);
  schema["description"] = std::move(text);
  return schema;
}

// The schema of an object with the keys below a key.
ordered_json schema_below(const Key& parent) {
  ordered_json keys = ordered_json::object(), older = ordered_json::object();
  for (const Key& key : parent.keys) {
    ordered_json schema = key.keys.empty() ? schema_of(*key.field) : schema_below(key);
    if (!key.keys.empty() && key.field) {  // a text is a short form
      ordered_json text = schema_of(*key.field);
      schema = {{"description", text["description"]},
                {"anyOf", {{{"type", text["type"]}}, std::move(schema)}}};
    }
    if (key.field && key.field->also == key.name) {
      schema["description"] = "the same as " + std::string(key.field->path);
      schema["deprecated"] = true;
      older[key.name] = std::move(schema);
    } else {
      keys[key.name] = std::move(schema);
    }
  }
  keys.update(older);
  return {{"type", "object"}, {"properties", std::move(keys)}, {"additionalProperties", false}};
}

}  // namespace

ordered_json scenario_schema() {
  ordered_json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                      {"title", "a scenario file"}};
  schema.update(schema_below(root()));
  return schema;
}

void set_field(const Field& field, Scenario& scenario, const JsonNode& value, const Origin* origin) {
  const Key& key = key_of(field);
  forget(key, scenario);
  if (!key.keys.empty() && value.is_object())
    read_keys(key, scenario, value, origin);
  else
    read_one(field, scenario, value, origin);
}

void set_field(const Field& field, Scenario& scenario, std::string_view text, const Origin* origin) {
  const std::string named(field.flag.empty() ? field.path : field.flag);
  const nlohmann::json value = json_of_text(named, field.type, text);
  // Text readers name the value themselves.
  set_field(field, scenario, JsonNode::from_json(value, value.is_string() ? "" : named), origin);
}

Scenario Scenario::parse(const JsonNode& node) {
  Scenario scenario;
  read_keys(root(), scenario, node, nullptr);
  return scenario;
}

Faults Faults::parse(const JsonNode& node) {
  Scenario scenario;
  set_field(*find_field("faults"), scenario, node);
  return scenario.faults;
}

ordered_json to_json(const Scenario& scenario) {
  ordered_json all = ordered_json::object();
  for (const Field& field : scenario_fields()) {
    if (!field.used_in(scope_of(scenario))) continue;
    ordered_json value = field.write(scenario);
    if (value.is_null()) continue;
    ordered_json* at = &all;
    for (const std::string_view name : split(field.path, '.')) at = &(*at)[std::string(name)];
    *at = std::move(value);
  }
  return all;
}

}  // namespace moesim::models
