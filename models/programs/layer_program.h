// The part of a layer that is the same for all dispatchers: mixer (attention or a state-space scan), router,
// shared expert, the FFN of a dense layer, the embedding and the head. It is the same on every rank of the
// dispatch group.
//
// A layer with experts runs `before`, the dispatcher's program and `after`; its backward runs them in
// reverse. Bytes are those of a framework's single kernels; the recipe that prices them
// (models/costs/recipe.h) adds the rest.
#pragma once

#include "models/programs/program.h"
#include "models/workload/architecture.h"
#include "models/workload/layer_stack.h"
#include "models/workload/parallel.h"
#include "models/workload/training_settings.h"

namespace moesim::models {

// Inputs of the programs.
struct LayerContext {
  const Architecture* model = nullptr;
  Parallel parallel;        // tp, cp, ep, etp, seq, micro_batch
  std::int64_t tokens = 0;  // T at MoE entry, the maximum over ranks
  std::int64_t topk = 0;
  DType activation = DType::kBf16;
  DType router = DType::kFp32;
  StepRecompute recompute;
  bool fp8_attention = false;
  AttentionKernel attention = AttentionKernel::kFlash;
  bool sequence_parallel = true;
  Lora lora;
  bool shared_expert = true;  // false: the dispatcher's program runs it
  bool loss_parallel = true;
  bool train = true;
};

// Mixer, then for a layer with experts the router, shared expert and projection to a latent width, else its
// FFN. A layer of one block has no mixer or no FFN.
Program before_experts(const LayerContext& context, const LayerKind& kind);
// The operations after the dispatcher's program in a layer with experts: biases, projection from the latent
// width, residual sum; the backward includes the shared expert's.
Program after_experts(const LayerContext& context);
Program embedding_program(const LayerContext& context);
// Final norm, output projection and loss.
Program head_program(const LayerContext& context);

}  // namespace moesim::models
