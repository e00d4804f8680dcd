// The one answer: what must hold of it whatever is asked.
#include "models/answers/answer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/statistics.h"

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

// What nobody measured is drawn around its price as evenly as what was measured: whole draws are slower in the
// median than the plain evaluation where a rank waits for the slower of two.
TEST(Answer, AnUnmeasuredKernelIsPricedAtTheMiddleOfItsDoubt) {
  for (const auto& [cluster, ep] : {std::pair("dgx-h100x4", 8), {"aws-p5x4", 32}, {"gcp-a3-megax4", 32}})
    for (const char* scope : {"layer", "step"}) {
      const nlohmann::json json{{"model", "qwen3-30b-a3b"},
                                {"cluster", cluster},
                                {"scope", scope},
                                {"dispatcher", "alltoall,flex-deepep,flex-hybridep,nccl-ep"},
                                {"parallel", {{"ep", ep}}}};
      int unmeasured = 0;
      double measured = 0;  // the median of alltoall's draws over its value
      for (const Answer& a : answer(read(json), {.draws = 400}).answers) {
        const std::string what = std::string(cluster) + " " + scope + " " + a.dispatcher;
        unmeasured += a.unmeasured_exchange() ? 1 : 0;
        EXPECT_LT(a.time_us.low, a.time_us.value) << what;
        EXPECT_LT(a.time_us.value, a.time_us.high) << what;
        const double middle = quantile_of(a.draws_us, 0.5) / a.time_us.value;
        if (measured == 0) measured = middle;
        // Half of a step's draws are of untuned hosts, which every arm feels by its own launches.
        EXPECT_NEAR(middle / measured, 1, scope == std::string("step") ? 0.25 : 0.2) << what;
      }
      EXPECT_GT(unmeasured, 0);
    }
}

// A dispatcher that the job's framework lacks is shown, and advised only where there is no other.
TEST(Answer, AdvisesWhatTheFrameworkRuns) {
  Scenario s = read({{"model", "qwen3-30b-a3b"},
                     {"cluster", "dgx-h100x1"},
                     {"dispatcher", "torchtitan-alltoall,alltoall"},
                     {"parallel", {{"ep", 8}}}});
  const auto bars = [&] {
    std::vector<Bar> all;
    for (const Answer& a : answer(s, {.draws = 0}).answers) all.push_back(a.bar);
    return all;
  };
  const std::vector<Bar> none{Bar::kNone, Bar::kNone}, first{Bar::kOtherFramework, Bar::kNone},
      second{Bar::kNone, Bar::kOtherFramework};
  EXPECT_EQ(bars(), none);
  s.job_framework = "megatron-lm";
  EXPECT_EQ(bars(), first);
  s.recipe = "torchtitan";  // said, whichever file the job comes from
  EXPECT_EQ(bars(), second);
  s.recipe = "deepspeed";  // has the second alone
  EXPECT_EQ(bars(), first);
  s.recipe = "mlperf-nemo";  // has neither
  EXPECT_EQ(bars(), none);
}

}  // namespace
}  // namespace moesim::models
