// Activation recomputation: values that backward computes again instead of keeping.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moesim::models {

// Recomputation inside a dispatcher's program: none, the experts' activation, or the whole MoE layer with its
// collectives.
enum class Recompute : std::uint8_t { kNone, kActivation, kFull };

// Recomputation in backward, named as in Megatron's --recompute-modules.
struct StepRecompute {
  bool full = false;        // every layer
  bool attention = false;   // "core_attn": the attention core
  bool latent = false;      // "mla_up_proj": MLA's up projections
  bool norms = false;       // "layernorm"
  bool activation = false;  // "moe_act": the experts' activation
  bool moe = false;         // "moe": the whole MoE layer with its collectives
  bool dense = false;       // "mlp": the FFN of dense layers
  bool shared = false;      // "shared_experts"
  bool streams = false;     // "mhc": the streams of hyper-connections (residual.h)

  bool any() const {
    return full || attention || latent || norms || activation || moe || dense || shared || streams;
  }
  // Returns the recomputation inside a dispatcher's program; that of a whole layer runs around it.
  Recompute of_program() const {
    if (moe) return Recompute::kFull;
    return activation ? Recompute::kActivation : Recompute::kNone;
  }
  friend bool operator==(const StepRecompute&, const StepRecompute&) = default;
  // "none", or the names joined with "+".
  std::string text() const;
  // Inverse of text(); separators "+", "," or blanks; "selective" is "core_attn", "activation" is "moe_act".
  // Throws InputError with the nearest name.
  static StepRecompute parse(std::string_view text);
};

}  // namespace moesim::models
