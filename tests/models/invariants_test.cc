#include "models/answers/invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/workload/scenario.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using ::testing::HasSubstr;

Scenario scenario_of(const char* text) { return Scenario::parse(JsonNode::parse(text, "s.json")); }

const Comparison& answered() {
  static const Comparison comparison = answer(
      scenario_of(R"({"model": "olmoe", "cluster": "dgx-h100x2", "scope": "step", "dispatcher": "alltoall",
                      "parallel": {"ep": 8, "seq": 2048, "microbatches": 2}})"),
      {.draws = 4});
  return comparison;
}

TEST(Invariants, HoldOfAnAnswer) {
  const Comparison& c = answered();
  EXPECT_EQ(impossible(*c.scenario, c.answers.front()), "");
}

TEST(Invariants, SayWhatCannotBe) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<std::string, std::function<void(Answer&)>>> broken{
      {"an MFU of 7.15", [](Answer& a) { a.mfu = 7.149; }},
      {"a time of", [](Answer& a) { a.time_us.value = -1; }},
      {"a time of", [](Answer& a) { a.time_us.low = 2 * a.time_us.value; }},
      {"a time of", [](Answer& a) { a.time_us.high = kNan; }},
      {"a drawn time", [](Answer& a) { a.draws_us.back() = -8.9e9; }},
      {"us of attention",
       [](Answer& a) { a.breakdown_us[static_cast<std::size_t>(sim::Category::attention)] = -8.9e9; }},
      {"parts of", [](Answer& a) { a.breakdown_us[0] += 0.01 * a.time_us.value; }},
      {"a share of 1.5", [](Answer& a) { a.outside_domain = 1.5; }},
      {"a share of", [](Answer& a) { a.memory.fits_probability = -0.1; }},
      {"a memory of -1", [](Answer& a) { a.memory.max_bytes = -1; }},
      {"a part of the memory", [](Answer& a) { a.memory.worst.activations = kNan; }},
      {"beside a peak", [](Answer& a) { a.memory.max_bytes /= 2; }},
      {"bytes sent by a rank", [](Answer& a) { a.tx_bytes.front() = -5; }},
      {"tokens", [](Answer& a) { a.tokens = -1; }},
      {"a link in use for 1.5", [](Answer& a) { a.network.busiest.utilisation = 1.5; }},
      {"us without contention", [](Answer& a) { a.network.calibrated_us = kNan; }},
      {"a cost", [](Answer& a) { a.cost = kNan; }}};
  for (const auto& [what, breaks] : broken) {
    const Comparison& c = answered();
    Answer a = c.answers.front();
    breaks(a);
    EXPECT_THAT(impossible(*c.scenario, a), HasSubstr(what));
    EXPECT_THROW(check_answer(*c.scenario, a), InputError) << what;
  }
}

// The first of these said an MFU of 714.9 %, the second summed to 9e12, the third had 0.00 GB and fitted.
TEST(Invariants, OfAMemoryAndOfADecision) {
  const Comparison& c = answered();
  StepMemory memory = c.answers.front().memory;
  EXPECT_EQ(impossible(memory), "");
  memory.stages.front().fits_probability = 1.2;
  EXPECT_THAT(impossible(memory), HasSubstr("a probability of 1.2"));
  memory = c.answers.front().memory;
  memory.worst.optimizer = 2 * memory.max_bytes;
  EXPECT_THAT(impossible(memory), HasSubstr("beside a peak"));
  const Decision decision = c.decision;
  EXPECT_EQ(impossible(decision, c.answers.size()), "");
  const auto broken = [&](auto breaks) {
    Decision other = decision;
    breaks(other);
    return impossible(other, c.answers.size());
  };
  EXPECT_THAT(broken([](Decision& d) { d.fastest[0] = 1.01; }), HasSubstr("a probability of 1.01"));
  EXPECT_THAT(broken([](Decision& d) { d.winner = 7; }), HasSubstr("answers 7 and"));
  EXPECT_THAT(broken([](Decision& d) { d.runner_up = d.winner; }), HasSubstr("as winner and second"));
  EXPECT_THAT(broken([](Decision& d) { d.speedup.low = 9; }), HasSubstr("a speedup of"));
  EXPECT_THAT(broken([](Decision& d) {
                d.verdict = Decision::Verdict::kClear;
                d.fastest[static_cast<std::size_t>(d.winner)] = 0.5;
              }),
              HasSubstr("a clear decision"));
}

// A step at the limit of its microbatches is answered.
TEST(SizeLimits, AllowTheLongestStep) {
  Scenario s = scenario_of(R"({"model": "olmoe", "cluster": "dgx-h100x1", "scope": "step",
                               "dispatcher": "alltoall", "parallel": {"ep": 8, "seq": 512}})");
  s.parallel.microbatches = kMostLayerPasses / s.model.layers;
  EXPECT_GT(answer(s, {.draws = 0}).answers.front().time_us.value, 0);
  ++s.parallel.microbatches;
  EXPECT_THROW(answer(s, {.draws = 0}), InputError);
}

}  // namespace
}  // namespace moesim::models
