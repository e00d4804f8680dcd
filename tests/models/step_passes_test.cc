// Work of the stages: priced programs, split backwards, equal slots, lifetime.
#include "models/step/step_passes.h"

#include <gtest/gtest.h>

#include <numeric>

#include "models/programs/program_builder.h"
#include "models/step/pipeline_layout.h"
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
  const auto forward = passes.programs_of(0, {PipelineSlot::Kind::kForward, 0, 0}),
             backward = passes.programs_of(0, {PipelineSlot::Kind::kBackward, 0, 0});
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
  for (const StepPasses::Ran& ran : backward[0]) back.push_back(ran.program);
  EXPECT_EQ(back, there);
  EXPECT_FALSE(backward[0].front().forward);
}

// Full recompute runs the forward of every layer again before its backward, not that of the ends.
TEST(StepPasses, FullRecomputeRunsLayersTwice) {
  const Job job(routed("balanced"));
  StepPasses::Options full;
  full.full_recompute = true;
  StepPasses passes = job.passes(full);
  const auto backward = passes.programs_of(0, {PipelineSlot::Kind::kBackward, 0, 0});
  std::size_t again = 0;
  for (const StepPasses::Ran& ran : backward[0]) again += ran.forward ? 1 : 0;
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
  EXPECT_EQ(together.programs_of(0, both).size(), 2u);
  StepPasses::Options delayed;
  delayed.split = delayed.delayed_weight_gradients = true;
  StepPasses apart = job.passes(delayed);
  EXPECT_EQ(apart.programs_of(0, both).size(), 3u);
  // Run together they take no longer than one after the other.
  sim::Lockstep clocks(together.ranks(), {job.pricer.launch_ps(), {}});
  together.run(0, {PipelineSlot::Kind::kForward, 0, 0}, clocks);
  together.run(0, {PipelineSlot::Kind::kBackward, 0, 0}, clocks);
  sim::Lockstep overlapped(together.ranks(), {job.pricer.launch_ps(), {}});
  together.run(0, both, overlapped);
  EXPECT_GT(overlapped.end(), 0);
  EXPECT_LE(overlapped.end(), clocks.end());
}

}  // namespace
}  // namespace moesim::models
