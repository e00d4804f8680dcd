// FLOPs of a model in training under one named convention.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/workload/architecture.h"
#include "models/workload/training_settings.h"

namespace moesim::models {

// "Causal": 6 per weight that a token meets (routed experts by top-k; head counted, embedding table not),
// plus three times the forward attention core over the keys that a causal query sees (half the sequence, a
// window where there is one, the chosen keys of sparse attention, whose indexer scores all keys forward and
// the chosen ones twice backward), or the recurrence of a mixer with a state. MTP layers count with their
// head. Recomputation does not count. Megatron-LM reports the same since late 2024.
inline constexpr std::string_view kFlopConvention =
    "6 x weights met by a token (head counted, embedding not) + 3 x causal attention core; recomputation not "
    "counted";

// With adapters a frozen weight counts 4, since it has no gradient, and an adapter's 6.
double training_flops_per_token(const Architecture& model, std::int64_t seq, std::int64_t topk,
                                const Lora& lora = {});

// Forward FLOPs per token by which pipelines are cut: of every layer of the stack, and of the head.
struct LayerFlops {
  std::vector<double> layers;
  double head = 0;
};
LayerFlops flops_of_layers(const Architecture& model, std::int64_t seq, std::int64_t topk,
                           const Lora& lora = {});
// Returns the FLOPs per token of the routed experts of one MoE layer.
double expert_flops_per_token(const Architecture& model, std::int64_t topk, const Lora& lora = {});

}  // namespace moesim::models
