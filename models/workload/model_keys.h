// The keys of other people's model files: those that make another model than we can describe are refused by
// name, and so is every key that may bring weights and is not known to bring none.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// Throws InputError at the first key of a Hugging Face config, or its family, that changes the model's layers
// in a way that Architecture has no words for. A key that is null, false, 0 or empty changes nothing.
void refuse_other_models(const JsonNode& config);

// Keys that say something and are not used, in file order.
struct KeyUse {
  std::vector<std::string> irrelevant;  // known to leave sizes and layers alone
  std::vector<std::string> unknown;     // names and fractions, which bring no weights
};
// `asked`: the keys that were read. Throws InputError at another key with a value that may bring weights: a
// whole number, a switch that is on, a list or an object.
KeyUse key_use(const JsonNode& config, const std::set<std::string, std::less<>>& asked);

}  // namespace moesim::models
