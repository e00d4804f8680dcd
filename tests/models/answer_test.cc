// The one answer: what must hold of it whatever is asked.
#include "models/answers/answer.h"

#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"

namespace moesim::models {
namespace {

Scenario read(const nlohmann::json& scenario) {
  return Scenario::parse(JsonNode::from_json(scenario, "scenario"));
}

double time_us(const Scenario& scenario) {
  AnswerOptions options;
  options.draws = 0;
  options.breakdown = false;
  return answer(scenario, options).answers.front().time_us.value;
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

}  // namespace
}  // namespace moesim::models
