// Gradient elements that a rank reduces, and their groups.
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
  int element_bytes = 4;    // float32 buffers with experts, whatever early recordings wrote; else as recorded
  std::int64_t embedding = 0;  // part of dense: the word embedding on the first stage (0: unknown)

  std::int64_t parameters() const { return dense + expert; }
};

// Returns the weights of a rank as the models count them: of a stage's layers, all with experts, and of the
// embedding and the head where the stage contains them.
GradientSizes stage_elements(const models::Architecture& model, const Topology& topology,
                             bool embedding = false, bool head = false);

// Facts about a model that recordings leave open, from its shapes.
struct ModelFacts {
  int layers = 0;                             // of the whole model; 0 unknown
  int experts = 0;                            // routed experts; 0 for a dense model
  std::int64_t hidden = 0;                    // 0 unknown
  std::optional<models::Architecture> model;  // with the recording's own layers and experts
};

// Returns the shapes of `architecture`, or of the built-in one whose sizes match the recording: the same
// hidden size, and gradient buffers that leave a whole number of vocabulary rows, a multiple of 64, for the
// embedding. Leaves unknown values where none matches.
ModelFacts model_facts(const traces::NamedTopology& named, const CleanJob& job,
                       const models::Architecture* architecture);

// Returns the sizes of one place. Early recordings write one line with the sum of dense and expert elements
// (and a wrong type); the model's shapes split it. Where that is impossible all is taken as dense and
// `warnings` gets one line.
GradientSizes gradient_sizes(const CleanJob& job, const PlaceKey& key, const ModelFacts& facts,
                             std::vector<std::string>& warnings);

}  // namespace moesim::replay
