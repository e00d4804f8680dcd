// Forecasts from scaling recordings: five jobs against what they really took, and what must hold for any.
#include "replay/run/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/input_error.h"
#include "echo_data.h"
#include "made_job.h"
#include "models/hardware/cluster.h"
#include "recording_builder.h"
#include "replay/run/requested_job.h"
#include "replay/run/run_summary.h"
#include "tests/message_of.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

constexpr int kMicrobatches = 8;

class Forecaster {
 public:
  Iteration run(const std::vector<const traces::Recording*>& passes, int microbatches = kMicrobatches) const {
    return run(passes, microbatches, Effects(cluster_.profile));
  }
  Iteration run(const std::vector<const traces::Recording*>& passes, int microbatches,
                const Effects& effects) const {
    std::vector<RecordedJob> jobs;
    jobs.reserve(passes.size());
    for (const traces::Recording* pass : passes) jobs.push_back(interpret(*pass));
    const CleanJob clean = denoise(jobs);
    ForecastOptions options;
    options.microbatches = microbatches;
    return forecast(clean, passes.front()->named, cluster_, effects, options).iteration;
  }
  const models::Cluster& cluster() const { return cluster_; }

 private:
  models::Cluster cluster_ = models::Cluster::load("echo-h800x2");
};

constexpr double kMeanErrorBar = 0.012;
constexpr double kWorstErrorBar = 0.025;
// A good total must come from good parts. Loss is left out: its time is waiting for the slowest expert group.
constexpr std::pair<std::string_view, double> kComponentBars[] = {
    {"forward", 0.03},      {"backward", 0.03},         {"optimizer", 0.03},
    {"dp_allreduce", 0.03}, {"exp_dp_allreduce", 0.03}, {"p2p", 0.04}};  // p2p is mostly waiting too

// Each pass alone and both pooled, over all five jobs.
TEST(Forecast, FiveJobsAreForecastFromOneMicrobatch) {
  if (!std::filesystem::exists(testing::echo_folder())) GTEST_SKIP() << "the public recordings are not here";
  const Forecaster forecaster;
  double sum = 0, worst = 0;
  int cases = 0;
  std::map<std::string_view, double> component_errors;
  for (const char* name : testing::kMoeConfigurations) {
    const auto folder = testing::echo_folder() / name;
    const traces::Recording truth = traces::read_cmd(folder / "realistic");
    const traces::Recording first = traces::read_cmd(folder / "scaling");
    const traces::Recording second = traces::read_cmd(folder / "scaling2");
    const RunSummary measured = summarize(interpret(truth), forecaster.cluster().gpus_per_node);
    for (const auto& passes : {std::vector{&first}, std::vector{&second}, std::vector{&first, &second}}) {
      const Validation validation = validate(summarize(forecaster.run(passes)), measured);
      const double error = validation.iteration.error();
      sum += std::abs(error);
      worst = std::max(worst, std::abs(error));
      ++cases;
      for (const Comparison& component : validation.components)
        component_errors[component.name] += std::abs(component.error());
    }
  }
  EXPECT_LE(sum / cases, kMeanErrorBar);
  EXPECT_LE(worst, kWorstErrorBar);
  for (const auto& [name, bar] : kComponentBars) {
    ASSERT_TRUE(component_errors.contains(name)) << name;
    EXPECT_LE(component_errors[name] / cases, bar) << name;
  }
  RecordProperty("mean_abs_error", std::to_string(sum / cases));
  RecordProperty("worst_error", std::to_string(worst));
}

traces::Recording small_job() {
  testing::ScalingSpec spec;
  spec.topology = {.expert = 2, .expert_dp = 4, .pp = 2};
  spec.layers_per_stage = 4;
  spec.tokens = 1024;
  spec.received = {3000, 1096};
  return testing::scaling_recording(spec);
}

TEST(Forecast, EveryRankRunsTheWholeSchedule) {
  const traces::Recording recording = small_job();
  const Iteration iteration = Forecaster().run({&recording}, 5);
  const RunSummary summary = summarize(iteration);
  for (const StepKind kind : {StepKind::forward, StepKind::backward})
    EXPECT_EQ(summary.of(kind).count, 16u * 5);
  for (const StepKind kind : {StepKind::send_forward, StepKind::recv_forward, StepKind::send_backward,
                              StepKind::recv_backward, StepKind::loss})
    EXPECT_EQ(summary.of(kind).count, 8u * 5) << name(kind);
  for (const StepKind kind : {StepKind::dp_all_reduce, StepKind::expert_all_reduce, StepKind::optimizer})
    EXPECT_EQ(summary.of(kind).count, 16u) << name(kind);
}

TEST(Forecast, TakesAtLeastTheComputingOfItsBusiestRank) {
  const traces::Recording recording = small_job();
  const Iteration iteration = Forecaster().run({&recording});
  for (std::size_t r = 0; r < iteration.timeline.rank_count(); ++r) {
    const auto& rank = iteration.timeline.rank(sim::RankId(static_cast<std::uint32_t>(r)));
    EXPECT_LE(rank.busy.us(), iteration.us());
    // Whatever a rank does or waits for adds up to the iteration.
    EXPECT_NEAR(rank.busy.us() + rank.exposed_comm.us() + rank.straggler_wait.us() + rank.bubble.us() +
                    rank.host.us(),
                iteration.us(), 1e-3);
  }
}

