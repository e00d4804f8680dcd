// Muon: FLOPs of Newton-Schulz steps by hand, which matrices are its, how ranks share them, memory and time
// of a step.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/answers/answer.h"
#include "models/hardware/profile.h"
#include "models/step/optimizers.h"
#include "models/step/pipeline_layout.h"
#include "models/step/step_memory.h"
#include "models/step/transfers.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

// 5 steps of a matrix of 1,024 x 4,096: each has 2 n m^2 for X X^T, 2 m^3 for its square, 2 n m^2 for the
// product with X. Keller Jordan bounds a step by 6 n m^2.
TEST(Muon, FlopsOfNewtonSchulzByHand) {
  const double m = 1024, n = 4096;
  EXPECT_DOUBLE_EQ(newton_schulz_flops(1024, 4096, 5), 96'636'764'160.0);
  EXPECT_DOUBLE_EQ(newton_schulz_flops(4096, 1024, 5), 96'636'764'160.0);
  EXPECT_LT(newton_schulz_flops(1024, 4096, 1), 6 * n * m * m);
  EXPECT_DOUBLE_EQ(newton_schulz_flops(1024, 1024, 1), 6 * m * m * m);
}

TEST(Muon, SecondsAreThreeProductsAStep) {
  const GemmModel gemms(Profile::load("h100-sxm"));
  const double one = gemms.seconds({1024, 1024, 4096}, DType::kBf16) +
                     gemms.seconds({1024, 1024, 1024}, DType::kBf16) +
                     gemms.seconds({1024, 4096, 1024}, DType::kBf16);
  EXPECT_DOUBLE_EQ(newton_schulz_seconds(4096, 1024, 5, gemms), 5 * one);
}

// The small model's layers: queries of 4 heads of 16, keys and values of 2 heads, an output projection; a
// dense FFN of 96, gate and up together; of three MoE layers a router and two of eight experts on each of
// four ranks. Adam keeps tables and norms: 2 x 64 a layer and the last one.
TEST(Muon, HasTheMatricesOfTheLayers) {
  const Architecture a = testing::small_model();
  Parallel p;
  p.ep = 4;
  const std::vector<Chunk> chunks = cut_into_chunks(a, p, std::vector<double>(4, 1.0), 0, 0);
  const std::vector<MuonMatrix> matrices = muon_matrices(a, p, chunks.front());
  const auto count = [&](std::int64_t rows, std::int64_t columns, bool experts) {
    std::int64_t n = 0;
    for (const MuonMatrix& m : matrices)
      if (m.rows == rows && m.columns == columns && m.experts == experts) n += m.count;
    return n;
  };
  EXPECT_EQ(count(64, 64, false), 4 + 4);  // queries, output
  EXPECT_EQ(count(32, 64, false), 4 + 4);  // keys, values
  EXPECT_EQ(count(192, 64, false), 1);
  EXPECT_EQ(count(64, 96, false), 1);
  EXPECT_EQ(count(8, 64, false), 3);  // routers
  EXPECT_EQ(count(64, 64, true), 3 * 2);
  EXPECT_EQ(count(64, 32, true), 3 * 2);
  const StageParameters all = chunk_parameters(a, p, chunks.front()), of_muon = elements_of(matrices);
  EXPECT_EQ(all.experts, of_muon.experts);
  EXPECT_EQ(all.dense - of_muon.dense, 2 * 128 * 64 + 9 * 64);
}

// Three of 16 elements and two of 4 on two ranks: 16 and 16, 16, then 4 and 4 on the other.
TEST(Muon, WholeMatricesAreDealtOutLargestFirst) {
  const std::vector<MuonMatrix> matrices{{2, 2, 2, false}, {4, 4, 3, false}};
  const auto seconds = [](const MuonMatrix& m) { return static_cast<double>(m.rows); };
  const MuonShare two = largest_muon_share(matrices, 2, seconds);
  EXPECT_EQ(two.elements, 32);
  EXPECT_EQ(two.seconds, 8);
  EXPECT_EQ(two.matrices, 3);  // the other rank: one of 16 and both of 4
  EXPECT_EQ(largest_muon_share(matrices, 1, seconds).elements, 56);
  EXPECT_EQ(largest_muon_share(matrices, 8, seconds).elements, 16);  // three ranks have nothing
}

RC_GTEST_PROP(Muon, NoRankHasLessThanTheMeanOrMoreThanAMatrixBesides, ()) {
  std::vector<MuonMatrix> matrices;
  const auto kinds = *rc::gen::inRange(1, 5);
  double all = 0, largest = 0;
  for (int k = 0; k < kinds; ++k) {
    matrices.push_back({*rc::gen::inRange<std::int64_t>(1, 50), *rc::gen::inRange<std::int64_t>(1, 50),
                        *rc::gen::inRange<std::int64_t>(1, 40), false});
    all += matrices.back().elements() * static_cast<double>(matrices.back().count);
    largest = std::max(largest, matrices.back().elements());
  }
  const auto ranks = *rc::gen::inRange<std::int64_t>(1, 20);
  const double most = largest_muon_share(matrices, ranks, [](const MuonMatrix&) { return 1.0; }).elements;
  RC_ASSERT(most >= all / static_cast<double>(ranks) * (1 - 1e-12));
  RC_ASSERT(most <= all / static_cast<double>(ranks) + largest);
}

StepMemory memory_of(const std::string& sharding, int moment_bytes = 4) {
  Scenario s = testing::small_job();
  s.training.set_sharding(sharding);
  if (moment_bytes == 2) s.training.optimizer = OptimizerTypes::parse("fp32,bf16,bf16");
  const Scenario r = testing::resolved(std::move(s));
  const PipelineLayout plan(r, false);
  return step_memory(
      {&r.model, r.parallel, &r.training, nullptr, true, &plan.chunks, &plan.schedule, 80e9, true, 1});
}

// Masters and one moment of all, a second moment of tables and norms alone.
TEST(Muon, KeepsOneMoment) {
  const Scenario s = testing::resolved(testing::small_job());
  const PipelineLayout plan(s, false);
  const StageParameters n = chunk_parameters(s.model, s.parallel, plan.chunks.front());
  const double of_adam = 2 * 128 * 64 + 9 * 64;
  EXPECT_DOUBLE_EQ(memory_of("ddp:muon").worst.optimizer, 8 * (n.dense + n.experts) + 4 * of_adam);
  EXPECT_DOUBLE_EQ(memory_of("fsdp:muon").worst.optimizer,  // masters are the parameters
                   4 * (n.dense / 8 + n.experts / 2) + 4 * of_adam / 8);
  // Zero-1 on eight ranks: the largest share of the dense matrices is the FFN's 192 x 64; of the experts' six
  // and six matrices on two ranks each has half.
  EXPECT_DOUBLE_EQ(memory_of("zero1:muon").worst.optimizer,
                   8 * (12288 + of_adam / 8 + n.experts / 2) + 4 * of_adam / 8);
  for (const char* sharding : {"ddp", "fsdp", "hsdp:shard=4"})
    for (const int bytes : {4, 2})
      EXPECT_LT(memory_of(std::string(sharding) + ":muon", bytes).worst.optimizer,
                memory_of(sharding, bytes).worst.optimizer)
          << sharding;
}

double optimizer_seconds(const std::string& sharding, std::int64_t steps = 5) {
  Scenario s = testing::published_job();
  s.training.set_sharding(sharding);
  s.training.newton_schulz_steps = steps;
  const Scenario r = testing::resolved(std::move(s));
  const PipelineLayout plan(r, false);
  const PipelineTransfers t = step_transfers({.scenario = r,
                                              .chunks = plan.chunks,
                                              .slots = r.model.experts,
                                              .placement = Placement(r),
                                              .pricer = ProgramPricer(*r.cluster),
                                              .network_of = [](std::size_t, bool) { return 0; },
                                              .kept_of_pass = [] { return std::vector<double>{}; }});
  return static_cast<double>(t.optimizer[0]) * 1e-12;
}

// Qwen3-30B-A3B on 16 GPUs, EP 8: a rank of DDP orthogonalises all that it holds, with whole matrices dealt
// out each its part, under FSDP the same beside two exchanges of rows. Never faster than its FLOPs at the
// GPU's peak.
TEST(Muon, TakesItsProductsAndExchanges) {
  const double adam = optimizer_seconds("zero1"), ddp = optimizer_seconds("ddp:muon"),
               dealt = optimizer_seconds("zero1:muon"), sharded = optimizer_seconds("fsdp:muon");
  EXPECT_GT(dealt, adam);
  EXPECT_GT(ddp, 1.9 * dealt);  // experts have two replicas, the rest sixteen
  EXPECT_GT(sharded, dealt);
  EXPECT_GT(optimizer_seconds("zero1:muon", 10), optimizer_seconds("zero1:muon", 5));
  Scenario s = testing::resolved(testing::published_job());
  double flops = 0;
  for (const MuonMatrix& m : muon_matrices(s.model, s.parallel, PipelineLayout(s, false).chunks.front()))
    flops += static_cast<double>(m.count) * newton_schulz_flops(m.rows, m.columns, 5);
  EXPECT_GT(ddp, flops / s.cluster->profile.device().peak_flops[static_cast<std::size_t>(DType::kBf16)]);
}

// Distributed Shampoo: which steps do what, and how long its products and roots take.

TEST(Shampoo, WorkOfAStepAndOfAPeriod) {
  EXPECT_EQ(shampoo_work({5, 5, 10}).roots, 1);
  EXPECT_EQ(shampoo_work({5, 5, 11}).roots, 0);
  EXPECT_EQ(shampoo_work({5, 5, 4}).roots, 0);
  EXPECT_LT(shampoo_work({5, 5, 4}).products, shampoo_work({5, 5, 6}).products);
  EXPECT_DOUBLE_EQ(shampoo_work({5, 0, 0}).roots, 0.2);
}

// Linear in the elements, and in the work; the roots are 2 * 11 * d^3 FLOPs of a block at the fp32 rate.
TEST(Shampoo, SecondsAreThoseOfItsBlocks) {
  const Profile profile = Profile::load("h100-sxm");
  const GemmModel gemms(profile);
  const double rate = 50e12, d = 1024;
  const double product = gemms.seconds({1024, 1024, 1024}, DType::kFp32);
  const double roots = shampoo_seconds(3 * d * d, 1024, {0, 1}, gemms, rate),
               products = shampoo_seconds(3 * d * d, 1024, {4, 0}, gemms, rate);
  EXPECT_DOUBLE_EQ(roots, 3 * 22 * d * d * d / rate);
  EXPECT_DOUBLE_EQ(products, 3 * 4 * product);
  EXPECT_DOUBLE_EQ(shampoo_seconds(6 * d * d, 1024, {4, 1}, gemms, rate), 2 * (roots + products));
}

}  // namespace
}  // namespace moesim::models
