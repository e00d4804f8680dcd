#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "process.h"
#include "replay/run/run_summary.h"
#include "tools/moesim/questions/recordings.h"

namespace moesim::tools {
namespace {

using replay::RecordingForecast;
using replay::Validation;
using ::testing::HasSubstr;
using testing::sample_folder;

RecordingForecast forecast_of(const char* side) {
  Recordings recordings;
  recordings.add((sample_folder() / side).string());
  replay::RecordingQuestion question;
  question.attribution = true;
  question.draws = side == std::string("scaling") ? 2 : 0;
  return replay::forecast_recording(recordings.jobs(), recordings.recording(0).named, question);
}

TEST(ReplayInvariants, HoldOfBothKindsOfRecordings) {
  for (const char* side : {"scaling", "realistic"}) EXPECT_EQ(impossible(forecast_of(side)), "") << side;
}

TEST(ReplayInvariants, SayWhatCannotBe) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<std::string, std::function<void(RecordingForecast&)>>> broken{
      {"a time of", [](RecordingForecast& f) { f.time_us.low = 2 * f.time_us.value; }},
      {"a time of", [](RecordingForecast& f) { f.time_us.high = kNan; }},
      {"us and of", [](RecordingForecast& f) { f.summary.iteration_us *= 1.01; }},
      {"a drawn time of", [](RecordingForecast& f) { f.draws_us.front() = -1; }},
      {"parts of", [](RecordingForecast& f) { f.breakdown_us.front() += 0.01 * f.time_us.value; }},
      {"a time of -1", [](RecordingForecast& f) { f.as_recorded.emplace(f).time_us.value = -1; }},
      {"a measured time of 0", [](RecordingForecast& f) { f.measured_us = 0; }},
      {"causes of", [](RecordingForecast& f) { f.attribution.shares.front().us += 1000; }},
      {"a wait of -1",
       [](RecordingForecast& f) {
         f.attribution.ranks.push_back({0, 0, -1});
       }},
      {"an operation of", [](RecordingForecast& f) { f.summary.steps.front().mean_us = kNan; }},
      {"sends and receives", [](RecordingForecast& f) { f.drawn.front().p2p_us = -1; }},
      {"an overload of", [](RecordingForecast& f) { f.overload->stages.front().max = -3; }},
      {"a link in use for 1.5", [](RecordingForecast& f) {
         f.network = {1, 1, {"a", "b", 1, 1.5}};
       }}};
  for (const auto& [what, breaks] : broken) {
    RecordingForecast forecast = forecast_of("scaling");
    breaks(forecast);
    EXPECT_THAT(impossible(forecast), HasSubstr(what));
  }
}

TEST(ReplayInvariants, OfAForecastBesideItsMeasurement) {
  const RecordingForecast forecast = forecast_of("scaling"), truth = forecast_of("realistic");
  const Validation good = replay::validate(forecast.summary, truth.summary, forecast.drawn);
  EXPECT_EQ(impossible(good), "");
  ASSERT_FALSE(good.components.empty());
  Validation bad = good;
  bad.iteration.measured_us = 0;
  EXPECT_THAT(impossible(bad), HasSubstr("a measured iteration of 0 us"));
  bad = good;
  bad.components.back().low_us = 2 * bad.components.back().high_us;
  EXPECT_THAT(impossible(bad), HasSubstr("a time of"));
}

}  // namespace
}  // namespace moesim::tools
