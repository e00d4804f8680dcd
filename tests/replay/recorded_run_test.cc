// A real run replayed as recorded: its gaps, its transfers, optimizers that meet, and every rank of it.
#include "replay/run/recorded_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/input_error.h"
#include "echo_data.h"
#include "recording_builder.h"
#include "replay/run/run_summary.h"
#include "tests/message_of.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::OperationSpec;
using testing::RecordingBuilder;

constexpr int kGpusPerNode = 8;

Iteration replayed(const traces::Recording& recording) {
  const RecordedJob job = interpret(recording);
  RecordedPricing pricing;
  return simulate(job.topology, recorded_plans(job, kGpusPerNode), pricing);
}

class RecordedReplay : public testing::EchoTest {};

TEST_P(RecordedReplay, ReproducesItsOwnIteration) {
  const traces::Recording recording = traces::read_cmd(folder() / "realistic");
  const RecordedJob job = interpret(recording);
  RecordedPricing pricing;
  const Iteration iteration = simulate(job.topology, recorded_plans(job, kGpusPerNode), pricing);
  const double measured = summarize(job, kGpusPerNode).iteration_us;
  EXPECT_NEAR(iteration.us() / measured, 1.0, 0.02);
  RecordProperty("error", std::to_string(iteration.us() / measured - 1.0));
}

INSTANTIATE_TEST_SUITE_P(Echo, RecordedReplay, ::testing::ValuesIn(testing::kRealRuns), testing::test_name);

TEST(RecordedPlans, KeepHostGaps) {
  RecordingBuilder builder(Topology{});
  builder.add(0, {.name = "forward_step", .after_ms = 2});
  builder.add(0, {.name = "backward_step", .gap_ms = 0.75, .after_ms = 3});
  const traces::Recording recording = builder.take();
  const Iteration iteration = replayed(recording);
  EXPECT_NEAR(iteration.us(), 5750, 1e-3);
  EXPECT_NEAR(iteration.timeline.rank(sim::RankId(0)).host.us(), 750, 1e-3);
}

TEST(RecordedPlans, NeedEveryRankOfTheRun) {
  RecordingBuilder builder(Topology{.expert = 4});
  for (int rank = 0; rank < 4; ++rank) builder.add(rank, {.name = "forward_step", .after_ms = 1});
  traces::Recording recording = builder.take();
  testing::keep_ranks(recording, {0, 1, 3});
  EXPECT_THAT(moesim::testing::message_of([&] { replayed(recording); }),
              AllOf(HasSubstr("no recording of rank 2"), HasSubstr("all 4 ranks")));
}

// Every node starts at its own first operation, whatever its clock says.
TEST(RecordedPlans, NodesStartTogether) {
  RecordingBuilder builder(Topology{.expert_dp = 16});
  for (int rank = 0; rank < 16; ++rank) {
    if (rank == 9) builder.add(rank, {.name = "get_batch", .after_ms = 2});
    builder.add(rank, {.name = "forward_step", .gap_ms = rank == 1 ? 3.0 : 0.0, .after_ms = 10});
  }
  const traces::Recording recording = builder.take();
  const RecordedJob job = interpret(recording);
  const auto plans = recorded_plans(job, kGpusPerNode);
  ASSERT_EQ(plans.size(), 16u);
  EXPECT_NEAR(plans[0].steps[0].gap_us, 0, 1e-3);
  EXPECT_NEAR(plans[1].steps[0].gap_us, 3000, 1e-3);  // against rank 0 of its node
  EXPECT_NEAR(plans[9].steps[1].gap_us, 0, 1e-3);
}

