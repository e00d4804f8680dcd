// The values of a scenario by path: types, units and how users write them.
//
// A path is a field of the scenario ("parallel.ep", models/workload/fields.h) or a part of an object field
// ("cluster.nic.bandwidth"). Any unambiguous suffix works ("ep", "nic.bandwidth").
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "models/workload/fields.h"
#include "models/workload/origin.h"

namespace moesim::models {

struct ScenarioPath {
  std::string path;
  FieldType type = FieldType::kText;
  std::string about;  // description; "" where the name suffices
  // Returns the value of a resolved scenario in SI units; empty for a path that is not a number.
  std::function<double(const Scenario&)> number = {};
  const Field* field = nullptr;  // null: a part of a field
  // Sets a part in a scenario that is not resolved; empty for a field.
  std::function<void(const ScenarioPath&, Scenario&, const JsonNode&)> set_part = {};

  // Returns the field that contains the path: "cluster" for "cluster.nic.bandwidth".
  std::string_view top() const { return std::string_view(path).substr(0, path.find('.')); }
};

// Sets a value at a path of a scenario that is not resolved and records its origin: the line of `value` where
// it comes from a file, else `origin`. Other parts of an object stay. Throws InputError naming the path for a
// value of another kind or out of range, and where the object to set a part of is missing.
void set(Scenario& scenario, const ScenarioPath& path, const JsonNode& value, const Origin& origin);
// Likewise for a value from the program.
void set(Scenario& scenario, const ScenarioPath& path, const nlohmann::json& value, const Origin& origin);

// Returns the value of a resolved scenario at a path, in SI units; null where it has none.
nlohmann::ordered_json value_at(const Scenario& scenario, const ScenarioPath& path);

// Returns all fields, each followed by its parts, and "dispatcher.OPTION", which sets an option of every
// dispatcher.
std::span<const ScenarioPath> scenario_paths();

// Finds a path, a suffix of one, or an older path of a field. Throws InputError naming the closest path for
// an unknown one, and all candidates for an ambiguous suffix.
ScenarioPath find_path(std::string_view text);

// A value as a user wrote it: JSON for the scenario file, and text for results (SI units).
struct PathValue {
  nlohmann::json json;
  std::string text;
  double number = 0;  // for numeric types
};

// Reads a value of the path's type: "100GBps", "2us", "64", "true", a name. "x2" or "x0.5" multiplies the
// value of `baseline` (resolved). Text that starts with { or [ is JSON. Throws InputError naming the path,
// the text found and the expected unit.
PathValue parse_value(const ScenarioPath& path, std::string_view text, const Scenario* baseline = nullptr);
// Likewise for a number in SI units; counts are rounded.
PathValue value_of(const ScenarioPath& path, double number);
// Whether a text multiplies the value that the path has.
bool is_multiple(const ScenarioPath& path, std::string_view text);

// Splits "path=value" at the first '='. Throws InputError naming `option` where there is none.
std::pair<std::string, std::string> split_assignment(const std::string& text, std::string_view option);

// Formats a value in its usual unit: "50.0 GB/s", "2.0 us", "8".
std::string shown(const ScenarioPath& path, double number);
// Returns the unit in which pages draw the numbers of a path, and its size: {"GB/s", 1e9}; {"", 1} for plain
// numbers.
std::pair<const char*, double> unit_of(const ScenarioPath& path);

}  // namespace moesim::models