TEST(Forecast, MicrobatchesAddTheirTimeOneByOne) {
  const traces::Recording recording = small_job();
  const Forecaster forecaster;
  // The last four load no batch.
  const Effects effects = Effects(forecaster.cluster().profile).without(EffectKind::loading_stall);
  const double four = forecaster.run({&recording}, 4, effects).us();
  const double five = forecaster.run({&recording}, 5, effects).us();
  const double nine = forecaster.run({&recording}, 9, effects).us();
  EXPECT_GT(five, four);
  EXPECT_NEAR((nine - five) / 4, five - four, 0.02 * (five - four));
}

// Four stages: the first and the last load batches, and the last four of six are ready. A mask of 1,024 x 1,024 bytes
// at 48 GB/s takes 22 of 220 us, one of 4,096 x 4,096 takes 349.
TEST(Forecast, TheEndsOfThePipelineLoadBatches) {
  const testing::MadeJob made;
  Effects effects;
  for (const EffectKind kind :
       {EffectKind::expert_spread, EffectKind::dense_spread, EffectKind::forward_jitter})
    effects.set(kind, 0);
  for (const auto& [seq, us] : {std::pair{1024, 219.8}, {4096, 547.0}}) {
    traces::NamedTopology named = made.named();
    named.seq = seq;
    CleanJob clean = made.clean;
    for (auto& [key, place] : clean.places)
      for (Step& step : place.steps)
        if (step.kind == StepKind::get_batch) step.segments_us.assign(1, 1e4);
    ForecastOptions options;
    options.microbatches = 6;
    options.architecture = &made.spec.model;
    std::vector<std::string> warnings;
    for (const RankSteps& plan : forecast_plans(clean, named, effects, options, warnings)) {
      const int stage = clean.topology.of(plan.rank).pp;
      std::map<int, double> first;
      for (const Step& step : plan.steps) {
        if (step.kind == StepKind::forward) first[step.microbatch] = step.segments_us.front();
        if (step.kind == StepKind::get_batch) {
          EXPECT_NEAR(step.segments_us.front(), us, 0.5);
        }
      }
      for (const auto& [microbatch, segment_us] : first) {
        const double stall = segment_us - first.at(5);
        if (microbatch < 2 && (stage == 0 || stage == 3)) {
          EXPECT_GE(stall, 0.75 * effects[EffectKind::loading_stall]) << stage << ", " << microbatch;
        } else {
          EXPECT_NEAR(stall, 0, 1e-6) << stage << ", " << microbatch;
        }
      }
    }
  }
}

TEST(Forecast, EffectsAreListedWithSourcesAndEachCanBeLeftOut) {
  const Forecaster forecaster;
  const Effects effects(forecaster.cluster().profile);
  std::set<std::string_view> names;
  for (const Effect& effect : effects.list()) {
    EXPECT_TRUE(names.insert(effect.name).second) << effect.name;
    EXPECT_FALSE(effect.source.empty()) << effect.name;
    EXPECT_FALSE(effect.what.empty()) << effect.name;
    EXPECT_FALSE(effect.unit.empty()) << effect.name;
    EXPECT_GT(effect.value, 0) << effect.name;
    EXPECT_GE(effect.sigma, 0) << effect.name;
    EXPECT_LT(effect.sigma, effect.value) << effect.name;
  }
  const traces::Recording recording = small_job();
  const double all = forecaster.run({&recording}, kMicrobatches, effects).us();
  for (std::size_t k = 0; k < kEffects; ++k) {
    const auto kind = static_cast<EffectKind>(k);
    // Ranks of other speed may also hide each other's delays, and fewer clipped rows are less time.
    const bool either_way = kind == EffectKind::expert_spread || kind == EffectKind::dense_spread ||
                            kind == EffectKind::clip_rows;
    EXPECT_LE(forecaster.run({&recording}, kMicrobatches, effects.without(kind)).us(),
              (either_way ? 1.005 : 1.0) * all + 1e-3)
        << effects.list()[k].name << " adds time or nothing";
  }
}

TEST(Forecast, RefusesAClusterThatIsTooSmall) {
  const traces::Recording recording = small_job();
  const RecordedJob job = interpret(recording);
  const CleanJob clean = denoise(std::span(&job, 1));
  const auto cluster = models::Cluster::load("echo-h800x1");
  ForecastOptions options;
  options.microbatches = kMicrobatches;
  EXPECT_THAT(
      message_of([&] { forecast(clean, recording.named, cluster, Effects(cluster.profile), options); }),
      HasSubstr("found a job of 16 ranks, expected at most the 8 GPUs"))
      << "16 ranks on 8 GPUs";
}

TEST(Forecast, DefaultMicrobatchesGiveAGlobalBatchOf64) {
  traces::NamedTopology named;
  EXPECT_EQ(default_microbatches({.expert = 2, .expert_dp = 4}, named), 8);
  EXPECT_EQ(default_microbatches({.expert_dp = 128}, named), 1);
  named.micro_batch = 4;
  EXPECT_EQ(default_microbatches({.expert_dp = 4}, named), 4);
}

std::vector<double> iterations(const std::vector<RunSummary>& drawn) {
  std::vector<double> out;
  out.reserve(drawn.size());
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
  const auto width = [&](const RecordingQuestion& request) {
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
  RecordingQuestion request;
  EXPECT_FALSE(drawn_jobs(clean, source.named, request).job);
  const double recorded_width = width(request);
  testing::say(request, "parallel.ep", 8);
  const double unknown = width(request);
  EXPECT_GT(unknown, 2 * recorded_width) << "unknown split of rows";
  request.received = {336, 4037, 6535, 741, 4362, 10, 337, 26};
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
