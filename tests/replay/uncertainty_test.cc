// Intervals: drawn the same way every time, around the forecast, and wide enough for what was measured.
#include "replay/run/uncertainty.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "echo_data.h"
#include "recording_builder.h"
#include "replay/run/requested_job.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

std::vector<double> iterations(const std::vector<RunSummary>& drawn) {
  std::vector<double> out;
  for (const RunSummary& one : drawn) out.push_back(one.iteration_us);
  return out;
}

// A job made ready for forecasts.
class Job {
 public:
  explicit Job(const std::vector<const traces::Recording*>& passes) : named_(passes.front()->named) {
    for (const traces::Recording* pass : passes) jobs_.push_back(interpret(*pass));
    clean_ = denoise(jobs_);
    options_.microbatches = 8;
  }
  double forecast_us() const { return forecast(clean_, named_, cluster_, effects_, options_).iteration.us(); }
  std::vector<double> draw(int draws) const {
    return iterations(draw_forecasts(clean_, named_, cluster_, effects_, options_, draws));
  }
  int gpus_per_node() const { return cluster_.gpus_per_node; }

 private:
  traces::NamedTopology named_;
  models::Cluster cluster_ = models::Cluster::load("echo-h800x2");
  Effects effects_{cluster_.profile};
  std::vector<RecordedJob> jobs_;
  CleanJob clean_;
  ForecastOptions options_;
};

TEST(Uncertainty, ADrawDependsOnItsNumberOnly) {
  testing::ScalingSpec spec;
  spec.topology = {.expert = 2, .expert_dp = 2, .pp = 2};
  spec.received = {150, 106};
  const traces::Recording recording = testing::scaling_recording(spec);
  const Job job({&recording});
  const auto few = job.draw(3);
  const auto many = job.draw(6);
  ASSERT_EQ(many.size(), 6u);
  EXPECT_EQ(few, std::vector<double>(many.begin(), many.begin() + 3));
  EXPECT_NE(many[0], many[1]);
}

TEST(Uncertainty, AnIntervalHoldsItsValueAndWidensWithTheDraws) {
  const models::Estimate narrow = interval(1000, {999, 1000, 1001});
  const models::Estimate wide = interval(1000, {900, 1000, 1100});
  for (const models::Estimate& one : {narrow, wide, interval(1000, {}), interval(1000, {1200, 1210, 1220})}) {
    EXPECT_EQ(one.value, 1000);
    EXPECT_LE(one.low, one.value);
    EXPECT_GE(one.high, one.value);
  }
  EXPECT_GT(wide.high - wide.low, narrow.high - narrow.low);
  // One run differs from the next even where the forecast is certain.
  EXPECT_NEAR(narrow.high / narrow.low, std::exp(2 * 1.645 * kRunToRun), 1e-3);
}

// The interval must cover what a recording does not contain: a job on more expert ranks than recorded depends
// on the popularity of the experts within a recorded rank.
TEST(Uncertainty, AJobThatRestsOnTheModelsIsLessCertain) {
  if (!std::filesystem::exists(testing::echo_folder())) GTEST_SKIP() << "the public recordings are not here";
  const traces::Recording source =
      traces::read_cmd(testing::echo_folder() / "pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024" / "scaling");
  const RecordedJob recorded = interpret(source);
  const CleanJob clean = denoise(std::span(&recorded, 1));
  const auto width = [&](const JobRequest& request) {
    const RequestedJob job = requested_job(clean, source.named, request);
    ForecastOptions options;
    options.microbatches = 8;
    const Effects effects(job.cluster.profile);
    const models::Estimate estimate =
        interval(forecast(job.clean, job.named, job.cluster, effects, options).iteration.us(),
                 iterations(draw_forecasts(job.clean, job.named, job.cluster, effects, options, 64,
                                           drawn_jobs(clean, source.named, request))));
    return (estimate.high - estimate.low) / estimate.value;
  };
  JobRequest request;
  EXPECT_FALSE(drawn_jobs(clean, source.named, request).job);
  const double recorded_width = width(request);
  request.change.ep = 8;
  const double unknown = width(request);
  EXPECT_GT(unknown, 2 * recorded_width) << "unknown split of rows";
  request.change.received = {336, 4037, 6535, 741, 4362, 10, 337, 26};
  const double told = width(request);
  EXPECT_LT(told, 0.8 * unknown) << "known rows";
  EXPECT_GT(told, recorded_width);
}

// 90 % intervals, over five jobs and their passes: at least four in five cover, and none is wider than +-5 %.
TEST(Uncertainty, MeasuredIterationsLieInside) {
  if (!std::filesystem::exists(testing::echo_folder())) GTEST_SKIP() << "the public recordings are not here";
  int cases = 0, covered = 0;
  for (const char* name : testing::kMoeConfigurations) {
    const auto folder = testing::echo_folder() / name;
    const traces::Recording truth = traces::read_cmd(folder / "realistic");
    const traces::Recording first = traces::read_cmd(folder / "scaling");
    const traces::Recording second = traces::read_cmd(folder / "scaling2");
    for (const auto& passes : {std::vector{&first}, std::vector{&second}, std::vector{&first, &second}}) {
      const Job job(passes);
      const double measured = summarize(interpret(truth), job.gpus_per_node()).iteration_us;
      const models::Estimate estimate = interval(job.forecast_us(), job.draw(24));
      ++cases;
      covered += estimate.low <= measured && measured <= estimate.high;
      EXPECT_LE(estimate.high - estimate.low, 0.10 * estimate.value) << name;
    }
  }
  EXPECT_GE(covered, 0.8 * cases) << covered << " of " << cases;
}

}  // namespace
}  // namespace moesim::replay
