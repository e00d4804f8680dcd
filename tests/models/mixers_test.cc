// Mixers that keep a state: their weights by hand, their work beside what is published of it.
#include "models/workload/mixers.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using Mixer = LayerKind::Mixer;

// Input projection, convolution with bias, step sizes, decays and skips of every head, norm, output.
TEST(StateMixer, Mamba2ByHand) {
  Architecture a;
  a.mamba = {4, 16, 8, 2, 4};  // heads, head_dim, state, groups, taps
  const StateMixer m = state_mixer(a, Mixer::kMamba);
  const std::int64_t inner = 64, convolved = inner + 2 * 2 * 8;
  EXPECT_EQ(m.input, 2 * inner + 2 * 2 * 8 + 4);
  EXPECT_EQ(m.parameters(32), 32 * m.input + convolved * 5 + 3 * 4 + inner + inner * 32);
  EXPECT_EQ(m.recurrence_flops, 4 * inner * 8);
}

// Jamba: gate and values, a convolution with bias, steps of rank 3 with a bias, input and output vectors,
// decays of every state, skips, norms of the three.
TEST(StateMixer, Mamba1ByHand) {
  Architecture a;
  a.mamba = {64, 1, 16, 1, 4, 3};
  const StateMixer m = state_mixer(a, Mixer::kMamba);
  EXPECT_EQ(m.parameters(32),
            32 * 2 * 64 + 64 * 5 + 64 * (3 + 2 * 16) + 3 * 64 + 64 + 64 * 16 + 64 + (3 + 16 + 16) + 64 * 32);
  EXPECT_EQ(m.scan_flops, 9 * 64 * 16);
}

// Queries, keys, values, gate; step and decay of every head; a convolution without bias; the norm of a head.
TEST(StateMixer, GatedDeltaNetByHand) {
  Architecture a;
  a.linear = {LinearAttention::Kind::kGatedDelta, 2, 4, 8, 16, 4, 0};
  const StateMixer m = state_mixer(a, Mixer::kLinear);
  const std::int64_t keys = 2 * 8, values = 4 * 16;
  EXPECT_EQ(m.parameters(32),
            32 * (2 * keys + 2 * values + 2 * 4) + 4 * (2 * keys + values) + 2 * 4 + 16 + values * 32);
  EXPECT_EQ(m.state, 4 * 8 * 16);
  EXPECT_EQ(m.recurrence_flops, 6 * m.state);
  // A chunk of 64: half of its scores twice and of two products with keys' and values' columns each, a third
  // with keys'; the state three times.
  EXPECT_EQ(m.scan_flops, 64 * 4 * (3 * 8 + 2 * 16) + 6 * m.state);
}

// A decay for every column and the gate come through projections as narrow as a head.
TEST(StateMixer, KimiDeltaAttentionByHand) {
  Architecture a;
  a.linear = {LinearAttention::Kind::kKimiDelta, 4, 4, 16, 16, 4, 16};
  const std::int64_t inner = 64, narrow = 32 * 16 + 16 * inner;
  EXPECT_EQ(state_mixer(a, Mixer::kLinear).parameters(32),
            3 * 32 * inner + 4 * 3 * inner + 2 * narrow + 32 * 4 + inner + 4 + 16 + inner * 32);
  a.linear.gate_rank = 0;  // Kimi K3's full gate
  EXPECT_EQ(state_mixer(a, Mixer::kLinear).parameters(32),
            3 * 32 * inner + 4 * 3 * inner + narrow + 32 * inner + 32 * 4 + inner + 4 + 16 + inner * 32);
}

// Queries, keys, values and gate, a norm over all heads, the output.
TEST(StateMixer, LightningAttentionByHand) {
  Architecture a;
  a.linear = {LinearAttention::Kind::kLightning, 4, 4, 16, 16, 0, 0};
  EXPECT_EQ(state_mixer(a, Mixer::kLinear).parameters(32), 4 * 32 * 64 + 64 + 64 * 32);
}

// Layers of linear attention cost the same for every token, however long the sequence is.
RC_GTEST_PROP(StateMixer, WorkIsLinear, ()) {
  Architecture a;
  using enum LinearAttention::Kind;
  a.linear = {*rc::gen::element(kLightning, kGatedDelta, kKimiDelta),
              4,
              4,
              *rc::gen::element<std::int64_t>(16, 64, 128),
              *rc::gen::element<std::int64_t>(16, 64, 128),
              4,
              0};
  const StateMixer m = state_mixer(a, Mixer::kLinear);
  // Chunks cost more than the recurrence, which they replace by products.
  RC_ASSERT(m.scan_flops > m.recurrence_flops);
  RC_ASSERT(m.parameters(64) > 64 * (m.input + m.inner));
}

}  // namespace
}  // namespace moesim::models
