// Work of the stages: priced programs, split backwards, equal slots, lifetime.
#include "models/step/step_passes.h"

#include <gtest/gtest.h>

#include <numeric>

#include "models/programs/program_builder.h"
#include "models/step/pipeline_layout.h"
#include "models/step/training_flops.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using sim::LockstepOp;
using sim::LockstepProgram;

// A resolved step and the passes of its stages.
struct Job {
  explicit Job(Scenario given) : scenario(testing::resolved(std::move(given))) {}
  Scenario scenario;
  JobRouting routing{scenario};
  Placement placement{scenario};
  PipelineLayout plan{scenario, false};
  LayerPrograms programs{scenario, scenario.dispatchers.front(), routing, placement,
                         placement.dispatch_classes().front()};
  ProgramPricer pricer{*scenario.cluster};

  StepPasses passes(StepPasses::Options options = {}) const {
    options.chunks = &plan.chunks;
    return {programs, routing, pricer, std::move(options)};
  }
};

Scenario routed(const std::string& routing) {
  Scenario s = testing::small_job();
  s.routing = RoutingSpec::parse(routing);
  return s;
}

std::int64_t sum_ps(const LockstepProgram& priced) {
  std::int64_t sum = 0;
  for (const LockstepOp& op : priced.ops)
    if (op.kind != LockstepOp::Kind::nothing) sum += priced.at(op, 0);
  return sum;
}

