// Mixer and FFN of every layer of a third-party model, from its keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/workload/architecture.h"
#include "models/workload/model_config.h"

namespace moesim::models {

// Returns the letters of a hybrid model's one-block layers (Architecture::pattern); empty where the file has
// none.
std::string config_pattern(const ModelConfig& config);

// Attention over compressed keys (DeepSeek-V4): a letter per layer, and the tokens of a key where an indexer
// chooses and where all are taken; 0: no such layer. From "compress_ratios", from "layer_types" and
// "compress_rates", or the family's default; nullopt for other models.
struct Compression {
  std::string mixers;
  std::int64_t chosen = 0, all = 0;
};
std::optional<Compression> config_compression(const ModelConfig& config);

// Returns the tokens of a sliding window, of Llama 4's chunks; 0: none, also where a file says -1.
std::int64_t config_window(const ModelConfig& config);

// Returns a letter per layer (Architecture::mixers) for `layers` layers. Throws InputError at the key for a
// list of another length and for unknown kinds of layers.
std::string config_mixers(const ModelConfig& config, std::int64_t layers);

// Layers of different sizes (NVIDIA's Puzzle): mixers and FFNs as in Architecture, the sizes of the dense
// FFNs in order, and the number of heads that share keys and values. Throws InputError for blocks in another
// format.
struct ConfigBlocks {
  std::string mixers, ffns;
  std::vector<std::int64_t> sizes;
  std::int64_t heads_in_group = 0;
};
std::optional<ConfigBlocks> config_blocks(const ModelConfig& config, std::int64_t hidden,
                                          std::int64_t layers);

// Returns the letters of Architecture::ffns for a model with experts.
std::string config_ffns(const ModelConfig& config, std::int64_t layers);

// Stores letters in the model, by its short forms (window_every; dense_layers and moe_every) where these
// suffice.
void set_mixers(Architecture& model, const std::string& letters);
void set_ffns(Architecture& model, const std::string& letters);

}  // namespace moesim::models
