// The table of a scenario's fields, from which its JSON, command line, `--set`, sweep axes, JSON schema, help
// and refusals are generated. A new field is one entry of the table (fields_*.cc) and a member of Scenario.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// A condition of the rest of a scenario on a field's value.
struct Condition {
  bool (*holds)(const Scenario&);
  // What is found and expected where it does not hold: "{} with tp 1, whose ranks hold all rows; expected tp >
  // 1". {} is the value, {parallel.ep} another field's, {model} the model's name, {profile} the GPU's.
  std::string_view words;
  std::string_view cause = {};  // path of the size that breaks it; empty: others do
};

struct Field {
  std::string_view path = {};  // path in a scenario file, "parallel.ep"
  std::string_view also = {};  // older path that files may still use; empty: none
  // Option of the command line, "--ep"; empty: none. A boolean's option takes no value and negates the
  // default.
  std::string_view flag = {};
  FieldType type = FieldType::kText;
  double low = 1, high = 2147483648.0;  // bounds of integers and numbers
  std::span<const std::string_view> choices = {};
  std::string_view unit = {};      // counted unit, for people: "tokens"
  std::string_view fallback = {};  // default value as text
  Scopes scopes = Scopes::kBoth;
  std::string_view group = {};  // section of --help: "Plan"
  std::string_view help = {};   // one line
  std::string form = {};        // JSON schema of an object; of other types where they take more than theirs

  // A value that is not the default changes no answer where one of these does not hold: resolve() drops it,
  // and a user who gave it is told (models/question).
  std::vector<Condition> used_if = {};
  // Scenario::resolve() refuses a value that is not the default where one of these does not hold.
  std::vector<Condition> valid_if = {};
  bool said_default = false;  // conditions are those of a default that was given, too
  bool said_itself =
      false;  // conditions are only those of a value that was given itself, not by a short form

  // Reads a JSON value into the scenario. Throws InputError for a value of another kind or out of range.
  void (*read)(const Field& field, Scenario& scenario, const JsonNode& value) = nullptr;
  // Returns the value as JSON that read() takes; null: the scenario has none, or other fields write it.
  nlohmann::ordered_json (*value)(const Field& field, const Scenario& scenario) = nullptr;
  // Returns whether a scenario's JSON has the value; nullptr: always.
  bool (*written)(const Field& field, const Scenario& scenario) = nullptr;
  // Copies the value from another scenario.
  void (*take)(Scenario& to, const Scenario& from) = nullptr;
  bool (*same)(const Scenario& one, const Scenario& other) = nullptr;

  bool used_in(Scopes scope) const {
    return (static_cast<unsigned>(scopes) & static_cast<unsigned>(scope)) != 0;
  }
  // Returns value() where it is written, else null.
  nlohmann::ordered_json write(const Scenario& scenario) const;
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

// A setting that changes nothing beside the rest of a scenario, such as sequence parallelism at TP 1.
struct WithoutEffect {
  std::string_view path;
  std::string found;  // value and reason: "false with tp 1, whose ranks hold all rows"
  std::string message;
  std::string_view cause = {};  // as in Condition
};
// Returns the settings of a scenario with known sizes that differ from their defaults and change no answer.
std::vector<WithoutEffect> without_effect(const Scenario& sized);
// Sets them to their defaults, as if they had not been given.
void drop_without_effect(Scenario& sized);
// Throws InputError for the first value with a condition in Field::valid_if that does not hold.
void check_valid(const Scenario& scenario);

// Returns the complete scenario, including fields that its scope does not use: Scenario::parse() reads it
// back to one that gives the same answers. Values filled in by Scenario::resolve() appear as if they had been
// given.
nlohmann::ordered_json to_json(const Scenario& scenario);

// Returns the JSON schema of a scenario file.
nlohmann::ordered_json scenario_schema();

}  // namespace moesim::models
