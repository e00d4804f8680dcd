// Effects of a run on many GPUs that a recording of one GPU cannot show: constants with their sources. They
// apply to scaling recordings only; `replay --explain` lists each with its value and its effect on the
// iteration.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moesim {
class Random;
}
namespace moesim::models {
class Profile;
}

namespace moesim::replay {

enum class EffectKind : std::uint8_t {
  gradient_prescale,       // ms/GB: gradients divided by DP and checked for NaN before their reduction
  gradient_clip,           // ms per 1e9 parameters: norm and clipping inside the optimizer
  clip_rows,               // rows: ranks whose experts receive fewer do not clip their up-projections
  embedding_accumulation,  // bytes/parameter: unfused accumulation of the embedding's gradient
  memory_bandwidth,        // GB/s reached by such passes over memory
  exposed_gather,          // us: launch of an all-gather onto an idle GPU, in forward
  exposed_exchange,        // us: the same for an all-to-all
  fused_p2p,               // us: a send and a receive in one call, beyond the time of one alone
  sustained_forward,       // share: matrix products of the experts in forward, at sustained clocks
  sustained_backward,      // share: matrix products of the experts in backward, at sustained clocks
  forward_jitter,          // share: mean of the exponential delays of computing that waits for host launches
  backward_jitter,         // share: the same in backward, where autograd launches further ahead
  expert_spread,           // share: standard deviation between ranks of the experts' computing
  dense_spread,            // share: standard deviation between ranks of all other computing
  loading_stall,  // us: host in a forward step while a later batch is taken over from the loader's worker
  // us per microbatch: get_batch of a running job; a recording contains only the very first one
  batch_loading,
  mask_copy,            // ms/GB: its attention mask, a byte for each pair of tokens, travels to the GPU
  gap_after_forward,    // us: host between forward_step and the send after it
  gap_before_backward,  // us: host between loss_func and backward_step
  gap_after_backward,   // us: host between backward_step and a following forward or receive
  gap_other,            // us: host between any other two operations
  pipeline_bandwidth,   // GB/s between stages inside a node, for pipelines that span nodes
};
inline constexpr std::size_t kEffects = 22;

struct Effect {
  std::string_view name;
  double value = 0;
  double sigma = 0;  // one standard deviation, same unit
  std::string_view unit;
  std::string source;
  std::string_view what;
};

// The defaults, overridden by constants of a profile with the same names.
class Effects {
 public:
  Effects();
  explicit Effects(const models::Profile& profile);

  double operator[](EffectKind kind) const { return list_[static_cast<std::size_t>(kind)].value; }
  // Returns the effects with one switched off, to measure its contribution.
  Effects without(EffectKind kind) const;
  // Returns values drawn from normal distributions around these, not below zero.
  Effects draw(Random& random) const;
  void set(EffectKind kind, double value) { list_[static_cast<std::size_t>(kind)].value = value; }
  const std::array<Effect, kEffects>& list() const { return list_; }

  // Returns microseconds for reading and writing `bytes` of memory.
  double memory_us(double bytes) const { return bytes / ((*this)[EffectKind::memory_bandwidth] * 1e3); }

 private:
  std::array<Effect, kEffects> list_;
};

}  // namespace moesim::replay
