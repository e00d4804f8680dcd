// The table of a scenario's fields, from which its JSON, command line, `--set`, sweep axes, JSON schema and
// help are generated. A new field is one entry of the table (fields_*.cc) and a member of Scenario.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace moesim {
class JsonNode;
}

namespace moesim::models {

struct Origin;
struct Scenario;

enum class FieldType : std::uint8_t {
  kInteger,
  kNumber,
  kBandwidth,  // bytes per second
  kSeconds,
  kBytes,
  kFlops,  // per second
  kBoolean,
  kChoice,  // one of the field's choices
  kText,
  kObject,  // a JSON object or list; a text where the field has a short form
};

// Returns whether values of the type are numbers in SI units.
bool is_number(FieldType type);

// The scopes in which a field has an effect.
enum class Scopes : std::uint8_t { kLayer = 1, kStep = 2, kBoth = 3 };

struct Field {
  std::string_view path = {};  // path in a scenario file, "parallel.ep"
  std::string_view also = {};  // older path that files may still use; empty: none
  // Option of the command line, "--ep"; empty: none. A boolean's option takes no value and negates the
  // default.
  std::string_view flag = {};
  FieldType type = FieldType::kText;
  double low = 0, high = 0;  // bounds of integers and numbers
  std::span<const std::string_view> choices = {};
  std::string_view unit = {};      // counted unit, for people: "tokens"
  std::string_view fallback = {};  // default value as text
  Scopes scopes = Scopes::kBoth;
  std::string_view group = {};  // section of --help: "Plan"
  std::string_view help = {};   // one line

  // Reads a JSON value into the scenario. Throws InputError for a value of another kind or out of range.
  void (*read)(const Field& field, Scenario& scenario, const JsonNode& value) = nullptr;
  // Returns the value as JSON that read() takes; null: the scenario has none, or other fields write it.
  nlohmann::ordered_json (*write)(const Scenario& scenario) = nullptr;
  // Copies the value from another scenario.
  void (*take)(Scenario& to, const Scenario& from) = nullptr;

  bool used_in(Scopes scope) const {
    return (static_cast<unsigned>(scopes) & static_cast<unsigned>(scope)) != 0;
  }
};

inline constexpr std::size_t kMostFields = 128;

// Returns all fields, in the order in which a scenario is read and written.
std::span<const Field> scenario_fields();
// Returns the field at a path, or nullptr.
const Field* find_field(std::string_view path);
std::size_t index_of(const Field& field);

// Reads one field and records it as given, with `origin`, or with the line of `value` where it comes from a
// file. Messages name the place of `value` where it has one.
void set_field(const Field& field, Scenario& scenario, const JsonNode& value, const Origin* origin = nullptr);
// Likewise from command-line text: "8", "true", "zipf:1.2", or JSON that begins with { or [.
void set_field(const Field& field, Scenario& scenario, std::string_view text, const Origin* origin = nullptr);

// Convert a text or a number in SI units to the JSON of a type, "100GBps" to 1e11. Throw InputError naming
// the path, the value found and the expected unit.
nlohmann::json json_of_text(std::string_view path, FieldType type, std::string_view text);
nlohmann::json json_of_number(std::string_view path, FieldType type, double number);

// Returns the first given field that the scenario's scope does not use, or nullptr.
const Field* unused_field(const Scenario& scenario);
// Returns the message for such a field: "training.precision: found with scope layer, ...". `named`: the name
// that the user gave.
std::string unused_message(const Field& field, std::string_view named, const Scenario& scenario);

// Returns the complete scenario, including fields that its scope does not use: Scenario::parse() reads it
// back to one that gives the same answers. Values filled in by Scenario::resolve() appear as if they had been
// given.
nlohmann::ordered_json to_json(const Scenario& scenario);

}  // namespace moesim::models
