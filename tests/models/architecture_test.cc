// Parameter counts of an architecture by hand, and which layers hold experts.
#include "models/workload/architecture.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>

#include "models/workload/model_names.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

// H 64: queries 4*16, keys and values 2*16 each, the projection back.
TEST(Attention, GroupedParametersByHand) {
  Attention a = testing::small_model().attention;
  EXPECT_EQ(a.parameters(64), 64 * (64 + 2 * 32) + 64 * 64);
  a.qkv_bias = a.output_bias = a.qk_norm = a.sinks = true;
  EXPECT_EQ(a.parameters(64), 64 * 128 + 64 * 64 + (64 + 2 * 32) + 64 + 2 * 16 + 4);
}

// MLA: down and up for queries with a norm between, the same for keys and values with a shared rotary part.
TEST(Attention, LatentParametersByHand) {
  Attention a;
  a.kind = Attention::Kind::kLatent;
  a.heads = 4;
  a.q_rank = 24;
  a.kv_rank = 16;
  a.nope_dim = 8;
  a.rope_dim = 4;
  a.value_dim = 8;
  const std::int64_t queries = 64 * 24 + 24 + 24 * 4 * (8 + 4),
                     rest = 64 * (16 + 4) + 16 + 16 * 4 * (8 + 8) + 4 * 8 * 64;
  EXPECT_EQ(a.parameters(64), queries + rest);
  a.q_rank = 0;  // projected directly
  EXPECT_EQ(a.parameters(64), 64 * 4 * (8 + 4) + rest);
  EXPECT_EQ(a.score_dim(), 12);
  EXPECT_EQ(a.output_dim(), 8);
}

TEST(Architecture, ParametersByHand) {
  Architecture a = testing::small_model();
  const std::int64_t attention = 64 * 128 + 64 * 64, norms = 2 * 64, expert = 3 * 64 * 32;
  const std::int64_t without = 2 * 128 * 64 + 64 + 4 * (attention + norms) + 3 * 64 * 96 + 3 * 64 * 8;
  EXPECT_EQ(a.parameters_per_expert(), expert);
  EXPECT_EQ(a.parameters(), without + 3 * 8 * expert);
  EXPECT_EQ(a.active_parameters(), without + 3 * 2 * expert);
  a.tied_embeddings = true;
  a.gated = false;
  a.shared_ffn = 32;
  EXPECT_EQ(a.parameters(), without - 128 * 64 - 64 * 96 + 3 * (8 * 2 + 2) * 64 * 32);
  // Rows of another width meet the experts, behind and before a projection.
  a.latent = 16;
  EXPECT_EQ(a.parameters_per_expert(), 2 * 16 * 32);
}

TEST(Architecture, ExpertsAreInEverySoManythLayerBehindTheDenseOnes) {
  Architecture a = testing::small_model();
  a.layers = 8;
  a.dense_layers = 1;
  a.moe_every = 2;
  std::vector<std::int64_t> moe;
  for (std::int64_t layer = 0; layer < 8; ++layer)
    if (a.is_moe_layer(layer)) moe.push_back(layer);
  EXPECT_EQ(moe, (std::vector<std::int64_t>{2, 4, 6}));
  EXPECT_EQ(a.moe_layers(), 3);
}

RC_GTEST_PROP(Architecture, MoeLayersAreThoseThatAre, ()) {
  Architecture a = testing::small_model();
  a.layers = *rc::gen::inRange(1, 40);
  a.dense_layers = *rc::gen::inRange<std::int64_t>(0, a.layers + 1);
  a.moe_every = *rc::gen::inRange(1, 6);
  a.experts = *rc::gen::element<std::int64_t>(0, 8);
  std::int64_t counted = 0;
  for (std::int64_t layer = 0; layer < a.layers; ++layer) counted += a.is_moe_layer(layer) ? 1 : 0;
  RC_ASSERT(a.moe_layers() == counted);
}

// Requirements on every size for programs to be built from it.
TEST(BuiltInArchitectures, HaveNamesOfTheirOwnAndWholeSizes) {
  std::set<std::string> names;
  for (const Architecture& a : builtin_architectures()) {
    EXPECT_TRUE(names.insert(a.name).second) << a.name;
    EXPECT_GT(a.hidden * a.layers * a.vocabulary, 0) << a.name;
    EXPECT_GT(a.attention.heads, 0) << a.name;
    if (a.attention.kind == Attention::Kind::kGrouped) {
      EXPECT_EQ(a.attention.heads % a.attention.kv_heads, 0) << a.name;
    }
    if (a.experts > 0) {
      EXPECT_LE(a.topk, a.experts) << a.name;
      EXPECT_EQ(a.experts % a.routing_groups, 0) << a.name;
      EXPECT_GT(a.moe_layers(), 0) << a.name;
      EXPECT_LT(a.active_parameters(), a.parameters()) << a.name;
    }
    if (a.pattern.empty() && a.moe_layers() < a.layers) {
      EXPECT_GT(a.dense_ffn, 0) << a.name;
    }
    if (!a.pattern.empty()) {
      EXPECT_EQ(a.layers, static_cast<std::int64_t>(a.pattern.size())) << a.name;
    }
  }
}

}  // namespace
}  // namespace moesim::models
