// The core of attention by a layer's kind: windows, chunks, an indexer's choice.
#include "models/programs/attention_core.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/costs/attention.h"
#include "models/programs/projections.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using Mixer = LayerKind::Mixer;

double pairs(const AttentionCore& c) {
  return mean_keys(c.seq, c.window, c.chunked) * static_cast<double>(c.heads * (c.score_dim + c.value_dim));
}

Architecture sparse_model() {
  Architecture a = testing::small_model();
  Attention& t = a.attention;
  t.kind = Attention::Kind::kLatent;
  t.heads = 8;
  t.q_rank = 24, t.kv_rank = 32, t.nope_dim = 16, t.rope_dim = 8, t.value_dim = 16;
  t.index_heads = 4, t.index_dim = 8, t.index_topk = 64;
  return a;
}

TEST(AttentionCore, ChunksSeeTheirOwnTokens) {
  EXPECT_DOUBLE_EQ(mean_keys(256, 64, true), 32);
  EXPECT_DOUBLE_EQ(mean_keys(64, 64, true), 32);  // one chunk
  // Three chunks of 64 and one of 32.
  EXPECT_DOUBLE_EQ(mean_keys(224, 64, true), (3 * 64 * 32 + 32 * 16) / 224.0);
  Architecture a = testing::small_model();
  a.attention.window = 64;
  a.attention.chunked = true;
  EXPECT_TRUE(attention_core(a, Mixer::kWindowed, 256, 1).chunked);
  EXPECT_EQ(attention_core(a, Mixer::kAttention, 256, 1).window, 0);
}

TEST(AttentionCore, WindowedLayersHaveHeadsOfTheirOwn) {
  Architecture a = testing::small_model();
  a.attention.window = 32;
  a.windowed = a.attention;
  a.windowed.heads = 8, a.windowed.kv_heads = 4, a.windowed.head_dim = 24, a.windowed.value_dim = 8;
  const AttentionCore core = attention_core(a, Mixer::kWindowed, 256, 2);
  EXPECT_EQ(core.heads, 4);
  EXPECT_EQ(core.kv_heads, 2);
  EXPECT_EQ(core.score_dim, 24);
  EXPECT_EQ(core.value_dim, 8);
  EXPECT_EQ(core.window, 32);
  const Projections p = projections_of(a, Mixer::kWindowed, 1);
  EXPECT_EQ(p.gathered[0].n, 8 * 24 + 4 * (24 + 8));
  EXPECT_EQ(p.out.k, 8 * 8);
  EXPECT_EQ(mixer_parameters(a, Mixer::kWindowed), 64 * p.gathered[0].n + 64 * 64);
}

// The cheaper of two ways: heads by heads over all keys, or 32 + 8 and 32 columns of the chosen ones.
TEST(AttentionCore, SparseTakesTheCheaperWay) {
  const Architecture a = sparse_model();
  const AttentionCore dense = attention_core(a, Mixer::kAttention, 96, 1);
  EXPECT_FALSE(dense.gathered);
  EXPECT_EQ(dense.score_dim, 24);
  const AttentionCore sparse = attention_core(a, Mixer::kAttention, 1024, 1);
  EXPECT_TRUE(sparse.gathered);
  EXPECT_EQ(sparse.window, 64);
  EXPECT_EQ(sparse.score_dim, 40);
  EXPECT_EQ(sparse.value_dim, 32);
  EXPECT_EQ(sparse.kv_heads, 1);
  EXPECT_EQ(index_core(a, 1024, true).window, 0);
  EXPECT_EQ(index_core(a, 1024, false).window, 64);
  EXPECT_EQ(mixer_parameters(a, Mixer::kAttention),
            a.attention.parameters(64) + 24 * 4 * 8 + 64 * (8 + 4) + 2 * 8);
}

RC_GTEST_PROP(AttentionCore, SparseIsNeverMoreAndALongerSequenceNeverLess, ()) {
  Architecture a = sparse_model(), dense = a;
  a.attention.index_topk = *rc::gen::inRange<std::int64_t>(1, 4096);
  dense.attention.index_topk = 0;
  const std::int64_t seq = *rc::gen::inRange<std::int64_t>(1, 1 << 17);
  const double sparse = pairs(attention_core(a, Mixer::kAttention, seq, 1));
  RC_ASSERT(sparse <= pairs(attention_core(dense, Mixer::kAttention, seq, 1)));
  RC_ASSERT(sparse <= pairs(attention_core(a, Mixer::kAttention, 2 * seq, 1)));
  a.attention.window = *rc::gen::inRange<std::int64_t>(1, 4096);
  a.attention.chunked = *rc::gen::arbitrary<bool>();
  RC_ASSERT(pairs(attention_core(a, Mixer::kWindowed, seq, 1)) <=
            pairs(attention_core(dense, Mixer::kAttention, seq, 1)));
}

}  // namespace
}  // namespace moesim::models
