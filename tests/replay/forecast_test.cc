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
#include "models/hardware/cluster.h"
#include "recording_builder.h"
#include "replay/run/run_summary.h"
#include "replay/run/validate.h"
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
  const double four = forecaster.run({&recording}, 4).us();
  const double five = forecaster.run({&recording}, 5).us();
  const double nine = forecaster.run({&recording}, 9).us();
  EXPECT_GT(five, four);
  EXPECT_NEAR((nine - five) / 4, five - four, 0.02 * (five - four));
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

}  // namespace
}  // namespace moesim::replay
