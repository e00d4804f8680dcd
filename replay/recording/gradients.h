// How many gradient elements a rank reduces, and over which group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/workload/architecture.h"
#include "replay/recording/denoise.h"

namespace moesim::replay {

struct GradientSizes {
  std::int64_t dense = 0;   // elements reduced over DP
  std::int64_t expert = 0;  // elements reduced over expert-DP
  int element_bytes = 4;  // float32 buffers beside experts, whatever early recordings wrote; else as recorded
  std::int64_t embedding = 0;  // of these dense ones, the word embedding on the first stage (0: unknown)

  std::int64_t parameters() const { return dense + expert; }
};

// The weights of a rank, as the models count them: those of a stage's layers, all of them with experts, and
// of the embedding and the head where the stage holds them.
GradientSizes stage_elements(const models::Architecture& model, const Topology& topology,
                             bool embedding = false, bool head = false);

// What recordings leave open about a model, from its shapes.
struct ModelFacts {
  int layers = 0;                             // of the whole model; 0 unknown
  int experts = 0;                            // routed experts; 0 for a dense model
  std::int64_t hidden = 0;                    // 0 unknown
  std::optional<models::Architecture> model;  // with the recording's own layers and experts
};

// The shapes of `architecture`, or of the built-in one whose sizes agree with the recording: the same hidden
// size, and gradient buffers that leave a whole number of vocabulary rows, a multiple of 64, for the
// embedding. Nothing is filled in where none agrees.
ModelFacts model_facts(const traces::NamedTopology& named, const CleanJob& job,
                       const models::Architecture* architecture);

// Sizes of one place. Early recordings write one line with the sum of dense and expert elements (and a wrong
// type); it is split by the model's shapes. `warnings` gets one line when that is not possible and all is
// taken as dense.
GradientSizes gradient_sizes(const CleanJob& job, const PlaceKey& key, const ModelFacts& facts,
                             std::vector<std::string>& warnings);

}  // namespace moesim::replay
