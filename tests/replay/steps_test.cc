// A recording cut at its calls: segments and calls of a step add up to it, whatever the writer's time stamps
// mean.
#include "replay/recording/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <string_view>

#include "base/input_error.h"
#include "echo_data.h"
#include "recording_builder.h"
#include "replay/run/recorded_run.h"
#include "replay/run/run_summary.h"
#include "tests/message_of.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;
using testing::CallSpec;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RecordingBuilder;

Topology one_stage() { return {.expert = 2}; }

testing::OperationSpec moe_forward() {
  return {.name = "forward_step",
          .calls =
              {{"_gather_along_first_dim_expert_parallel", "allgather", "exp", {4}, "torch.int64", 2.0, 0.25},
               {"_profiled_all_to_all_single", "all_to_all", "exp", {128, 32}, "torch.bfloat16", 0.5, 1.0},
               {"_profiled_all_to_all_single", "all_to_all", "exp", {100, 32}, "torch.bfloat16", 3.0, 0.75}},
          .after_ms = 0.4};
}

class Writers : public ::testing::TestWithParam<traces::LineForm> {};

TEST_P(Writers, StampsOfEitherKindGiveTheSameSegments) {
  RecordingBuilder builder(one_stage(), GetParam());
  for (int rank = 0; rank < 2; ++rank) builder.add(rank, moe_forward());
  const traces::Recording recording = builder.take();
  const RecordedJob job = interpret(recording);
  const Step& step = job.ranks[1].steps.at(0);
  EXPECT_EQ(step.kind, StepKind::forward);
  EXPECT_THAT(step.segments_us, ElementsAre(DoubleNear(2000, 1e-3), DoubleNear(500, 1e-3),
                                            DoubleNear(3000, 1e-3), DoubleNear(400, 1e-3)));
  ASSERT_EQ(step.calls.size(), 3u);
  EXPECT_EQ(step.calls[0].op, sim::CollectiveOp::all_gather);
  EXPECT_EQ(step.calls[0].input_bytes(), 4u * 8);
  EXPECT_EQ(step.calls[2].op, sim::CollectiveOp::all_to_all);
  EXPECT_EQ(step.calls[2].group, GroupKind::expert);
  EXPECT_EQ(step.calls[2].rows, 100);
  EXPECT_EQ(step.calls[2].input_bytes(), 100u * 32 * 2);
  EXPECT_DOUBLE_EQ(step.calls[2].recorded_us, 750);
  EXPECT_NEAR(step.duration_us, 7900, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(V1AndV2, Writers, ::testing::Values(traces::LineForm::kV1, traces::LineForm::kV2));

TEST(Steps, MoeGathersRunOnTheTensorAndExpertGroup) {
  RecordingBuilder builder(one_stage());
  for (int rank = 0; rank < 2; ++rank)
    builder.add(rank, {.name = "forward_step",
                       .calls = {{"_gather_along_first_dim_moe", "allgather", "exp", {64, 32}},
                                 {"_reduce_scatter_along_first_dim_moe", "reduce_scatter", "exp", {128, 32}}},
                       .after_ms = 1});
  const traces::Recording recording = builder.take();
  const RecordedJob job = interpret(recording);
  for (const Call& call : job.ranks[0].steps[0].calls) EXPECT_EQ(call.group, GroupKind::tp_expert);
}

TEST(Steps, CountsOfAnAllToAllStandForTheirGather) {
  RecordingBuilder builder(one_stage());
  for (int rank = 0; rank < 2; ++rank) {
    testing::OperationSpec forward = moe_forward();
    forward.calls[0].source = "all_to_all_single";
    forward.calls[0].comm = "all_to_all";
    builder.add(rank, forward);
  }
  const traces::Recording recording = builder.take();
  const RecordedJob job = interpret(recording);
  const Step& step = job.ranks[0].steps[0];
  EXPECT_EQ(step.calls[0].op, sim::CollectiveOp::all_gather);
  EXPECT_FALSE(is_exchange(step.calls[0]));
  EXPECT_TRUE(is_exchange(step.calls[1]));
  std::vector<bool> experts;
  for (std::size_t s = 0; s < step.segments_us.size(); ++s) experts.push_back(in_experts(step, s));
  EXPECT_THAT(experts, ElementsAre(false, false, true, false));
}

TEST(Steps, AnAllReduceOfWhatWasGatheredIsACombine) {
  RecordingBuilder builder(one_stage());
  for (int rank = 0; rank < 2; ++rank)
    builder.add(
        rank,
        {.name = "forward_step",
         .calls = {{"_gather_along_first_dim_moe", "allgather", "exp", {64, 32}},
                   {"_reduce_along_first_dim_moe", "allreduce", "exp", {128, 32}, "torch.bfloat16", 3.0}},
         .after_ms = 1});
  const traces::Recording recording = builder.take();
  const RecordedJob job = interpret(recording);
  const Step& step = job.ranks[0].steps[0];
  EXPECT_EQ(step.calls[1].group, GroupKind::tp_expert);
  EXPECT_TRUE(in_experts(step, 1));
  EXPECT_FALSE(in_experts(step, 2));
}

TEST(Steps, TransfersHaveNoSegmentsAndPlaceholdersNoTime) {
  RecordingBuilder builder(Topology{.pp = 2});
  builder.add(
      0,
      {.name = "send_forward", .after_ms = 2, .group = "pp", .shape = {8, 1, 4}, .dtype = "torch.bfloat16"});
  builder.add(
      0,
      {.name = "dp_allreduce", .group = "dp", .shape = {77}, .dtype = "torch.float16", .placeholder = true});
  builder.add(
      1,
      {.name = "recv_forward", .after_ms = 2, .group = "pp", .shape = {8, 1, 4}, .dtype = "torch.bfloat16"});
  const traces::Recording recording = builder.take();
  const RecordedJob job = interpret(recording);
  EXPECT_TRUE(job.realistic);
  const auto& steps = job.ranks[0].steps;
  EXPECT_TRUE(steps[0].segments_us.empty());
  EXPECT_EQ(steps[0].elements, 32);
  EXPECT_EQ(steps[0].element_bytes, 2);
  EXPECT_EQ(steps[1].kind, StepKind::dp_all_reduce);
  EXPECT_EQ(steps[1].start_us, 0);
  EXPECT_EQ(steps[1].elements, 77);
}

TEST(Steps, BothNamesOfTheExpertReductionMeanTheSame) {
  RecordingBuilder builder(one_stage());
  builder.add(
      0,
      {.name = "ep_dp_allreduce", .after_ms = 1, .group = "ep_dp", .shape = {9}, .dtype = "torch.float32"});
  builder.add(
      1,
      {.name = "exp_dp_allreduce", .after_ms = 1, .group = "exp_dp", .shape = {9}, .dtype = "torch.float32"});
  const traces::Recording recording = builder.take();
  const RecordedJob job = interpret(recording);
  for (const RankSteps& rank : job.ranks) EXPECT_EQ(rank.steps[0].kind, StepKind::expert_all_reduce);
}

TEST(Steps, TransfersWithoutADataTypeAreSaid) {
  RecordingBuilder builder(one_stage());
  builder.add(0, {.name = "forward_step",
                  .calls = {{"all_to_all", "all_to_all", "exp", {8, 4}, "None", 1, 2}},
                  .after_ms = 3});
  builder.add(1, {.name = "dp_allreduce", .after_ms = 1, .group = "dp", .shape = {9}});
  const traces::Recording recording = builder.take();
  const RecordedJob job = interpret(recording);
  EXPECT_EQ(job.ranks[0].steps[0].calls[0].input_bytes(), 8u * 4 * 4);
  EXPECT_EQ(job.ranks[1].steps[0].element_bytes, 4);
  EXPECT_THAT(job.warnings, ::testing::Contains("2 transfers without a data type, rank00.txt:1 is the first: "
                                                "counted with 4 bytes an element"));
}

TEST(Steps, AsynchronousWindowsStayComputing) {
  RecordingBuilder builder(Topology{.tp = 2});
  for (int rank = 0; rank < 2; ++rank)
    builder.add(rank, {.name = "backward_step",
                       .calls = {{"normlinear_bwd_async", "allreduce", "tp", {8, 4}, "torch.bfloat16", 1, 2}},
                       .after_ms = 3});
  const traces::Recording recording = builder.take();
  const RecordedJob job = interpret(recording);
  const Step& step = job.ranks[0].steps[0];
  EXPECT_TRUE(step.calls.empty());
  EXPECT_THAT(step.segments_us, ElementsAre(DoubleNear(6000, 1e-3)));
}

std::string refusal_of_steps(const traces::Recording& recording) {
  return message_of([&] { interpret(recording); });
}

// That reduction in a recording of one GPU: it would be hidden, so that only the rendezvous is left.
TEST(Steps, ReductionsThatARunHidesTakeNoTimeInAForecast) {
  const auto reductions = [](bool realistic) {
    RecordingBuilder builder(Topology{.tp = 2});
    for (int rank = 0; rank < 2; ++rank) {
      for (int batch = 0; batch < (realistic ? 2 : 1); ++batch) {
        builder.add(rank, {.name = "forward_step", .batch = batch, .after_ms = 1.0});
        CallSpec hidden{"allreduce", "allreduce", "tp", {64, 32}, "torch.float16", 2.0, 0.01};
        hidden.func_name = "normlinear_bwd";
        const CallSpec shown{"reduce_wrapper", "allreduce", "tp", {64, 32}, "torch.float16", 2.0, 0.01};
        builder.add(rank,
                    {.name = "backward_step", .batch = batch, .calls = {hidden, shown}, .after_ms = 0.5});
      }
    }
    const traces::Recording recording = builder.take();
    return interpret(recording).ranks[1].steps.at(1).calls;
  };
  const auto scaling = reductions(false);
  ASSERT_EQ(scaling.size(), 2u);
  EXPECT_EQ(scaling[0].modelled_us, 0.0);
  EXPECT_FALSE(scaling[1].modelled_us);
  EXPECT_FALSE(reductions(true)[0].modelled_us) << "a run's own times hold";
}

TEST(Steps, RefusesCallsOutOfOrder) {
  RecordingBuilder builder(one_stage());
  for (int rank = 0; rank < 2; ++rank) builder.add(rank, moe_forward());
  traces::Recording recording = builder.take();
  auto& calls = recording.ranks[1].sub_operations;
  calls[1].timestamp = traces::Decimal::from_ms(calls[0].timestamp.value() - 6);
  EXPECT_THAT(refusal_of_steps(recording),
              HasSubstr("rank01.txt:1: found a call of _profiled_all_to_all_single at"));
}

// Host clocks stamp late: calls keep their order and what they took, the step keeps its length.
TEST(Steps, LateStampsAreRepairedAndCounted) {
  RecordingBuilder builder(one_stage());
  for (int rank = 0; rank < 2; ++rank) builder.add(rank, moe_forward());
  traces::Recording recording = builder.take();
  std::swap(recording.ranks[1].sub_operations[0].timestamp, recording.ranks[1].sub_operations[1].timestamp);
  auto& last = recording.ranks[0].sub_operations[2].timestamp;
  last = traces::Decimal::from_ms(last.value() + 1);
  const RecordedJob job = interpret(recording);
  EXPECT_THAT(job.warnings, ::testing::Contains(HasSubstr("2 time stamps of calls contradict the order")));
  for (const RankSteps& rank : job.ranks) {
    const Step& step = rank.steps.at(0);
    ASSERT_EQ(step.calls.size(), 3u);
    EXPECT_EQ(step.calls[0].op, sim::CollectiveOp::all_gather);
    double sum = std::accumulate(step.segments_us.begin(), step.segments_us.end(), 0.0);
    for (const Call& call : step.calls) sum += call.recorded_us;
    EXPECT_NEAR(sum, 7900, 1e-3);
    EXPECT_DOUBLE_EQ(step.calls[2].recorded_us, 750);
  }
}

TEST(Steps, RefusesCallsBeyondTheirOperation) {
  RecordingBuilder builder(one_stage());
  for (int rank = 0; rank < 2; ++rank) builder.add(rank, moe_forward());
  traces::Recording recording = builder.take();
  recording.ranks[0].operations[0].timestamp = traces::Decimal::from_ms(1001.0);
  EXPECT_THAT(refusal_of_steps(recording), HasSubstr("rank00.txt:1: found calls that end"));
}

class EveryRecording : public testing::EchoTest {};

TEST_P(EveryRecording, SegmentsAndCallsAddUpToTheStep) {
  std::size_t with_calls = 0;
  for (const char* side : {"realistic", "scaling", "scaling2"}) {
    if (!std::filesystem::exists(folder() / side)) continue;
    const traces::Recording recording = traces::read_cmd(folder() / side);
    const RecordedJob job = interpret(recording);
    EXPECT_EQ(job.realistic, std::string(side) == "realistic");
    for (const RankSteps& rank : job.ranks)
      for (const Step& step : rank.steps) {
        if (is_p2p(step.kind) || is_gradient_sync(step.kind) || step.start_us <= 0) continue;
        ASSERT_EQ(step.segments_us.size(), step.calls.size() + 1);
        double sum = std::accumulate(step.segments_us.begin(), step.segments_us.end(), 0.0);
        for (const Call& call : step.calls) sum += call.recorded_us;
        with_calls += !step.calls.empty();
        // Every stamp is rounded to 10 us, and the last call may be stamped after the event that ends the
        // operation.
        EXPECT_NEAR(sum, step.duration_us, 100 + 10.0 * static_cast<double>(step.calls.size()))
            << place_of(rank, step).str();
      }
  }
  EXPECT_GT(with_calls, 0u);
}

INSTANTIATE_TEST_SUITE_P(Echo, EveryRecording, ::testing::ValuesIn(testing::kRealRuns), testing::test_name);

// Summaries of recorded runs against the table of the data set's description (iteration and means per
// operation).

constexpr int kGpusPerNode = 8;

// Milliseconds, rounded to two digits; the iteration to one.
struct Published {
  std::string_view name;
  double iteration;
  double forward, forward_compute, backward, backward_compute, get_batch, loss, dp, expert_dp, optimizer;
  double send_forward, recv_backward, recv_forward, send_backward;
};
constexpr Published kTable[] = {
    {"pp2_tp1_ep2_expn8_dp8_nl8_hs4096_sl1024", 754.2, 24.04, 20.51, 35.67, 31.66, 0.22, 1.46, 14.50, 113.66,
     59.47, 6.96, 10.02, 3.90, 0.72},
    {"pp2_tp1_ep4_expn16_dp8_nl8_hs4096_sl1024", 802.8, 27.58, 20.80, 40.82, 32.25, 0.22, 1.58, 14.01, 80.06,
     59.45, 7.80, 11.46, 4.48, 0.95},
    {"pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024", 642.1, 25.37, 19.51, 33.16, 24.82, 0.20, 0.88, 14.40, 40.22,
     33.45, 6.88, 10.32, 3.78, 0.60},
    {"pp2_tp1_ep8_expn16_dp8_nl8_hs4096_sl1024", 726.3, 31.02, 20.10, 41.79, 25.11, 0.20, 0.44, 13.96, 5.65,
     32.12, 6.70, 10.46, 4.44, 0.58},
    {"pp2_tp1_ep8_expn8_dp8_nl8_hs4096_sl1024", 729.0, 32.28, 18.59, 41.89, 21.09, 0.23, 0.50, 14.11, 2.86,
     19.69, 7.19, 11.30, 5.07, 0.89},
};

class MeasuredRun : public testing::EchoTest {};

TEST_P(MeasuredRun, AgreesWithThePublishedTable) {
  const Published* row = nullptr;
  for (const Published& one : kTable)
    if (one.name == GetParam()) row = &one;
  ASSERT_NE(row, nullptr);
  const traces::Recording recording = traces::read_cmd(folder() / "realistic");
  const RecordedJob job = interpret(recording);
  const RunSummary summary = summarize(job, kGpusPerNode);
  EXPECT_NEAR(summary.iteration_us / 1e3, row->iteration, 0.051);
  const auto expect_mean = [&](StepKind kind, double ms) {
    EXPECT_NEAR(summary.of(kind).mean_us / 1e3, ms, 0.0051) << name(kind);
  };
  expect_mean(StepKind::forward, row->forward);
  expect_mean(StepKind::backward, row->backward);
  expect_mean(StepKind::get_batch, row->get_batch);
  expect_mean(StepKind::loss, row->loss);
  expect_mean(StepKind::dp_all_reduce, row->dp);
  expect_mean(StepKind::expert_all_reduce, row->expert_dp);
  expect_mean(StepKind::optimizer, row->optimizer);
  expect_mean(StepKind::send_forward, row->send_forward);
  expect_mean(StepKind::recv_backward, row->recv_backward);
  expect_mean(StepKind::recv_forward, row->recv_forward);
  expect_mean(StepKind::send_backward, row->send_backward);
  EXPECT_EQ(summary.of(StepKind::forward).count, 16u * 8);

  // "Compute" is what is left of a step without its calls.
  const auto compute_ms = [&](StepKind kind) {
    double sum = 0;
    for (const RankSteps& rank : job.ranks)
      for (const Step& step : rank.steps) {
        if (step.kind != kind) continue;
        sum += step.duration_us;
        for (const Call& call : step.calls) sum -= call.recorded_us;
      }
    return sum / 1e3 / static_cast<double>(summary.of(kind).count);
  };
  EXPECT_NEAR(compute_ms(StepKind::forward), row->forward_compute, 0.0051);
  EXPECT_NEAR(compute_ms(StepKind::backward), row->backward_compute, 0.0051);
}

INSTANTIATE_TEST_SUITE_P(Echo, MeasuredRun, ::testing::ValuesIn(testing::kMoeConfigurations),
                         testing::test_name);

TEST(Measured, ClocksOfTwoNodesAreNotCompared) {
  // 16 ranks; the second node's clock is far ahead, and it works longer.
  testing::RecordingBuilder builder(Topology{.expert_dp = 16});
  for (int rank = 0; rank < 16; ++rank)
    builder.add(rank, {.name = "forward_step", .after_ms = rank < 8 ? 10.0 : 12.0});
  const traces::Recording recording = builder.take();
  EXPECT_NEAR(summarize(interpret(recording), kGpusPerNode).iteration_us, 12000, 1e-3);
}

TEST(Measured, AFusedPairTakesItsTimeOnce) {
  testing::RecordingBuilder builder(Topology{.pp = 2});
  const auto p2p = [](const char* operation) {
    return testing::OperationSpec{
        .name = operation, .after_ms = 2, .group = "pp", .shape = {8}, .dtype = "torch.bfloat16"};
  };
  builder.add(0, p2p("send_forward"));
  builder.add(0, p2p("recv_backward"));
  builder.add(1, p2p("recv_forward"));
  builder.add(1, p2p("send_backward"));
  traces::Recording recording = builder.take();
  // Written as two lines with equal duration and time stamp.
  auto& lines = recording.ranks[0].operations;
  lines[1].timestamp = lines[0].timestamp;
  const RecordedJob job = interpret(recording);
  ASSERT_TRUE(job.ranks[0].steps[0].fused_with_next);
  const RunSummary summary = summarize(job, kGpusPerNode);
  EXPECT_NEAR(summary.p2p_us, (2000 + 4000) / 2.0, 1e-3);
  EXPECT_NEAR(summary.of(StepKind::recv_backward).mean_us, 2000, 1e-3);
}

}  // namespace
}  // namespace moesim::replay
