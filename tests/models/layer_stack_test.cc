// A model as a sequence of blocks, and how a pipeline cuts it.
#include "models/workload/layer_stack.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using Mixer = LayerKind::Mixer;
using Ffn = LayerKind::Ffn;

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

}  // namespace
}  // namespace moesim::models
