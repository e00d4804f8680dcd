// Plans of all ranks matched, timed and, where they do not fit, refused with both lines.
#include "replay/run/iteration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/input_error.h"
#include "recording_builder.h"
#include "replay/job/synthesize.h"
#include "replay/run/forecast.h"
#include "replay/run/recorded_run.h"
#include "replay/run/run_summary.h"
#include "tests/message_of.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"

namespace moesim::replay {
namespace {

namespace fs = std::filesystem;
using moesim::testing::message_of;
using ::testing::AllOf;
using testing::CallSpec;
using ::testing::HasSubstr;
using testing::RecordingBuilder;

// 1F1B of equal stages and free transfers: the closed form is (microbatches + stages - 1) * (forward +
// backward).
std::vector<RankSteps> uniform_pipeline(int stages, int microbatches, double forward_us, double backward_us) {
  std::vector<RankSteps> plans;
  const std::vector<std::vector<Slot>> slots = one_forward_one_backward(stages, microbatches);
  for (int stage = 0; stage < stages; ++stage) {
    RankSteps plan;
    plan.rank = stage;
    for (const Slot& slot : slots[static_cast<std::size_t>(stage)]) {
      Step step;
      step.kind = slot.kind;
      step.microbatch = slot.microbatch;
      step.fused_with_next = slot.fused_with_next;
      step.elements = is_p2p(slot.kind) ? 16 : 0;
      step.element_bytes = 2;
      if (slot.kind == StepKind::forward) step.segments_us = {forward_us};
      if (slot.kind == StepKind::backward) step.segments_us = {backward_us};
      plan.steps.push_back(std::move(step));
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

RC_GTEST_PROP(Iteration, UniformPipelineHasItsClosedForm, ()) {
  const int stages = *rc::gen::inRange(1, 9);
  const int microbatches = *rc::gen::inRange(1, 20);
  const double forward_us = *rc::gen::inRange(1, 1000);
  const double backward_us = *rc::gen::inRange(1, 1000);
  RecordedPricing pricing;
  const auto plans = uniform_pipeline(stages, microbatches, forward_us, backward_us);
  const Iteration iteration = simulate({.pp = stages}, plans, pricing);
  RC_ASSERT(iteration.us() == (microbatches + stages - 1) * (forward_us + backward_us));
  for (const StepSpan& span : iteration.spans) {
    if (span.kind == StepKind::forward) RC_ASSERT(span.duration_us() == forward_us);
    if (span.kind == StepKind::backward) RC_ASSERT(span.duration_us() == backward_us);
  }
}

// Two expert ranks, one all-gather between two pieces of computing.
CallSpec gather(std::int64_t rows, double before_ms, double ms) {
  return {
      "_gather_along_first_dim_expert_parallel", "allgather", "exp", {rows}, "torch.int64", before_ms, ms};
}
CallSpec exchange(std::int64_t rows, double before_ms, double ms, const char* dtype = "torch.bfloat16") {
  return {"_profiled_all_to_all_single", "all_to_all", "exp", {rows, 4}, dtype, before_ms, ms};
}

Iteration replayed(const traces::Recording& recording) {
  const RecordedJob job = interpret(recording);
  RecordedPricing pricing;
  return simulate(job.topology, recorded_plans(job, 8), pricing);
}

std::string refusal_of_replay(const traces::Recording& recording) {
  return message_of([&] { replayed(recording); });
}

TEST(Iteration, EveryoneWaitsForTheLastAndThenTransfers) {
  // Rank 1 comes 3 ms late; its recorded 0.5 ms is the transfer, rank 0's 3.5 ms is waiting and transfer.
  RecordingBuilder builder(Topology{.expert = 2});
  builder.add(0, {.name = "forward_step", .calls = {gather(4, 2, 3.5)}, .after_ms = 1});
  builder.add(1, {.name = "forward_step", .calls = {gather(4, 5, 0.5)}, .after_ms = 4});
  const traces::Recording recording = builder.take();
  const Iteration iteration = replayed(recording);
  EXPECT_NEAR(iteration.us(), 9500, 1e-3);
  const auto& fast = iteration.timeline.rank(sim::RankId(0));
  EXPECT_NEAR(fast.straggler_wait.us(), 3000, 1e-3);
  EXPECT_NEAR(iteration.timeline.rank(sim::RankId(1)).straggler_wait.us(), 0, 1e-3);
  EXPECT_NEAR(fast.busy.us(), 3000, 1e-3);
}

TEST(Iteration, RanksMayExchangeUnequalRows) {
  RecordingBuilder builder(Topology{.expert = 2});
  builder.add(0, {.name = "forward_step", .calls = {exchange(100, 1, 0.5)}, .after_ms = 1});
  builder.add(1, {.name = "forward_step", .calls = {exchange(7, 1, 0.5)}, .after_ms = 1});
  EXPECT_EQ(refusal_of_replay(builder.take()), "");
}

TEST(Iteration, RefusesRanksThatDisagreeOnTheCollective) {
  RecordingBuilder builder(Topology{.expert = 2});
  builder.add(0, {.name = "forward_step", .calls = {gather(4, 1, 0.5)}, .after_ms = 1});
  builder.add(1, {.name = "get_batch", .after_ms = 1});
  builder.add(1, {.name = "forward_step", .calls = {exchange(4, 1, 0.5)}, .after_ms = 1});
  const std::string text = refusal_of_replay(builder.take());
  EXPECT_THAT(text, AllOf(HasSubstr("rank01.txt:2: found"), HasSubstr("(rank00.txt:1)"), HasSubstr("rank 0"),
                          HasSubstr("rank 1")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0);
}

TEST(Iteration, RefusesRanksThatDisagreeOnSizeOrType) {
  RecordingBuilder sizes(Topology{.expert = 2});
  sizes.named().experts.reset();
  sizes.add(0, {.name = "forward_step", .calls = {gather(4, 1, 0.5)}, .after_ms = 1});
  sizes.add(1, {.name = "forward_step", .calls = {gather(8, 1, 0.5)}, .after_ms = 1});
  EXPECT_THAT(refusal_of_replay(sizes.take()),
              AllOf(HasSubstr("rank01.txt:1: found"), HasSubstr("of 8 x 8 bytes"),
                    HasSubstr("of 4 x 8 bytes"), HasSubstr("(rank00.txt:1)")));
  RecordingBuilder types(Topology{.expert = 2});
  types.add(0, {.name = "forward_step", .calls = {exchange(4, 1, 0.5)}, .after_ms = 1});
  types.add(1, {.name = "forward_step", .calls = {exchange(4, 1, 0.5, "torch.float32")}, .after_ms = 1});
  EXPECT_THAT(refusal_of_replay(types.take()),
              AllOf(HasSubstr("rank01.txt:1: found"), HasSubstr("4 x 16 bytes"), HasSubstr("4 x 8 bytes"),
                    HasSubstr("(rank00.txt:1)")));
  RecordingBuilder gradients(Topology{.expert = 2});
  for (int rank = 0; rank < 2; ++rank)
    gradients.add(rank, {.name = "dp_allreduce",
                         .after_ms = 1,
                         .group = "dp",
                         .shape = {100 + rank},
                         .dtype = "torch.float32"});
  EXPECT_THAT(refusal_of_replay(gradients.take()),
              AllOf(HasSubstr("rank01.txt:1: found"), HasSubstr("101 x 4 bytes"), HasSubstr("100 x 4 bytes"),
                    HasSubstr("(rank00.txt:1)")));
}

TEST(Iteration, RefusesACallThatAMemberNeverMakes) {
  RecordingBuilder builder(Topology{.expert = 2});
  builder.add(0, {.name = "forward_step", .calls = {gather(4, 1, 0.5), gather(4, 1, 0.5)}, .after_ms = 1});
  builder.add(1, {.name = "forward_step", .calls = {gather(4, 1, 0.5)}, .after_ms = 1});
  EXPECT_THAT(refusal_of_replay(builder.take()),
              AllOf(HasSubstr("rank00.txt:1: found rank 0"), HasSubstr("number 2"),
                    HasSubstr("which rank 1 never makes")));
}

TEST(Iteration, RefusesASendThatNobodyReceives) {
  RecordingBuilder builder(Topology{.pp = 2});
  builder.add(0, {.name = "forward_step", .after_ms = 1});
  builder.add(
      0, {.name = "send_forward", .after_ms = 1, .group = "pp", .shape = {8}, .dtype = "torch.bfloat16"});
  builder.add(1, {.name = "forward_step", .after_ms = 1});
  EXPECT_THAT(refusal_of_replay(builder.take()),
              AllOf(HasSubstr("rank00.txt:2: found rank 0"), HasSubstr("rank 1 never makes")));
}

TEST(Iteration, RefusesToTalkBeyondTheLastStage) {
  RecordingBuilder builder(Topology{.pp = 2});
  builder.add(0, {.name = "forward_step", .after_ms = 1});
  builder.add(
      1, {.name = "send_forward", .after_ms = 1, .group = "pp", .shape = {8}, .dtype = "torch.bfloat16"});
  EXPECT_THAT(refusal_of_replay(builder.take()),
              HasSubstr("rank01.txt:1: found send_forward on stage 1 of 2"));
}

TEST(Iteration, ExplainsADeadlock) {
  // Every call has its counterpart, but the two ranks make them in opposite order.
  const CallSpec sum{"allreduce", "allreduce", "dp", {1}, "torch.float32", 1, 0.5};
  RecordingBuilder builder(Topology{.expert = 2});
  builder.add(0, {.name = "forward_step", .calls = {gather(4, 1, 0.5), sum}, .after_ms = 1});
  builder.add(1, {.name = "forward_step", .calls = {sum, gather(4, 1, 0.5)}, .after_ms = 1});
  const std::string text = refusal_of_replay(builder.take());
  EXPECT_THAT(text, AllOf(HasSubstr("deadlock"), HasSubstr("rank 0"), HasSubstr("rank 1")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0);
}

// Recordings made by the models: written, read back, and forecast as recordings of machines are.

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
