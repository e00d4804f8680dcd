// Recordings as real recorders leave them: stamped late, cut short, without a rank, from two versions of the
// recorder. Each replays about as it would whole, or is refused with a line that says what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "base/input_error.h"
#include "base/random.h"
#include "echo_data.h"
#include "made_job.h"
#include "replay/job/synthesize.h"
#include "replay/run/forecast_recording.h"
#include "tests/message_of.h"
#include "traces/cmd_reader.h"
#include "traces/recording_check.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;
using ::testing::AnyOf;
using ::testing::HasSubstr;

traces::Recording whole(bool realistic) {
  SynthesisSpec spec = testing::replicated_job();
  spec.microbatches = 4;
  SyntheticRecordings made = synthesize(spec);
  return realistic ? std::move(made.realistic) : std::move(made.scaling);
}

double iteration_us(const traces::Recording& recording) {
  const RecordedJob job = interpret(recording);
  RecordingQuestion question;
  question.recorded_there = true;
  testing::say(question, "cluster", "echo-h800x2");
  testing::say(question, "parallel.microbatches", job.realistic ? 0 : 4);
  return forecast_recording(std::span(&job, 1), recording.named, question).summary.iteration_us;
}

traces::Decimal later(traces::Decimal stamp, double ms) {
  return stamp.is_placeholder() ? stamp : traces::Decimal::from_ms(stamp.value() + ms);
}

// Every stamp late by up to `most_ms`, in steps of 0.01 ms, as a host that is busy writes them.
void stamp_late(traces::Recording& recording, double most_ms, std::uint64_t seed) {
  for (traces::RankRecording& rank : recording.ranks) {
    Random random = Random::for_item(seed, static_cast<std::uint64_t>(rank.rank));
    for (traces::SubOperation& sub : rank.sub_operations)
      sub.timestamp = later(sub.timestamp, most_ms * random.uniform());
    for (std::size_t i = 0; i < rank.operations.size(); ++i)
      rank.operations[i].timestamp = later(rank.operations[i].timestamp, 0.3 * most_ms * random.uniform());
  }
}

TEST(PlausibleDamage, LateStampsCostLittle) {
  for (const bool realistic : {false, true})
    for (const double ms : {0.02, 0.6, 1.8})  // later stamps than a fused pair lasts tell two calls
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        const double clean = iteration_us(whole(realistic));
        traces::Recording damaged = whole(realistic);
        stamp_late(damaged, ms, seed);
        SCOPED_TRACE(::testing::Message()
                     << (realistic ? "realistic " : "scaling ") << ms << " ms, seed " << seed);
        // Computing moves between the segments around a call, on every rank otherwise, so that ranks wait for
        // each other: up to a tenth of steps of 20 ms whose 20 calls are late by 0.6 ms.
        EXPECT_NEAR(iteration_us(damaged) / clean, 1, ms > 1 ? 0.4 : ms > 0.1 ? 0.1 : 0.005);
        if (ms < 0.1) continue;
        EXPECT_THAT(interpret(damaged).warnings, ::testing::Contains(HasSubstr("repaired")));
        int listed = 0;
        for (const traces::Finding& finding : traces::examine(damaged, traces::describe(damaged)))
          listed += finding.text.find("(repaired") != std::string::npos;
        EXPECT_GT(listed, 0);
      }
}

// Returns the result of the damage, or the one line that refuses it.
std::string outcome(const traces::Recording& damaged, double clean_us) {
  return message_of([&] {
    const double ratio = iteration_us(damaged) / clean_us;
    EXPECT_GT(ratio, 0.5);
    EXPECT_LT(ratio, 1.5);
  });
}

TEST(PlausibleDamage, LostLinesWorkOrAreNamed) {
  for (const bool realistic : {false, true}) {
    const double clean = iteration_us(whole(realistic));
    for (int lost = 1; lost <= 6; ++lost)
      for (const std::size_t rank : {0u, 5u, 15u}) {
        traces::Recording damaged = whole(realistic);
        auto& operations = damaged.ranks[rank].operations;
        operations.resize(operations.size() - static_cast<std::size_t>(lost));
        const std::string said = outcome(damaged, clean);
        SCOPED_TRACE(said);
        // The rank or its file is named, and what was expected of it.
        if (!said.empty()) {
          EXPECT_THAT(said, AnyOf(HasSubstr("rank"), HasSubstr("expert rank")));
          EXPECT_THAT(said, AnyOf(HasSubstr("expected"), HasSubstr("no ")));
          EXPECT_EQ(said.find('\n'), std::string::npos);
        }
      }
  }
}

TEST(PlausibleDamage, AMissingRankIsFilledOrNamed) {
  for (const bool realistic : {false, true}) {
    const double clean = iteration_us(whole(realistic));
    for (const std::size_t rank : {0u, 6u, 15u}) {
      traces::Recording damaged = whole(realistic);
      damaged.ranks.erase(damaged.ranks.begin() + static_cast<std::ptrdiff_t>(rank));
      const std::string said = outcome(damaged, clean);
      if (realistic)
        EXPECT_THAT(said, HasSubstr("--ranks-missing"));
      else
        EXPECT_EQ(said, "");
    }
  }
}

// Half of the ranks were recorded by a writer of 2026, which stamps the start of a call.
TEST(PlausibleDamage, RanksOfTwoWritersGoTogether) {
  for (const bool realistic : {false, true}) {
    const double clean = iteration_us(whole(realistic));
    traces::Recording damaged = whole(realistic);
    for (std::size_t r = 0; r < damaged.ranks.size(); r += 2) {
      traces::RankRecording& rank = damaged.ranks[r];
      for (traces::Operation& operation : rank.operations) {
        operation.form = traces::LineForm::kV2;
        operation.cmd_uid = damaged.pool.name("cmd-0123456789ab");
        operation.op_semantics = damaged.pool.name("None");
      }
      for (traces::SubOperation& sub : rank.sub_operations)
        sub.timestamp = later(sub.timestamp, -sub.duration.value());
    }
    EXPECT_NEAR(iteration_us(damaged) / clean, 1, 0.01);
  }
}

TEST(PlausibleDamage, PublicRunsStampedLateReplayAsTheyWere) {
  const auto folder = testing::echo_folder() / testing::kMoeConfigurations[2];
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  for (const char* side : {"realistic", "scaling"}) {
    traces::Recording recording = traces::read_cmd(folder / side);
    const double clean = iteration_us(recording);
    stamp_late(recording, 0.6, 7);
    EXPECT_NEAR(iteration_us(recording) / clean, 1, 0.06) << side;
  }
}

}  // namespace
}  // namespace moesim::replay
