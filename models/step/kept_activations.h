// What one rank keeps of a layer from forward to backward, tensor by tensor, and what its backward needs
// besides.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/programs/program.h"
#include "models/workload/architecture.h"
#include "models/workload/layer_stack.h"
#include "models/workload/parallel.h"
#include "models/workload/training_plan.h"

namespace moesim::models {

// A tensor, or several of one origin.
struct KeptTensor {
  std::string name;  // "attention/queries, keys, values"
  double bytes = 0;
};
double bytes_of(const std::vector<KeptTensor>& tensors);

// What the part of a layer that no dispatcher changes keeps under the plan's recomputation and precision:
// inputs of products, of norms, of the attention core and of activations, as Megatron-Core with Transformer
// Engine saves them, sequence parallel. The input of a MoE layer's router belongs to the dispatcher's
// program.
std::vector<KeptTensor> kept_by_layer(const Architecture& model, const Parallel& parallel,
                                      const TrainingPlan& plan, const LayerKind& kind);

// What the dispatcher's program keeps on a rank, by the names of its operations. Products in fp8 keep their
// inputs in one byte.
std::vector<KeptTensor> kept_by_program(const Program& program, int rank, const Architecture& model,
                                        const TrainingPlan& plan);

// The sum of the same.
double kept_bytes(const Program& program, int rank, const Architecture& model, const TrainingPlan& plan);

// The most that the backward of the layer holds besides what forward kept, without the dispatcher's part.
double backward_transient(const Architecture& model, const Parallel& parallel, const TrainingPlan& plan,
                          const LayerKind& kind);

// Elements of the distinct shapes of weights on a rank among layers of these kinds: Transformer Engine keeps
// a placeholder of each as gradient where products accumulate into the main gradient (get_dummy_wgrad of
// transformer_engine/pytorch/module/base.py).
double distinct_weights(const Architecture& model, const Parallel& parallel,
                        const std::vector<LayerKind>& kinds);

}  // namespace moesim::models
