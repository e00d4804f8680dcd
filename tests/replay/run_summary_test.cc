// Summaries of recorded runs against the table of the data set's description (iteration and means per
// operation).
#include "replay/run/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string_view>

#include "echo_data.h"
#include "recording_builder.h"
#include "replay/run/forecast.h"
#include "replay/run/recorded_run.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

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

RunSummary summary(double iteration_us, double forward_us) {
  RunSummary run;
  run.iteration_us = iteration_us;
  run.steps[static_cast<std::size_t>(StepKind::forward)] = {4, forward_us};
  return run;
}

TEST(Validate, ComparesWhatBothSidesHave) {
  RunSummary forecast, measured;
  forecast.iteration_us = 110;
  measured.iteration_us = 100;
  forecast.steps[static_cast<std::size_t>(StepKind::forward)] = {4, 9};
  measured.steps[static_cast<std::size_t>(StepKind::forward)] = {4, 10};
  measured.steps[static_cast<std::size_t>(StepKind::loss)] = {4, 10};
  forecast.p2p_us = 30;
  measured.p2p_us = 20;
  const Validation validation = validate(forecast, measured);
  EXPECT_NEAR(validation.iteration.error(), 0.10, 1e-12);
  ASSERT_EQ(validation.components.size(), 2u);
  EXPECT_EQ(validation.components[0].name, "forward");
  EXPECT_NEAR(validation.components[0].error(), -0.10, 1e-12);
  EXPECT_EQ(validation.components[1].name, "p2p");
  EXPECT_NEAR(validation.mean_abs_component_error(), 0.30, 1e-12);
}

// The time to get a batch is left out on purpose: no forecast depends on it.
TEST(Validate, LeavesBatchesOut) {
  RunSummary both = summary(100, 10);
  both.steps[static_cast<std::size_t>(StepKind::get_batch)] = {4, 10};
  const Validation validation = validate(both, both);
  ASSERT_EQ(validation.components.size(), 1u);
  EXPECT_EQ(validation.components[0].name, "forward");
  EXPECT_EQ(validation.mean_abs_component_error(), 0);
}

TEST(Validate, IntervalsComeFromFurtherForecasts) {
  const Validation alone = validate(summary(100, 10), summary(120, 10));
  // One run differs from the next even where the forecast is certain.
  EXPECT_NEAR(alone.iteration.low_us, 100 * std::exp(-1.645 * kRunToRun), 1e-2);
  EXPECT_NEAR(alone.iteration.high_us, 100 * std::exp(1.645 * kRunToRun), 1e-2);
  EXPECT_FALSE(alone.iteration.covered());
  std::vector<RunSummary> drawn;
  for (int i = 0; i <= 40; ++i) drawn.push_back(summary(80 + i, 10));
  const Validation wide = validate(summary(100, 10), summary(117, 10), drawn);
  EXPECT_LT(wide.iteration.low_us, 84);
  EXPECT_GT(wide.iteration.high_us, 116);
  EXPECT_TRUE(wide.iteration.covered());
  EXPECT_TRUE(wide.components[0].covered());
  EXPECT_FALSE(validate(summary(100, 10), summary(140, 10), drawn).iteration.covered());
}

TEST(Comparison, OfNothingMeasuredHasNoError) {
  EXPECT_EQ((Comparison{"", 10, 0, 10, 10}.error()), 0);
  EXPECT_NEAR((Comparison{"", 10, 8, 10, 10}.error()), 0.25, 1e-12);
}

}  // namespace
}  // namespace moesim::replay