// A kernel, both gradients of a product, a kernel; each takes a power of ten.
TEST(SplitBackward, EveryOperationIsInOneOfTheTwo) {
  ProgramBuilder b(1, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  b.begin(ProgramBuilder::Pass::kBackward);
  const int table = b.table(1, {16});
  b.kernel("first", sim::Category::other, KernelClass::kElementwise, b.uniform(0), b.uniform(0));
  b.gemm("d", sim::Category::expert, GemmPass::kDgrad, GemmBackend::kDense, DType::kBf16, table, 8, 8, 1, 1);
  b.gemm("w", sim::Category::expert, GemmPass::kWgrad, GemmBackend::kDense, DType::kBf16, table, 8, 8, 1, 1);
  b.kernel("last", sim::Category::other, KernelClass::kElementwise, b.uniform(0), b.uniform(0));
  const Program program = b.finish();
  LockstepProgram priced;
  for (const std::int64_t ps : {1, 10, 100, 1000}) {
    LockstepOp op;
    op.first = static_cast<std::uint32_t>(priced.ps.size());
    priced.ps.push_back(ps);
    priced.ops.push_back(op);
  }
  const LockstepProgram weights = only_weight_gradients(priced, program.backward()),
                        rest = without_weight_gradients(priced, program.backward());
  EXPECT_EQ(sum_ps(weights), 100);
  EXPECT_EQ(sum_ps(rest), 1011);
  EXPECT_EQ(weights.ops.size(), 1u);
  EXPECT_EQ(rest.ops.size(), 4u);  // places stay, so that what waits still finds what it waits for
}

// Exchanges between domains hold the network, those inside do not; of uneven ranks the longest counts.
TEST(NetworkPs, IsOfCollectivesThatLeaveTheirDomain) {
  const auto network = [](const std::string& cluster, std::int64_t ep) {
    Scenario s = testing::small_job(cluster);
    s.parallel.ep = ep;
    s.model.experts = 16;
    const Job job(s);
    StepPasses passes = job.passes();
    return passes.network_of(0);
  };
  EXPECT_EQ(network("dgx-h100x1", 8).forward, 0);
  const auto across = network("dgx-h100x2", 16);
  EXPECT_GT(across.forward, 0);
  EXPECT_GT(across.backward, 0);
}

TEST(StepPasses, OneRankStandsForAllWhereAllDoTheSame) {
  EXPECT_EQ(Job(routed("balanced")).passes().ranks(), 1u);
  EXPECT_EQ(Job(routed("zipf:1.2")).passes().ranks(), 4u);
  EXPECT_EQ(Job(routed("zipf:1.2:shared")).passes().ranks(), 4u);  // shared, but uneven
  StepPasses::Options all;
  all.all_ranks = true;
  EXPECT_EQ(Job(routed("balanced")).passes(all).ranks(), 4u);
}

TEST(StepPasses, SlotsAreTheSameOnlyUnderOneRouting) {
  const Job shared(routed("balanced")), apart(routed("zipf:1.2"));
  const PipelineSlot first{PipelineSlot::Kind::kForward, 0, 0}, second{PipelineSlot::Kind::kForward, 1, 0},
      backward{PipelineSlot::Kind::kBackward, 0, 0};
  const StepPasses passes = shared.passes(), own = apart.passes();
  ASSERT_TRUE(passes.same(0, first));
  EXPECT_EQ(passes.same(0, first), passes.same(0, second));
  EXPECT_NE(passes.same(0, first), passes.same(0, backward));
  EXPECT_FALSE(own.same(0, first));
}

// Embedding, dense layer, three MoE layers of three programs each, head; backward the other way round.
TEST(StepPasses, AChunkIsItsLayersBetweenEmbeddingAndHead) {
  const Job job(routed("balanced"));
  StepPasses passes = job.passes();
  const auto forward = passes.runs_of(0, {PipelineSlot::Kind::kForward, 0, 0}).passes,
             backward = passes.runs_of(0, {PipelineSlot::Kind::kBackward, 0, 0}).passes;
  ASSERT_EQ(forward.size(), 1u);
  ASSERT_EQ(forward[0].size(), 1u + 1 + 3 * 3 + 1);
  EXPECT_EQ(forward[0].front().program, &job.programs.embedding());
  EXPECT_EQ(forward[0][1].program, &job.programs.before(0));
  EXPECT_TRUE(forward[0][3].dispatcher);
  EXPECT_EQ(forward[0].back().program, &job.programs.head());
  // Only a residual sum follows the experts here, which has no backward of its own.
  ASSERT_TRUE(job.programs.after().backward().empty());
  std::vector<const Program*> there, back;
  for (auto ran = forward[0].rbegin(); ran != forward[0].rend(); ++ran)
    if (ran->program != &job.programs.after()) there.push_back(ran->program);
  for (const ProgramPass& ran : backward[0]) back.push_back(ran.program);
  EXPECT_EQ(back, there);
  EXPECT_FALSE(backward[0].front().forward);
}

// Full recompute runs the forward of every layer again before its backward, not that of the ends.
TEST(StepPasses, FullRecomputeRunsLayersTwice) {
  const Job job(routed("balanced"));
  StepPasses::Options full;
  full.full_recompute = true;
  StepPasses passes = job.passes(full);
  const auto backward = passes.runs_of(0, {PipelineSlot::Kind::kBackward, 0, 0}).passes;
  std::size_t again = 0;
  for (const ProgramPass& ran : backward[0]) again += ran.forward ? 1 : 0;
  EXPECT_EQ(again, 1u + 3 * 3);
  EXPECT_EQ(backward[0].size(), 1u + 1 + 3 * 2 + 1 + again);
}

// Full recompute adds at most the forward to the backward, and nothing to the forward.
TEST(StepPasses, LayerTimesAddTheForwardWhereItIsComputedAgain) {
  const Job job(routed("balanced"));
  StepPasses plain = job.passes();
  StepPasses::Options full;
  full.full_recompute = true;
  StepPasses again = job.passes(full);
  const auto once = plain.layer_times(1, 0, 0), twice = again.layer_times(1, 0, 0);
  EXPECT_GT(once.forward, 0);
  EXPECT_GT(once.backward, 0);
  EXPECT_EQ(once.forward, twice.forward);
  EXPECT_GT(twice.backward, once.backward);
  EXPECT_LE(twice.backward, once.backward + once.forward);
}

TEST(StepPasses, TheHostOfASlotLaunchesItsPrograms) {
  const Job job(routed("balanced"));
  StepPasses passes = job.passes();
  const auto forward = passes.host(0, {PipelineSlot::Kind::kForward, 0, 0});
  EXPECT_TRUE(forward.waits);  // for counts, before every exchange
  EXPECT_GT(forward.launching_ps, 0);
  EXPECT_EQ(forward.launching_ps % job.pricer.launch_ps(), 0);
  EXPECT_FALSE(passes.host(0, {PipelineSlot::Kind::kBackward, 0, 0}).waits);
}

// Two passes together: forward of one microbatch and backward of another, weight gradients apart on request.
TEST(StepPasses, OverlappedSlotsHaveTwoChainsOrThree) {
  const Job job(routed("balanced"));
  PipelineSlot both{PipelineSlot::Kind::kOverlapped, 1, 0, 0, 0};
  StepPasses together = job.passes();
  EXPECT_EQ(together.runs_of(0, both).chains.size(), 2u);
  StepPasses::Options delayed;
  delayed.split = delayed.delayed_weight_gradients = true;
  StepPasses apart = job.passes(delayed);
  EXPECT_EQ(apart.runs_of(0, both).chains.size(), 3u);
  // Run together they take no longer than one after the other.
  sim::Lockstep clocks(together.ranks(), {job.pricer.launch_ps(), {}});
  together.run(0, {PipelineSlot::Kind::kForward, 0, 0}, clocks);
  together.run(0, {PipelineSlot::Kind::kBackward, 0, 0}, clocks);
  sim::Lockstep overlapped(together.ranks(), {job.pricer.launch_ps(), {}});
  together.run(0, both, overlapped);
  EXPECT_GT(overlapped.end(), 0);
  EXPECT_LE(overlapped.end(), clocks.end());
}

// FLOPs of a model in training: a small one by hand, published rates, the parts that pipelines are cut by.

// Weights that a token meets: attention 64*(64+32+32) + 64*64 in each of 4 layers, the dense FFN 3*64*96, in
// each of 3 MoE layers the router 64*8 and two experts of 3*64*32, the head 64*128; no embedding table.
TEST(TrainingFlops, OfASmallModelByHand) {
  const Architecture a = testing::small_model();
  const double weights = 4 * (64 * 128 + 64 * 64) + 3 * 64 * 96 + 3 * (64 * 8 + 2 * 3 * 64 * 32) + 64 * 128;
  // A query of 4 heads meets half of 256 keys; scores and values are products of 16 columns each.
  const double core = 4 * 2 * 128 * 4 * (16 + 16);
  EXPECT_DOUBLE_EQ(training_flops_per_token(a, 256, 2), 6 * weights + 3 * core);
  EXPECT_DOUBLE_EQ(expert_flops_per_token(a, 2), 6 * 2 * 3 * 64 * 32);
}

TEST(TrainingFlops, LayersAndHeadAddUp) {
  Architecture a = testing::small_model();
  const LayerFlops plain = flops_of_layers(a, 256, 2);
  ASSERT_EQ(plain.layers.size(), 4u);
  EXPECT_DOUBLE_EQ(std::accumulate(plain.layers.begin(), plain.layers.end(), plain.head),
                   training_flops_per_token(a, 256, 2));
  EXPECT_DOUBLE_EQ(plain.head, 6 * 64 * 128);
  EXPECT_DOUBLE_EQ(plain.layers[3] - plain.layers[0], 6 * (64 * 8 + 2 * 3 * 64 * 32 - 3 * 64 * 96.0));
  // A multi-token-prediction layer is a MoE layer with a 2H -> H product and a head of its own.
  a.mtp_layers = 1;
  const LayerFlops more = flops_of_layers(a, 256, 2);
  ASSERT_EQ(more.layers.size(), 5u);
  EXPECT_DOUBLE_EQ(more.layers[4], plain.layers[3] + 6 * 2 * 64 * 64 + plain.head);
}

// A window bounds the keys that a query sees: w - w^2/(2 seq) of them on average.
TEST(TrainingFlops, WindowsSeeFewerKeys) {
  Architecture a = testing::small_model();
  const double all = training_flops_per_token(a, 256, 2);
  a.attention.window = 64;
  a.attention.window_every = 2;  // layers 0 and 2 are windowed
  const double keys = 64 - 64 * 64 / (2 * 256.0);
  EXPECT_DOUBLE_EQ(all - training_flops_per_token(a, 256, 2), 3 * 2 * 2 * (128 - keys) * 4 * 32);
}

TEST(TrainingFlops, AreTheSourcesOwn) {
  // FLOP a token that published rates imply: model TFLOP/s per GPU over tokens/s per GPU of one row each
  // (performance-summary.md of Megatron-Bridge, which counts attention causally). Within 3 %.
  const auto near = [](const char* model, double tflops, double tokens) {
    const Architecture a = Architecture::load(model);
    EXPECT_NEAR(training_flops_per_token(a, 4096, a.topk) / (tflops * 1e12 / tokens), 1, 0.03) << model;
  };
  near("deepseek-v3", 1635, 6288);
  near("gpt-oss-120b", 1077, 33024);
  near("qwen3-30b-a3b", 1029, 44544);
  // arXiv 2412.19437: 14.8 T tokens took 2.664 M H800 hours; 6 x 37 B active parameters are a lower bound,
  // the causal core adds less than a fifth.
  const Architecture v3 = Architecture::load("deepseek-v3");
  const double weights = 6.0 * static_cast<double>(v3.active_parameters());
  EXPECT_GT(training_flops_per_token(v3, 4096, v3.topk), weights);
  EXPECT_LT(training_flops_per_token(v3, 4096, v3.topk), 1.2 * weights);
}

}  // namespace
}  // namespace moesim::models
