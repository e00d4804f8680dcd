// Summary of a model as it was understood, as text and JSON: parameters, layers by kind, attention, experts
// and source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace moesim::models {

struct Architecture;
struct Scenario;

struct LayerCount {
  std::string kind;  // "attention + experts", "Mamba", "MTP: attention + experts"
  std::int64_t count = 0;
};

// Returns the number of layers of every kind, in order of first occurrence, MTP layers last.
std::vector<LayerCount> layer_counts(const Architecture& model);

// Return "GQA, 32 heads of 128, 8 of keys and values" and "8 experts of 14336, top-2"; "none" without any.
std::string attention_text(const Architecture& model);
std::string experts_text(const Architecture& model);

// Returns a summary in one line: "mixtral-8x7b (built-in): 46.7 B parameters, 12.9 B active; 32 layers ...".
std::string model_text(const Architecture& model);

// Returns {"name", "source", "parameters": {"total", "active"}, "layers": [{"kind", "count"}], "attention",
// "experts", "ignored_keys", "unknown_keys"}; "source" is "built-in", a file, or "" for a model described
// inline.
nlohmann::ordered_json model_summary(const Architecture& model);

// Returns the scenario's model with the scenario's experts per token.
Architecture asked_model(const Scenario& scenario);

}  // namespace moesim::models
