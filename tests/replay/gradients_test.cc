// Gradient sizes: both generations of recordings give the sizes that the real run reduced.
#include "replay/recording/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "echo_data.h"
#include "recording_builder.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Sizes {
  std::int64_t dense = 0, expert = 0;
};

class RecordedGradients : public testing::EchoTest {};

TEST_P(RecordedGradients, AreWhatTheRealRunReduces) {
  const traces::Recording truth = traces::read_cmd(folder() / "realistic");
  const RecordedJob real = interpret(truth);
  for (const char* side : {"scaling", "scaling2"}) {
    SCOPED_TRACE(side);
    const traces::Recording recording = traces::read_cmd(folder() / side);
    const RecordedJob job = interpret(recording);
    const CleanJob clean = denoise(std::span(&job, 1));
    const ModelFacts facts = model_facts(recording.named, clean, nullptr);
    EXPECT_TRUE(facts.model);
    std::vector<std::string> warnings;
    for (const RankSteps& rank : real.ranks) {
      const Coordinates at = real.topology.of(rank.rank);
      const GradientSizes sizes = gradient_sizes(clean, {at.pp, at.tp, at.expert}, facts, warnings);
      Sizes reduced;
      for (const Step& step : rank.steps) {
        if (step.kind == StepKind::dp_all_reduce) reduced.dense = step.elements;
        if (step.kind == StepKind::expert_all_reduce) reduced.expert = step.elements;
      }
      EXPECT_EQ(sizes.dense, reduced.dense) << "rank " << rank.rank;
      EXPECT_EQ(sizes.expert, reduced.expert) << "rank " << rank.rank;
      // Vocabulary of 50304 by hidden size 4096, on the first stage only.
      EXPECT_EQ(sizes.embedding, at.pp == 0 ? 50304LL * 4096 : 0) << "rank " << rank.rank;
    }
    EXPECT_THAT(warnings, IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Echo, RecordedGradients, ::testing::ValuesIn(testing::kMoeConfigurations),
                         testing::test_name);

TEST(Gradients, ASumThatNoModelExplainsStaysDenseAndSaysSo) {
  testing::ScalingSpec spec;
  spec.topology = {.expert = 2, .pp = 2};
  traces::Recording recording = testing::scaling_recording(spec);
  for (auto& rank : recording.ranks)
    std::erase_if(rank.operations,
                  [](const traces::Operation& line) { return line.name == "exp_dp_allreduce"; });
  const RecordedJob job = interpret(recording);
  const CleanJob clean = denoise(std::span(&job, 1));
  const ModelFacts facts = model_facts(recording.named, clean, nullptr);
  std::vector<std::string> warnings;
  const GradientSizes sizes = gradient_sizes(clean, {0, 0, 0}, facts, warnings);
  EXPECT_EQ(sizes.dense, 1000);
  EXPECT_EQ(sizes.expert, 0);
  EXPECT_THAT(warnings, Contains(HasSubstr("--model")));
  gradient_sizes(clean, {1, 0, 1}, facts, warnings);
  EXPECT_EQ(warnings.size(), 1u) << "said once";
}

TEST(Gradients, TwoLinesAreTakenAsTheyAre) {
  testing::ScalingSpec spec;
  spec.topology = {.expert = 2, .pp = 2};
  const traces::Recording recording = testing::scaling_recording(spec);
  const RecordedJob job = interpret(recording);
  const CleanJob clean = denoise(std::span(&job, 1));
  std::vector<std::string> warnings;
  const GradientSizes sizes =
      gradient_sizes(clean, {1, 0, 1}, model_facts(recording.named, clean, nullptr), warnings);
  EXPECT_EQ(sizes.dense, 1000);
  EXPECT_EQ(sizes.expert, 4000);
  EXPECT_EQ(sizes.parameters(), 5000);
  EXPECT_THAT(warnings, IsEmpty());
}

}  // namespace
}  // namespace moesim::replay
