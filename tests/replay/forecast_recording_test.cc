// The one way from recorded jobs to an iteration: what is asked of which kind of recording, and what it says.
#include "replay/run/forecast_recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "made_job.h"
#include "tests/message_of.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;
using ::testing::Not;

class Asked : public ::testing::Test {
 protected:
  Asked() { question_ = made_.request; }
  RecordingForecast scaling() const {
    return forecast_recording(std::span(&made_.job, 1), made_.named(), question_);
  }
  RecordingForecast realistic() const {
    return forecast_recording(std::span(&run_, 1), made_.made.realistic.named, question_);
  }

  testing::MadeJob made_;
  RecordedJob run_ = interpret(made_.made.realistic);
  RecordingQuestion question_;
};

// The simulated run of the same job, forecast from one microbatch of it, and replayed from its own lines.
TEST_F(Asked, BothKindsComeToTheSameIteration) {
  const RecordingForecast run = realistic();
  EXPECT_TRUE(run.realistic);
  ASSERT_TRUE(run.measured_us);
  EXPECT_NEAR(run.time_us.value / *run.measured_us, 1, 0.02);
  EXPECT_EQ(run.microbatches, 16);
  EXPECT_FALSE(run.effects);  // a run has them in its times
  testing::say(question_, "parallel.microbatches", 16);
  const RecordingForecast told = scaling();
  EXPECT_FALSE(told.realistic);
  EXPECT_FALSE(told.measured_us);
  EXPECT_TRUE(told.effects);
  EXPECT_NEAR(told.time_us.value / *run.measured_us, 1, 0.03);
  EXPECT_EQ(told.summary.of(StepKind::forward).count, 16u * 16);
  for (const std::string& warning : told.warnings) EXPECT_THAT(warning, Not(HasSubstr("microbatches")));
  // Both see the same overload of the experts.
  ASSERT_TRUE(run.overload && told.overload);
  EXPECT_NEAR(run.overload->stages[0].max, told.overload->stages[0].max, 1e-6);
}

TEST_F(Asked, MicrobatchesAreGuessedAndItSaysSo) {
  const RecordingForecast told = scaling();
  EXPECT_EQ(told.microbatches, 16);  // a global batch of 64 on dp 4
  EXPECT_EQ(
      told.warnings.front(),
      "a scaling recording does not say how many microbatches a step has: 16 per rank, for a global batch of "
      "64; set --microbatches");
}

TEST_F(Asked, AnotherDispatcherStandsBesideTheRecordedOne) {
  testing::say(question_, "dispatcher", "allgather");
  testing::say(question_, "parallel.microbatches", 4);
  const RecordingForecast told = scaling();
  EXPECT_EQ(told.changes, "allgather instead of alltoall-legacy");
  ASSERT_TRUE(told.as_recorded);
  question_ = question_.as_recorded();
  const RecordingForecast same = scaling();
  EXPECT_EQ(same.changes, "");
  EXPECT_FALSE(same.as_recorded);
  EXPECT_NEAR(told.as_recorded->time_us.value, same.time_us.value, 1e-6);
  EXPECT_NE(told.iteration.us(), same.iteration.us());
}

