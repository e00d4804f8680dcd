// A model as JSON in our own form: reading, writing, changing one size of it, and its schema. All of them come
// from one list of what an Architecture has (architecture_json.cc).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace moesim {
class JsonNode;
}

namespace moesim::models {

struct Architecture;

// Reads an object of our own form. `base`: the model that it changes; null: none.
Architecture parse_own(const JsonNode& node, const std::string& name, const Architecture* base);

// Returns an object that Architecture::parse() reads back to an equal model.
nlohmann::ordered_json model_object(const Architecture& model);
// Returns the name of the built-in model that it equals, else model_object().
nlohmann::ordered_json to_json(const Architecture& model);

// Returns the JSON Schema of a model file (`moesim schema model`).
nlohmann::ordered_json model_schema();

// A size or a switch of a whole model, which change_model() changes by its key.
struct ModelSize {
  std::string key;
  bool is_switch = false;
  std::string about;  // "" where the key suffices
};
std::span<const ModelSize> model_sizes();

// Changes one size or switch of a model. Throws InputError at `value` for an impossible number and for a
// contradiction with the rest of the model.
void change_model(Architecture& model, std::string_view key, const JsonNode& value);

}  // namespace moesim::models
