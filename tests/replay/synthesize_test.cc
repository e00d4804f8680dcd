// Recordings made by the models: written, read back, and forecast as recordings of machines are.
#include "replay/job/synthesize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/input_error.h"
#include "replay/run/forecast.h"
#include "replay/run/recorded_run.h"
#include "replay/run/run_summary.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"

namespace moesim::replay {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

SynthesisSpec spec() {
  SynthesisSpec out{.model = models::Architecture::load("mixtral-8x7b"),
                    .cluster = models::Cluster::load("echo-h800x2"),
                    .topology = {.expert = 4, .expert_dp = 2, .pp = 2},
                    .routing = models::RoutingSpec::parse("zipf:1.2")};
  return out;
}

class Synthesis : public ::testing::Test {
 protected:
  Synthesis() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              ("moesim_synthesis_" + std::string(info->name()) + std::to_string(getpid())) /
              "pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024";
    fs::remove_all(folder_.parent_path());
    fs::create_directories(folder_);
  }
  ~Synthesis() override { fs::remove_all(folder_.parent_path()); }

  fs::path folder_;
};

TEST_F(Synthesis, WrittenReadAndForecastComesBackToItself) {
  const SyntheticRecordings made = synthesize(spec());
  traces::write_cmd(made.scaling, folder_ / "scaling");
  traces::write_cmd(made.realistic, folder_ / "realistic");
  const traces::Recording scaling = traces::read_cmd(folder_ / "scaling");
  const traces::Recording realistic = traces::read_cmd(folder_ / "realistic");
  ASSERT_EQ(scaling.ranks.size(), 16u);
  ASSERT_EQ(realistic.ranks.size(), 16u);
  const RecordedJob truth = interpret(realistic);
  EXPECT_TRUE(truth.realistic);
  const double measured = summarize(truth, 8).iteration_us;

  const RecordedJob job = interpret(scaling);
  EXPECT_FALSE(job.realistic);
  const CleanJob clean = denoise(std::span(&job, 1));
  const SynthesisSpec made_from = spec();
  ForecastOptions options;
  options.microbatches = made_from.microbatches;
  options.architecture = &made_from.model;
  const auto forecast_made =
      forecast(clean, scaling.named, made_from.cluster, Effects(made_from.cluster.profile), options);
  EXPECT_NEAR(forecast_made.iteration.us() / measured, 1.0, 0.02);

  RecordedPricing pricing;
  const Iteration replayed = simulate(truth.topology, recorded_plans(truth, 8), pricing);
  EXPECT_NEAR(replayed.us() / measured, 1.0, 0.02);
}

TEST_F(Synthesis, SaysInEveryFileThatItIsSynthetic) {
  const SyntheticRecordings made = synthesize(spec());
  for (const auto* side : {&made.scaling, &made.realistic})
    for (const auto& rank : side->ranks) {
      ASSERT_FALSE(rank.header.empty());
      EXPECT_THAT(rank.header.front(), HasSubstr("SYNTHETIC"));
    }
}

TEST_F(Synthesis, ASeedGivesTheSameBytesAndAnotherDoesNot) {
  SynthesisSpec other = spec();
  other.seed = 2;
  const auto text = [](const SynthesisSpec& of) {
    return traces::write_cmd_text(synthesize(of).scaling.ranks[3]);
  };
  EXPECT_EQ(text(spec()), text(spec()));
  EXPECT_NE(text(spec()), text(other));
}

TEST_F(Synthesis, RefusesSizesThatDoNotDivide) {
  SynthesisSpec bad = spec();
  bad.layers = 7;
  EXPECT_THROW(synthesize(bad), InputError);
  bad = spec();
  bad.topology = {.expert = 3, .expert_dp = 2, .pp = 2};
  EXPECT_THROW(synthesize(bad), InputError);
  bad = spec();
  bad.topology = {.expert = 8, .expert_dp = 8, .pp = 2};
  EXPECT_THROW(synthesize(bad), InputError);
}

}  // namespace
}  // namespace moesim::replay
