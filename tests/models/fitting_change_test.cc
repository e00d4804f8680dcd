// The change with which a plan fits that does not: it does, it is timed as it is, and there may be none.
#include "models/answers/fitting_change.h"

#include <gtest/gtest.h>

#include <sstream>

#include "models/answers/answer.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

// The scenario with options as on a command line, asked as the search asks.
Scenario with_options(Scenario s, const std::string& options) {
  std::istringstream words(options);
  for (std::string flag, value; words >> flag >> value;)
    for (const Field& field : scenario_fields())
      if (field.flag == flag) set_field(field, s, value);
  s.give("parallel.dp");
  s.resolve();
  return s;
}

TEST(FittingChange, FitsAndTakesWhatItSays) {
  Scenario s = testing::published_job("qwen3-30b-a3b", "dgx-h100x1");
  s.parallel.micro_batch = 4;
  s.resolve();
  const DispatcherSpec dispatcher = s.dispatchers.front();
  PriceCache prices;
  ASSERT_FALSE(QuickAnswer(s, prices).memory().fits);
  const FittingChange change = cheapest_fitting_change(s, dispatcher);
  ASSERT_FALSE(change.options.empty());
  EXPECT_GT(change.fitting, 0);
  EXPECT_GE(change.tried, change.fitting);
  const Scenario fitting = with_options(s, change.options);
  const QuickAnswer answer(fitting, prices);
  EXPECT_TRUE(answer.memory().fits) << change.options;
  EXPECT_DOUBLE_EQ(answer.seconds(), change.seconds) << change.options;
  // No single recomputation that fits is faster.
  for (const char* recompute : {"layernorm", "moe_act", "layernorm+moe_act", "full"}) {
    const Scenario other = with_options(s, std::string("--recompute ") + recompute);
    const QuickAnswer one(other, prices);
    if (one.memory().fits) {
      EXPECT_GE(one.seconds(), change.seconds) << recompute;
    }
  }
}

// A change that the framework refuses is not offered.
TEST(FittingChange, KeepsTheRulesOfAFramework) {
  Scenario s = testing::published_job("qwen3-30b-a3b", "dgx-h100x1");
  s.parallel.micro_batch = 4;
  s.resolve();
  const std::string free = cheapest_fitting_change(s, s.dispatchers.front()).options;
  const FittingChange ruled = cheapest_fitting_change(s, s.dispatchers.front(), [&](const Scenario& plan) {
    return plan.training.recompute == with_options(s, free).training.recompute ? "rule X" : "";
  });
  EXPECT_NE(ruled.options, free);
}

// A layer's question is not the plan: the smallest pipeline is named, as its own question confirms.
TEST(FittingChange, OfALayerIsTheSmallestPipeline) {
  Scenario s;
  s.model = Architecture::load("deepseek-v3");
  s.cluster = testing::cluster_named("h800");
  s.gpus = 2048;
  s.give("gpus");
  s.parallel.ep = 64;
  s.give("parallel.ep");
  s.set_dispatchers("alltoall,flex-deepep");
  const auto asked = [&](std::int64_t pp) {
    Scenario one = s;
    one.parallel.pp = pp;
    return answer(std::move(one), {.draws = 0, .suggest = true});
  };
  const Comparison one = asked(1);
  EXPECT_NE(one.decision.verdict, Decision::Verdict::kNoneFits);
  ASSERT_TRUE(one.fitting.has_value());
  ASSERT_TRUE(one.fitting->options.starts_with("--pp ")) << one.fitting->options;
  const std::int64_t pp = std::stoll(one.fitting->options.substr(5));
  EXPECT_TRUE(asked(pp).winner()->memory.fits);
  EXPECT_LT(asked(pp / 2).winner()->memory.fits_probability, Decision::kSure);
}

// A layer of 400 GB on GPUs of 80: nothing helps, alone or in pairs.
TEST(FittingChange, NothingMayBeEnough) {
  Scenario s = testing::small_job();
  s.model.hidden = 65536;
  s.model.attention.head_dim = 16384;
  s.model.experts = 4;
  s.model.expert_ffn = 65536;
  s.resolve();
  const FittingChange change = cheapest_fitting_change(s, s.dispatchers.front());
  EXPECT_EQ(change.options, "");
  EXPECT_EQ(change.fitting, 0);
  EXPECT_GT(change.tried, 20);  // pairs, too
}

}  // namespace
}  // namespace moesim::models
