#include "models/workload/state_mixer_kinds.h"

namespace moesim::models {

// Keys, queries and values with a short convolution without a bias, a gate on the output, a decay and a step;
// a norm over a head. The chunked delta rule (arXiv 2406.06484, section 3): scores of keys with keys and with
// queries, the two products with the inverted triangle, the output, half a chunk each; and the state read
// twice and written. The rows of the two products and a chunk of scores go through memory.
StateMixer delta_rule(const LinearAttention& l) {
  StateMixer s;
  const bool kimi = l.kind == LinearAttention::Kind::kKimiDelta;
  const std::int64_t keys = l.key_heads * l.key_dim, v = l.value_heads;
  s.inner = v * l.value_dim;
  s.convolved = 2 * keys + s.inner;
  s.taps = l.conv;
  s.state = v * l.key_dim * l.value_dim;
  s.input = s.convolved + (l.gate_rank > 0 ? l.gate_rank : s.inner) + v;
  if (l.gate_rank > 0) s.narrow.push_back({s.inner, l.gate_rank});
  if (kimi) {
    // Decays by column come through a projection as narrow as a head; one bias a column, one scale a head.
    s.input += l.key_dim;
    s.narrow.push_back({v * l.key_dim, l.key_dim});
    s.scales = v * l.key_dim + v + l.value_dim;
  } else {
    s.input += v;
    s.scales = 2 * v + l.value_dim;
  }
  s.scan_flops = kDeltaChunk * v * (3 * l.key_dim + 2 * l.value_dim) + 6 * s.state;
  s.recurrence_flops = 6 * s.state;
  s.scanned = s.convolved + 2 * v + (kimi ? v * l.key_dim : 0);
  s.between = s.state / kDeltaChunk + v * (l.key_dim + l.value_dim + kDeltaChunk);
  s.launches = 8;
  s.backward_launches = 12;
  s.kept = s.convolved + v * kDeltaChunk;
  return s;
}

}  // namespace moesim::models
