// Which mixer and which FFN every layer of somebody else's model has, by the keys that say it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/workload/architecture.h"
#include "models/workload/model_config.h"

namespace moesim::models {

// Letters of a hybrid model's layers of one block (Architecture::pattern); empty where the file says none.
std::string config_pattern(const ModelConfig& config);

// A letter per layer as in Architecture::mixers: of `layers` layers. Throws InputError for a list of another
// length and for kinds of layers that nothing here describes, at their key.
std::string config_mixers(const ModelConfig& config, std::int64_t layers);

// Layers that differ in their sizes (NVIDIA's Puzzle): mixers and FFNs as in Architecture, the sizes of the
// dense FFNs in their order, and how many heads share keys and values. Throws InputError for blocks that are
// described otherwise.
struct ConfigBlocks {
  std::string mixers, ffns;
  std::vector<std::int64_t> sizes;
  std::int64_t heads_in_group = 0;
};
std::optional<ConfigBlocks> config_blocks(const ModelConfig& config, std::int64_t hidden,
                                          std::int64_t layers);

// The same as in Architecture::ffns, of a model with experts.
std::string config_ffns(const ModelConfig& config, std::int64_t layers);

// Puts letters into the model, by its short forms (window_every; dense_layers and moe_every) where they say
// it.
void set_mixers(Architecture& model, const std::string& letters);
void set_ffns(Architecture& model, const std::string& letters);

}  // namespace moesim::models
