// The mixers that keep a state, one file a kind: weights, FLOPs and traffic of each. Worked examples of all:
// docs/spec.md 6.4.
#pragma once

#include "models/workload/state_mixer.h"

namespace moesim::models {

StateMixer mamba1(const Mamba& sizes);
StateMixer mamba2(const Mamba& sizes);
StateMixer lightning(const LinearAttention& sizes);
StateMixer delta_rule(const LinearAttention& sizes);

// Tokens of a chunk: mamba_ssm's default, and the block of lightning attention (arXiv 2401.04658); for the
// delta rule that of flash-linear-attention, the only one its kernels support.
inline constexpr std::int64_t kScanChunk = 256, kDeltaChunk = 64;

}  // namespace moesim::models
