// The core of attention in training: published rates, and what must hold for any call.
#include "models/costs/attention.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/hardware/profile.h"
#include "models/programs/projections.h"
#include "models/workload/layer_stack.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using Mixer = LayerKind::Mixer;

AttentionCall call(std::int64_t seq, std::int64_t width = 128) {
  AttentionCall c;
  c.queries = 16384;
  c.seq = seq;
  c.heads = 2048 / width;
  c.score_dim = c.value_dim = width;
  return c;
}

// Share of the dense bf16 peak.
double share(const Profile& profile, const AttentionCall& c, GemmPass pass) {
  const double peak = profile.device().peak_flops[static_cast<std::size_t>(DType::kBf16)];
  return AttentionModel::flops(c, pass) / AttentionModel(profile).seconds(c, pass) / peak;
}

// FlashAttention-3 (arXiv 2407.08608), figures 5 and 6: H100, causal, long sequences, shares of 989 TFLOP/s.
TEST(Attention, ReachesThePublishedRatesOfAnH100) {
  const Profile h100 = Profile::load("h100-sxm");
  struct Row {
    std::int64_t width;
    double forward, backward;
  };
  for (const Row& row : {Row{128, 0.66, 0.565}, Row{64, 0.50, 0.50}}) {
    EXPECT_NEAR(share(h100, call(16384, row.width), GemmPass::kForward), row.forward, 0.05) << row.width;
    EXPECT_NEAR(share(h100, call(16384, row.width), GemmPass::kDgrad), row.backward, 0.05) << row.width;
  }
}

TEST(Attention, CountsTheCausalCore) {
  AttentionCall c = call(4096);
  c.heads = 2;
  c.score_dim = 192;
  // 2 products of 2 FLOPs over half of the keys, forward; 5 products backward.
  EXPECT_DOUBLE_EQ(AttentionModel::flops(c, GemmPass::kForward), 2.0 * 16384 * 2048 * 2 * (192 + 128));
  EXPECT_DOUBLE_EQ(AttentionModel::flops(c, GemmPass::kDgrad), 2.5 * 2.0 * 16384 * 2048 * 2 * (192 + 128));
  EXPECT_DOUBLE_EQ(mean_keys(4096, 0), 2048);
  EXPECT_DOUBLE_EQ(mean_keys(4096, 4096), 2048);
  EXPECT_DOUBLE_EQ(mean_keys(4096, 1024), 1024 - 1024.0 * 1024 / 8192);
}

TEST(Attention, AProfilesShareOfThePeakIsTakenAtItsWord) {
  for (const char* name : {"h100-sxm", "b200-sxm"}) {
    Profile profile = Profile::load(name);
    profile.set_constant("attention_forward_efficiency", {0.5, 0, "", "a test"});
    profile.set_constant("attention_backward_efficiency", {0.4, 0, "", "a test"});
    AttentionCall c = call(std::int64_t{1} << 22);
    EXPECT_NEAR(share(profile, c, GemmPass::kForward), 0.5, 0.001) << name;
    EXPECT_NEAR(share(profile, c, GemmPass::kDgrad), 0.4, 0.001) << name;
  }
}

// By hand: 16,384 tokens of sequences of 4,096, 16 heads of 128; a score has 2 bytes, its entry in dropout's
// mask one. Products write or read all scores, softmax reads half of them, each masked row's keys.
TEST(Attention, UnfusedMovesEveryScore) {
  const Profile h100 = Profile::load("h100-sxm");
  const AttentionModel model(h100);
  const KernelModel kernels(h100);
  AttentionCall c = call(4096);
  c.unfused = true;
  const double pairs = 16384.0 * 4096 * 16;
  const double product = kernels.seconds(KernelClass::kElementwise, 2 * pairs, 0, 0);
  const double forward = 2 * product + kernels.seconds(KernelClass::kReduce, pairs, 2 * pairs, 0);
  const double backward = 4 * product + kernels.seconds(KernelClass::kReduce, 2 * pairs, 2 * pairs, 0);
  EXPECT_NEAR(model.seconds(c, GemmPass::kForward), forward, 1e-12);
  EXPECT_NEAR(model.seconds(c, GemmPass::kDgrad), backward, 1e-12);
  EXPECT_NEAR(forward, pairs * 7 / 3.0e12, 0.1 * forward);  // seven bytes a score at about 3 TB/s
  c.dropout = true;
  const double dropout = kernels.seconds(KernelClass::kElementwise, 2 * pairs, 3 * pairs, 0);
  EXPECT_NEAR(model.seconds(c, GemmPass::kForward), forward + dropout, 1e-12);
  EXPECT_NEAR(model.seconds(c, GemmPass::kDgrad), backward + dropout, 1e-12);
}

AttentionCall random_call() {
  AttentionCall c;
  c.seq = *rc::gen::inRange<std::int64_t>(1, 65536);
  c.queries = *rc::gen::inRange<std::int64_t>(1, 65536);
  c.heads = *rc::gen::inRange<std::int64_t>(1, 129);
  c.score_dim = *rc::gen::element(64, 128, 192, 256);
  c.value_dim = *rc::gen::element(64, 128);
  c.window = *rc::gen::element(0, 128, 4096);
  return c;
}

RC_GTEST_PROP(Attention, UnfusedIsNeverFaster, ()) {
  const Profile profile = Profile::load(*rc::gen::element<std::string>("a100-sxm", "h100-sxm", "b200-sxm"));
  const AttentionModel model(profile);
  const AttentionCall c = random_call();
  AttentionCall unfused = c, dropout = c;
  unfused.unfused = dropout.unfused = dropout.dropout = true;
  for (const GemmPass pass : {GemmPass::kForward, GemmPass::kDgrad}) {
    RC_ASSERT(model.seconds(unfused, pass) >= model.seconds(c, pass));
    RC_ASSERT(model.seconds(dropout, pass) >= model.seconds(unfused, pass));
    // A short row's scores are nothing beside the rest.
    AttentionCall tiny = unfused, fused = c;
    tiny.seq = fused.seq = 1;
    RC_ASSERT(model.seconds(tiny, pass) == model.seconds(fused, pass));
  }
}

RC_GTEST_PROP(Attention, IsMonotonousAndNeverAboveThePeak, ()) {
  const Profile profile = Profile::load(*rc::gen::element<std::string>("a100-sxm", "h100-sxm", "b200-sxm"));
  const AttentionModel model(profile);
  const AttentionCall c = random_call();
  for (const GemmPass pass : {GemmPass::kForward, GemmPass::kDgrad}) {
    const double seconds = model.seconds(c, pass);
    RC_ASSERT(share(profile, c, pass) <= 0.95 + 1e-9);
    AttentionCall more = c;
    more.queries *= 2;
    RC_ASSERT(std::abs(model.seconds(more, pass) / seconds - 2) < 1e-9);  // the grid is full: linear
    more = c;
    more.window = 0;
    RC_ASSERT(model.seconds(more, pass) >= seconds * (1 - 1e-9));  // a window saves work
    more = c;
    more.fp8 = true;
    RC_ASSERT(model.seconds(more, pass) <= seconds);
  }
}

// The core of attention by a layer's kind: windows, chunks, an indexer's choice.

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
