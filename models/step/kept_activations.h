// Tensors of a layer that one rank keeps from forward to backward, and the transient memory of its backward.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/programs/program.h"
#include "models/workload/architecture.h"
#include "models/workload/layer_stack.h"
#include "models/workload/parallel.h"
#include "models/workload/training_settings.h"

namespace moesim::models {

// A tensor, or several tensors with one origin.
struct KeptTensor {
  std::string name;  // "attention/queries, keys, values"
  double bytes = 0;
};
double bytes_of(const std::vector<KeptTensor>& tensors);

// Returns the tensors kept by the part of a layer that is the same for all dispatchers, under the plan's
// recomputation and precision: inputs of products, norms, the attention core and activations, as
// Megatron-Core with Transformer Engine saves them, sequence parallel. The input of a MoE layer's router
// belongs to the dispatcher's program.
std::vector<KeptTensor> kept_by_layer(const Architecture& model, const Parallel& parallel,
                                      const TrainingSettings& plan, const LayerKind& kind);

// Returns the tensors that the dispatcher's program keeps on a rank, named by its operations. Products in fp8
// keep their inputs in one byte.
std::vector<KeptTensor> kept_by_program(const Program& program, int rank, const Architecture& model,
                                        const TrainingSettings& plan);

// Returns the sum of these.
double kept_bytes(const Program& program, int rank, const Architecture& model, const TrainingSettings& plan);

// Returns the peak of the layer's backward above what forward kept, without the dispatcher's part.
double backward_transient(const Architecture& model, const Parallel& parallel, const TrainingSettings& plan,
                          const LayerKind& kind);

// Returns the elements of the distinct weight shapes on a rank among layers of these kinds: Transformer
// Engine keeps one placeholder gradient of each where products accumulate into the main gradient
// (get_dummy_wgrad of transformer_engine/pytorch/module/base.py).
double distinct_weights(const Architecture& model, const Parallel& parallel,
                        const std::vector<LayerKind>& kinds);

}  // namespace moesim::models
