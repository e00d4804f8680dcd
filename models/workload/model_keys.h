// The keys of third-party model files. Keys that describe a model beyond Architecture are refused by name,
// and so is every unknown key that may add weights.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// Throws InputError at the first key of a Hugging Face config, or at its family, that changes the model's
// layers in a way that Architecture cannot describe. A key that is null, false, 0 or empty changes nothing.
void refuse_other_models(const JsonNode& config, std::string_view family);

// Unused keys with a value, in file order.
struct KeyUse {
  std::vector<std::string> irrelevant;  // known not to change sizes or layers
  std::vector<std::string> unknown;     // names and fractions, which add no weights
};
// `family` as ModelConfig::family(), `asked`: the keys that were read. Throws InputError at another key with a value that may add weights: a
// whole number, a switch that is on, a list or an object.
KeyUse key_use(const JsonNode& config, std::string_view family,
               const std::set<std::string, std::less<>>& asked);

}  // namespace moesim::models
