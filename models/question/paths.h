// The values of a scenario by their path: what can be changed, in which unit, how a user writes it.
//
// A path is a field of the scenario ("parallel.ep", models/workload/fields.h) or a part of one that is an
// object ("cluster.nic.bandwidth"). Any unambiguous suffix works ("ep", "nic.bandwidth").
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
  std::string about;  // for people; "" where the name says it
  // Returns the value of a resolved scenario in SI units; empty where it is no number.
  std::function<double(const Scenario&)> number = {};
  const Field* field = nullptr;  // null: a part of a field
  // Sets a part in a scenario that is not resolved; empty for a field.
  std::function<void(const ScenarioPath&, Scenario&, const JsonNode&)> set_part = {};

  // The field it is or is a part of: "cluster" for "cluster.nic.bandwidth".
  std::string_view top() const { return std::string_view(path).substr(0, path.find('.')); }
};

// Sets a value at a path of a scenario that is not resolved, and notes where it comes from: the line of
// `value` where it stands in a file, else `origin`. The rest of an object that a part is changed of stays.
// Throws InputError that names the path for a value of another kind or out of range, and where there is
// nothing to set a part of.
void set(Scenario& scenario, const ScenarioPath& path, const JsonNode& value, const Origin& origin);
// The same for a value of the program.
void set(Scenario& scenario, const ScenarioPath& path, const nlohmann::json& value, const Origin& origin);

// Returns the value of a resolved scenario at a path, in SI units; null where it has none.
nlohmann::ordered_json value_at(const Scenario& scenario, const ScenarioPath& path);

// All fields, each with its parts behind it. Beside them "dispatcher.OPTION" sets an option of every
// dispatcher.
std::span<const ScenarioPath> scenario_paths();

// Takes a path, its end, or an older path of a field. Throws InputError naming the closest path for one that
// is unknown, and all candidates for an ambiguous end.
ScenarioPath find_path(std::string_view text);

// A value as a user wrote it: what goes into the scenario file, and how results show it (SI units).
struct PathValue {
  nlohmann::json json;
  std::string text;
  double number = 0;  // of types that are numbers
};

// Reads a value of the path's type: "100GBps", "2us", "64", "true", a name. "x2" or "x0.5" is a multiple of
// what `baseline` (resolved) has. Text that starts with { or [ is JSON. Throws InputError that names the
// path, what was found and which unit is expected.
PathValue parse_value(const ScenarioPath& path, std::string_view text, const Scenario* baseline = nullptr);
// The same for a number in SI units; counts are rounded.
PathValue value_of(const ScenarioPath& path, double number);

// "path=value" cut at the first '='. Throws InputError naming `option` where there is none.
std::pair<std::string, std::string> split_assignment(const std::string& text, std::string_view option);

// A value in the unit that people use: "50.0 GB/s", "2.0 us", "8".
std::string shown(const ScenarioPath& path, double number);
// The unit in which pages draw the numbers of a path, and how much one of it is: {"GB/s", 1e9}; {"", 1} of
// plain numbers.
std::pair<const char*, double> unit_of(const ScenarioPath& path);

}  // namespace moesim::models