// Two stages of a dense job, the second done 30 ms earlier; both optimizers end together.
TEST(Optimizer, WaitsForTheOtherStagesOfADenseJob) {
  const auto recorded = [](double backward_ms) {
    RecordingBuilder made{Topology{.pp = 2}};
    made.named().experts = 0;
    const OperationSpec send{
        .name = "send_forward", .after_ms = 1, .group = "pp", .shape = {8}, .dtype = "torch.bfloat16"};
    made.add(0, {.name = "forward_step", .after_ms = 10});
    made.add(0, send);
    OperationSpec receive = send;
    receive.name = "recv_forward";
    receive.after_ms = 11;
    made.add(1, receive);
    made.add(1, {.name = "forward_step", .after_ms = 10});
    made.add(0, {.name = "backward_step", .after_ms = backward_ms});
    made.add(1, {.name = "backward_step", .after_ms = 10});
    // Stage 0 comes to its optimizer at 11 + backward, stage 1 at 31 ms; the work takes 20 ms.
    made.add(0, {.name = "optimizer_step", .after_ms = 20});
    made.add(1, {.name = "optimizer_step", .after_ms = 20 + (11 + backward_ms - 31)});
    return made.take();
  };
  const traces::Recording recording = recorded(50);
  const RecordedJob run = interpret(recording);
  std::vector<RankSteps> plans = recorded_plans(run, 8);
  for (const RankSteps& plan : plans) {
    const Step& optimizer = plan.steps.back();
    ASSERT_EQ(optimizer.calls.size(), 1u) << plan.rank;
    EXPECT_EQ(optimizer.calls.front().group, GroupKind::model);
    EXPECT_NEAR(optimizer.segments_us.back(), 20000, 20);
  }
  const auto iteration = [&] {
    RecordedPricing pricing;
    return simulate(run.topology, plans, pricing).us();
  };
  EXPECT_NEAR(iteration(), 81000, 50);
  // A faster stage 0 ends both earlier: what stage 1 spent in its optimizer was waiting.
  for (Step& step : plans[0].steps)
    if (step.kind == StepKind::backward) step.segments_us = {20000};
  EXPECT_NEAR(iteration(), 51000, 50);
}

TEST(MeetInOptimizer, PutsARendezvousBeforeTheWork) {
  Step step;
  step.kind = StepKind::optimizer;
  step.segments_us = {500};
  meet_in_optimizer(step, 70);
  ASSERT_EQ(step.calls.size(), 1u);
  EXPECT_EQ(step.calls[0].op, sim::CollectiveOp::all_reduce);
  EXPECT_EQ(step.calls[0].group, GroupKind::model);
  EXPECT_EQ(step.calls[0].recorded_us, 70);
  EXPECT_EQ(step.segments_us, (std::vector<double>{0, 500}));
}

// The last to arrive does not wait: its duration is the transfer. Calls priced by a model take their own
// time.
TEST(RecordedPricing, TransfersTakeTheShortestDuration) {
  RecordedPricing pricing([](const Instance&) { return 5.0; });
  sim::TaskGraphBuilder builder;
  builder.add_ranks(2);
  Instance recorded;
  recorded.members = {0, 1};
  recorded.rows = {8, 8};
  recorded.row_bytes = 4;
  recorded.shortest_us = 12;
  Instance modelled = recorded;
  modelled.modelled_us = {3, 4};
  const std::array<sim::RankId, 2> ranks{sim::RankId(0), sim::RankId(1)};
  const auto us_of = [&](const Instance& instance, std::size_t index) {
    const sim::TrafficRef traffic = pricing.traffic(instance, index, builder);
    EXPECT_EQ(traffic.bytes, 32u);
    sim::CollectiveShape shape{instance.op, ranks, {}};
    shape.traffic.price = traffic.price;
    std::array<sim::Time, 2> times;
    pricing.costs().price_collective(shape, times);
    return std::array{times[0].us(), times[1].us()};
  };
  EXPECT_EQ(us_of(recorded, 0), (std::array{12.0, 12.0}));
  EXPECT_EQ(us_of(modelled, 1), (std::array{3.0 + 5, 4.0 + 5}));
}

}  // namespace
}  // namespace moesim::replay
