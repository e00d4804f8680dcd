// docs/schemas/scenario.schema.json says what the table of fields says, model.schema.json what an Architecture
// has. With MOESIM_REFRESH=1 in the environment the files are written anew. What an object field holds inside ("$defs") is written by hand;
// schemas.py tries it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "models/workload/fields.h"
#include "models/workload/model_json.h"
#include "models/workload/scenario.h"

namespace moesim::tools {
namespace {

using models::Field;
using models::FieldType;
using nlohmann::ordered_json;

// The largest whole number that every reader of JSON keeps.
constexpr double kMostWhole = 9007199254740992.0;

ordered_json bound(double value, FieldType type) {
  return type == FieldType::kInteger ? ordered_json(static_cast<std::int64_t>(value)) : ordered_json(value);
}

std::string description_of(const Field& field) {
  std::string text(field.help);
  if (!field.unit.empty()) text += "; " + std::string(field.unit);
  if (field.scopes != models::Scopes::kBoth)
    text += field.scopes == models::Scopes::kStep ? "; of scope step" : "; of scope layer";
  if (!field.fallback.empty()) text += " [" + std::string(field.fallback) + "]";
  return text;
}

ordered_json schema_of(const Field& field) {
  ordered_json schema;
  switch (field.type) {
    case FieldType::kInteger:
      if (field.high > kMostWhole && field.path == "seed") {
        schema["type"] = {"integer", "string"};  // 2^63 and more as a text
        schema["pattern"] = "^[0-9]+$";
      } else {
        schema["type"] = "integer";
      }
      schema["minimum"] = bound(field.low, field.type);
      if (field.high <= kMostWhole) schema["maximum"] = bound(field.high, field.type);
      break;
    case FieldType::kBoolean:
      schema["type"] = "boolean";
      break;
    case FieldType::kChoice:
      schema["enum"] = field.choices;
      break;
    case FieldType::kText:
      schema["type"] = "string";
      break;
    case FieldType::kObject:
      schema["$ref"] = "#/$defs/field:" + std::string(field.path);
      break;
    default:
      schema["type"] = "number";
      schema["minimum"] = field.low;
      schema["maximum"] = field.high;
  }
  schema["description"] = description_of(field);
  return schema;
}

// The keys below `prefix` ("" or "training.").
ordered_json keys_below(std::string_view prefix) {
  ordered_json keys = ordered_json::object();
  const auto fields = models::scenario_fields();
  for (const Field& field : fields) {
    if (!field.path.starts_with(prefix)) continue;
    const std::string_view rest = field.path.substr(prefix.size());
    const std::string key(rest.substr(0, rest.find('.')));
    if (keys.contains(key)) continue;
    const std::string path = std::string(prefix) + key, below = path + ".";
    const Field* whole = models::find_field(path);
    const bool section = std::any_of(fields.begin(), fields.end(),
                                     [&](const Field& other) { return other.path.starts_with(below); });
    if (!section) {
      keys[key] = schema_of(field);
      continue;
    }
    ordered_json object{
        {"type", "object"}, {"properties", keys_below(below)}, {"additionalProperties", false}};
    if (!whole) {
      keys[key] = std::move(object);
      continue;
    }
    keys[key] = {{"description", description_of(*whole)},
                 {"anyOf", ordered_json::array({{{"type", "string"}}, std::move(object)})}};
  }
  return keys;
}

ordered_json scenario_schema(const ordered_json& defs) {
  ordered_json keys = keys_below("");
  for (const Field& field : models::scenario_fields()) {
    if (field.also.empty()) continue;
    ordered_json same = schema_of(field);
    same["description"] = "the same as " + std::string(field.path);
    same["deprecated"] = true;
    keys[std::string(field.also)] = std::move(same);
  }
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"title", "a scenario file"},
          {"type", "object"},
          {"properties", std::move(keys)},
          {"additionalProperties", false},
          {"$defs", defs}};
}

std::string path_of(const char* schema) { return std::string(MOESIM_SOURCE_DIR) + "/docs/schemas/" + schema; }

void expect_file(const std::string& path, const ordered_json& schema) {
  const std::string expected = schema.dump(1) + "\n";
  if (std::getenv("MOESIM_REFRESH") != nullptr) write_file(path, expected);
  EXPECT_TRUE(read_file(path) == expected)
      << path
      << " is not what the program has: MOESIM_REFRESH=1 build/tests/tools/tools_tests "
         "--gtest_filter='ScenarioSchema.*'";
}

TEST(ScenarioSchema, SaysWhatTheTableOfFieldsSays) {
  const std::string path = path_of("scenario.schema.json");
  const ordered_json defs = ordered_json::parse(read_file(path))["$defs"];
  expect_file(path, scenario_schema(defs));
  for (const Field& field : models::scenario_fields()) {
    if (field.type != FieldType::kObject || !keys_below(std::string(field.path) + ".").empty()) continue;
    EXPECT_TRUE(defs.contains("field:" + std::string(field.path))) << field.path;
  }
}

TEST(ScenarioSchema, OfAModelSaysWhatAnArchitectureHas) {
  expect_file(path_of("model.schema.json"), models::model_schema());
}

}  // namespace
}  // namespace moesim::tools
