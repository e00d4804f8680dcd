// A model as the object of a scenario file.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace moesim::models {

struct Architecture;

// Returns an object that Architecture::parse() reads back to an equal model.
nlohmann::ordered_json model_object(const Architecture& model);
// Returns the name of the built-in model that it equals, else model_object().
nlohmann::ordered_json to_json(const Architecture& model);

}  // namespace moesim::models
