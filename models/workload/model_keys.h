// What the keys of other people's model files mean: those that make another model than we can describe are
// refused by name, those that nobody here knows are named.
#pragma once

#include <string>

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// Throws InputError at the first key of a Hugging Face config that changes the model's layers in a way that
// Architecture has no words for. A key that is null, false, 0 or empty changes nothing.
void refuse_other_models(const JsonNode& config);

// Returns a sentence that names the keys which are neither used nor known to leave sizes and layers alone;
// empty where there are none.
std::string unknown_keys(const JsonNode& config);

}  // namespace moesim::models
