// The part of a layer that no dispatcher changes: mixer (attention or a state-space scan), router, shared
// expert, the FFN of a dense layer, the embedding and the head. The same on every rank of the dispatch group.
//
// A layer with experts runs `before`, the dispatcher's program, `after`; its backward runs the three in the
// opposite order. Bytes are those of the kernels that a framework runs, one by one; the recipe that prices
// them (models/costs/recipe.h) knows the rest.
#pragma once

#include "models/programs/program.h"
#include "models/workload/architecture.h"
#include "models/workload/layer_stack.h"
#include "models/workload/parallel.h"
#include "models/workload/training_plan.h"

namespace moesim::models {

// What the programs depend on.
struct LayerContext {
  const Architecture* model = nullptr;
  Parallel parallel;        // tp, cp, ep, etp, seq, micro_batch
  std::int64_t tokens = 0;  // T at MoE entry, the most of any rank
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

// Mixer, and the router, shared expert and projection to a latent width where the layer has experts, or its
// FFN where it has none. A layer of one block has no mixer or no FFN.
Program before_experts(const LayerContext& context, const LayerKind& kind);
// What follows the dispatcher's program of a layer with experts: biases, projection from the latent width,
// residual sum; its backward holds the shared expert's.
Program after_experts(const LayerContext& context);
Program embedding_program(const LayerContext& context);
// Final norm, output projection and loss.
Program head_program(const LayerContext& context);

}  // namespace moesim::models
