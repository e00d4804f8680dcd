// A model as a sequence of blocks, and how a pipeline cuts it.
#include "models/workload/layer_stack.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "models/workload/mixers.h"
#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using Ffn = LayerKind::Ffn;
using Mixer = LayerKind::Mixer;

TEST(LayerStack, DenseLayersThenExpertsThenMtp) {
  Architecture a = testing::small_model();
  a.mtp_layers = 1;
  const LayerKind moe{Mixer::kAttention, Ffn::kMoe, false}, mtp{Mixer::kAttention, Ffn::kMoe, true};
  EXPECT_EQ(layer_stack(a), (std::vector<LayerKind>{{}, moe, moe, moe, mtp}));
  a.experts = 0;
  EXPECT_EQ(layer_stack(a).back(), (LayerKind{Mixer::kAttention, Ffn::kDense, true}));
}

// All but the last of every three layers are windowed.
TEST(LayerStack, WindowsLeaveOneLayerOut) {
  Architecture a = testing::small_model();
  a.layers = 6;
  a.attention.window = 16;
  a.attention.window_every = 3;
  std::vector<Mixer> mixers;
  for (const LayerKind& kind : layer_stack(a)) mixers.push_back(kind.mixer);
  const Mixer w = Mixer::kWindowed, f = Mixer::kAttention;
  EXPECT_EQ(mixers, (std::vector<Mixer>{w, w, f, w, w, f}));
}

TEST(LayerStack, PatternsAreOneBlockALayer) {
  Architecture a = testing::small_model();
  a.pattern = "M*E-";
  EXPECT_EQ(layer_stack(a), (std::vector<LayerKind>{{Mixer::kMamba, Ffn::kNone, false},
                                                    {Mixer::kAttention, Ffn::kNone, false},
                                                    {Mixer::kNone, Ffn::kMoe, false},
                                                    {Mixer::kNone, Ffn::kDense, false}}));
}

std::vector<std::size_t> sizes_of(const std::vector<Chunk>& chunks) {
  std::vector<std::size_t> sizes;
  sizes.reserve(chunks.size());
  for (const Chunk& chunk : chunks) sizes.push_back(chunk.layers.size());
  return sizes;
}

std::vector<Chunk> cut(std::int64_t layers, std::int64_t pp, std::int64_t vpp, std::vector<double> weight,
                       double embedding = 0, double head = 0) {
  Architecture a = testing::small_model();
  a.layers = layers;
  Parallel p;
  p.pp = pp;
  p.vpp = vpp;
  return cut_into_chunks(a, p, weight, embedding, head);
}

// Evenly where layers divide, whatever they weigh (Megatron's default).
TEST(CutIntoChunks, EvenlyWhereLayersDivide) {
  EXPECT_EQ(sizes_of(cut(8, 2, 2, {9, 1, 1, 1, 1, 1, 1, 1}, 5, 5)), (std::vector<std::size_t>{2, 2, 2, 2}));
}

// Five layers on two stages: the head or the embedding weighs as much as a layer, and stands for one.
TEST(CutIntoChunks, ElseTheHeaviestIsAsLightAsPossible) {
  EXPECT_EQ(sizes_of(cut(5, 2, 1, {1, 1, 1, 1, 1}, 0, 1)), (std::vector<std::size_t>{3, 2}));
  EXPECT_EQ(sizes_of(cut(5, 2, 1, {1, 1, 1, 1, 1}, 1, 0)), (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(sizes_of(cut(5, 2, 1, {4, 1, 1, 1, 1})), (std::vector<std::size_t>{1, 4}));
}

TEST(CutIntoChunks, RefusesMoreChunksThanLayers) {
  EXPECT_EQ(moesim::testing::message_of([] {
              cut(4, 4, 2, {1, 1, 1, 1});
            }),
            "parallel: found 8 pipeline chunks (pp 4 x vpp 2), expected at most the 4 layers of small");
}

double heaviest(const std::vector<Chunk>& chunks, const std::vector<double>& weight, double embedding,
                double head) {
  double most = 0;
  for (const Chunk& c : chunks) {
    double sum = (c.embedding ? embedding : 0) + (c.head ? head : 0);
    for (std::size_t i = 0; i < c.layers.size(); ++i) sum += weight[c.first + i];
    most = std::max(most, sum);
  }
  return most;
}

// Every layer once and in order, no chunk empty, and no cut of the same order is lighter.
RC_GTEST_PROP(CutIntoChunks, IsTheBestCut, ()) {
  const int layers = *rc::gen::inRange(2, 10), pp = *rc::gen::inRange(1, std::min(layers, 4) + 1);
  std::vector<double> weight;
  weight.reserve(static_cast<std::size_t>(layers));
  for (int i = 0; i < layers; ++i) weight.push_back(*rc::gen::inRange(1, 10));
  const double embedding = *rc::gen::inRange(0, 6), head = *rc::gen::inRange(0, 6);
  const auto chunks = cut(layers, pp, 1, weight, embedding, head);
  std::size_t next = 0;
  for (const Chunk& c : chunks) {
    RC_ASSERT(c.first == next);
    RC_ASSERT(!c.layers.empty());
    next += c.layers.size();
  }
  RC_ASSERT(next == static_cast<std::size_t>(layers));
  if (layers % pp == 0) return;
  // best[c][i]: the lightest heaviest chunk of the first i layers in c chunks.
  const auto n = static_cast<std::size_t>(layers), k = static_cast<std::size_t>(pp);
  std::vector<std::vector<double>> best(k + 1, std::vector<double>(n + 1, 1e30));
  best[0][0] = 0;
  for (std::size_t c = 1; c <= k; ++c)
    for (std::size_t i = 1; i <= n; ++i)
      for (std::size_t from = 0; from < i; ++from) {
        const double own = std::accumulate(weight.begin() + static_cast<std::ptrdiff_t>(from),
                                           weight.begin() + static_cast<std::ptrdiff_t>(i), 0.0) +
                           (c == 1 ? embedding : 0) + (c == k ? head : 0);
        best[c][i] = std::min(best[c][i], std::max(best[c - 1][from], own));
      }
  RC_ASSERT(heaviest(chunks, weight, embedding, head) <= best[k][n] * (1 + 1e-6));
}

// Mixers that keep a state: their weights by hand, their work beside what is published of it.

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
