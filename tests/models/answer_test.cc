// The one answer: what must hold of it whatever is asked.
#include "models/answers/answer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "models/hardware/cluster.h"
#include "models/hardware/hardware.h"
#include "tests/models/random_scenario.h"

namespace moesim::models {
namespace {

using testing::legal_scenario_json;

Scenario read(const nlohmann::json& scenario) {
  return Scenario::parse(JsonNode::from_json(scenario, "scenario"));
}

double time_us(const Scenario& scenario) {
  AnswerOptions options;
  options.draws = 0;
  options.breakdown = false;
  return answer(scenario, options).answers.front().time_us.value;
}

// 1 % more of a rate, 1 % less of a time: nothing gets slower by more than 0.1 %.
TEST(Answer, BetterHardwareIsNeverSlower) {
  std::mt19937_64 random(20);
  for (int n = 0; n < 200; ++n) {
    const nlohmann::json json = legal_scenario_json(random, n % 2 == 0);
    Scenario scenario = read(json);
    scenario.resolve();
    const double before = time_us(scenario);
    for (const HardwareNumber& number : hardware_numbers()) {
      if (number.unit == HardwareUnit::kBandwidth && number.value(*scenario.cluster) <= 0) continue;
      const bool rate = number.unit == HardwareUnit::kBandwidth || number.unit == HardwareUnit::kFlops;
      auto better = std::make_shared<Cluster>(*scenario.cluster);
      number.scale(*better, rate ? 1.01 : 1 / 1.01);
      Scenario changed = scenario;
      changed.cluster = better;
      EXPECT_LE(time_us(changed), before * 1.001) << number.path << " of " << json.dump();
    }
  }
}

// The routing of a step is a sample; the interval that one seed prints holds what other seeds give.
TEST(Answer, SeedsScatterWithinTheIntervalOfOne) {
  for (const char* routing : {"zipf:0.6", "zipf:1.2", "gini:0.3"}) {
    const nlohmann::json json{
        {"model", "qwen3-30b-a3b"}, {"cluster", "dgx-h100x4"},
        {"scope", "step"},          {"dispatcher", "alltoall"},
        {"routing", routing},       {"parallel", {{"ep", 16}, {"pp", 2}, {"microbatches", 8}}}};
    const Scenario first = read(json);
    const Estimate told = answer(first).answers.front().time_us;
    for (std::uint64_t seed = 2; seed <= 33; ++seed) {
      Scenario other = first;
      other.seed = seed;
      const double time = time_us(other);
      EXPECT_GE(time, told.low) << routing << " seed " << seed;
      EXPECT_LE(time, told.high) << routing << " seed " << seed;
    }
  }
}

// Each MoE layer and microbatch has a routing of its own: the busiest rank of one is not that of all.
TEST(Answer, IndependentLayersHoldLessThanTheSameHotRankEverywhere) {
  nlohmann::json json{{"model", "qwen3-30b-a3b"}, {"cluster", "dgx-h100x2"}, {"scope", "step"},
                      {"dispatcher", "alltoall"}, {"routing", "zipf:1.2"},   {"parallel", {{"ep", 16}}}};
  const double independent = answer(read(json)).answers.front().memory.max_bytes;
  json["routing"] = "zipf:1.2:shared";
  const double shared = answer(read(json)).answers.front().memory.max_bytes;
  EXPECT_LT(independent, shared);
}

}  // namespace
}  // namespace moesim::models
