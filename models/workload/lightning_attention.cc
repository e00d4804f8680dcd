#include "models/workload/state_mixer_kinds.h"

namespace moesim::models {

// One product for queries, keys and values and one for the gate, a norm over all heads (MiniMaxText01's
// lightning attention, arXiv 2501.08313). Scores and values of half a block, and the state in and out.
StateMixer lightning(const LinearAttention& l) {
  StateMixer s;
  const std::int64_t keys = l.key_heads * l.key_dim;
  s.inner = l.value_heads * l.value_dim;
  s.input = 2 * keys + 2 * s.inner;
  s.state = l.value_heads * l.key_dim * l.value_dim;
  s.scales = s.inner;
  s.scan_flops = kScanChunk * l.value_heads * (l.key_dim + l.value_dim) + 4 * s.state;
  s.recurrence_flops = 4 * s.state;
  s.scanned = 2 * keys + s.inner;
  s.between = 4 * s.state / kScanChunk;
  s.launches = 4;
  s.backward_launches = 6;
  s.kept = 2 * keys + s.inner;
  return s;
}

}  // namespace moesim::models