// The iteration says it all: its critical rank's parts add up to the time, and every rank is counted.
TEST_F(Asked, AnIterationIsAForecast) {
  question_.attribution = true;
  testing::say(question_, "dispatcher", "allgather");
  testing::say(question_, "parallel.microbatches", 4);
  const RecordingForecast told = scaling();
  testing::say(question_, "parallel.microbatches", 0);
  const RecordingForecast run = realistic();
  for (const RecordingForecast* one : {&told, &run}) {
    ASSERT_TRUE(one->as_recorded && one->before);
    for (const IterationForecast* f : {static_cast<const IterationForecast*>(one), &*one->as_recorded}) {
      EXPECT_NEAR(f->time_us.value, f->iteration.us(), 1e-9);
      EXPECT_EQ(f->healthy_us, f->time_us.value);
      EXPECT_NEAR(std::accumulate(f->breakdown_us.begin(), f->breakdown_us.end(), 0.0), f->time_us.value,
                  1e-3);
      EXPECT_GT(f->exposed_comm_us, 0);
      EXPECT_EQ(f->iteration.topology.of(f->critical_rank).pp, f->critical_stage);
      EXPECT_EQ(f->gpus, 16);
      EXPECT_EQ(f->tokens, 1024.0 * 4 * one->microbatches);  // dp 4
      EXPECT_EQ(f->network.groups, 0);
    }
    EXPECT_EQ(one->before->gpus, 16);
    EXPECT_EQ(one->before->tokens, 1024.0 * 4 * 16);
  }
}

// A value inside its interval, and what each added constant takes.
TEST_F(Asked, DrawsAndGainsAreOnRequest) {
  testing::say(question_, "parallel.microbatches", 2);
  const RecordingForecast alone = scaling();
  EXPECT_TRUE(alone.drawn.empty());
  EXPECT_TRUE(alone.effect_gains_us.empty());
  question_.draws = 8;
  question_.effect_gains = true;
  question_.attribution = true;
  const RecordingForecast told = scaling();
  EXPECT_EQ(told.drawn.size(), 8u);
  EXPECT_EQ(told.draws_us.size(), 8u);
  EXPECT_EQ(told.draws_us.back(), told.drawn.back().iteration_us);
  EXPECT_EQ(told.time_us.value, alone.time_us.value);
  EXPECT_GT(told.time_us.high - told.time_us.low, alone.time_us.high - alone.time_us.low);
  ASSERT_EQ(told.effect_gains_us.size(), kEffects);
  double sum = 0;
  for (const TimeShare& share : told.attribution.shares) sum += share.us;
  EXPECT_NEAR(sum, told.iteration.us(), 1e-3);
}

TEST_F(Asked, ARunKeepsItsTimesAndMicrobatches) {
  question_.flow = true;
  EXPECT_EQ(
      message_of([&] { realistic(); }),
      "found --timing flow with a realistic recording, expected a scaling recording: a run keeps the times "
      "that its transfers had");
  question_.flow = false;
  testing::say(question_, "parallel.microbatches", 3);
  EXPECT_EQ(
      message_of([&] { realistic(); }),
      "found --microbatches with a realistic recording, expected a scaling recording: a run is replayed "
      "with the microbatches it had");
  testing::say(question_, "parallel.microbatches", 0);
  const std::vector<RecordedJob> two{run_, run_};
  EXPECT_THAT(message_of([&] { forecast_recording(two, made_.made.realistic.named, question_); }),
              HasSubstr("found several realistic recordings, expected one"));
}

TEST_F(Asked, ASharedNetworkIsOfTheRecordedDispatcher) {
  question_.flow = true;
  testing::say(question_, "dispatcher", "allgather");
  EXPECT_THAT(message_of([&] { scaling(); }), HasSubstr("found --timing flow with --dispatcher"));
  question_ = question_.as_recorded();
  testing::say(question_, "parallel.microbatches", 2);
  const RecordingForecast told = scaling();
  EXPECT_GT(told.network.groups, 0);
  EXPECT_GT(told.network.calibrated_us, 0);
  EXPECT_FALSE(told.network.busiest.from.empty());
}

TEST(MicrobatchesOf, AreCountedFromForwardSteps) {
  RecordedJob job;
  job.ranks.resize(1);
  for (const int microbatch : {0, 3, 1}) {
    Step step;
    step.kind = StepKind::forward;
    step.microbatch = microbatch;
    job.ranks[0].steps.push_back(step);
  }
  EXPECT_EQ(microbatches_of(job), 4);
  EXPECT_EQ(microbatches_of(RecordedJob()), 0);
}

}  // namespace
}  // namespace moesim::replay
