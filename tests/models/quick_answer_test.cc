// A search and a comparison give the same time where all layers share one routing.
#include <gtest/gtest.h>

#include "models/answers/answer.h"
#include "models/answers/plan_search.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

void expect_one_number(Scenario s) {
  s.routing.shared = true;
  s.resolve();
  const Comparison c = answer(s, {.draws = 0});
  const Answer& asked = c.answers.front();
  PriceCache prices;
  const QuickAnswer quick(*c.scenario, prices);
  EXPECT_DOUBLE_EQ(quick.seconds(), asked.seconds());
  EXPECT_DOUBLE_EQ(quick.seconds() / quick.tokens(), asked.seconds() / asked.tokens);
  EXPECT_DOUBLE_EQ(quick.forecast().time_us.value, asked.time_us.value);
  EXPECT_EQ(quick.memory().max_bytes, asked.memory.max_bytes);
  EXPECT_EQ(quick.memory().fits_probability, asked.memory.fits_probability);
}

TEST(QuickAnswer, IsTheAnswerOfAComparison) { expect_one_number(testing::small_job()); }

TEST(QuickAnswer, InAPipelineWithASkewedRouting) {
  Scenario s = testing::small_job("dgx-h100x2");
  s.parallel.pp = 2;
  s.parallel.microbatches = 4;
  s.routing = RoutingSpec::parse("zipf:1.2");
  expect_one_number(s);
}

// The log of the overload is part of a step's time.
TEST(QuickAnswer, WithALogOfTheOverload) {
  Scenario s = testing::small_job();
  s.training.overload.report = named<OverloadLog::Report>("overload report", "sequential");
  s.resolve();
  PriceCache prices;
  const double logged = QuickAnswer(s, prices).seconds();
  s.training.overload.report = named<OverloadLog::Report>("overload report", "none");
  EXPECT_GT(logged, QuickAnswer(s, prices).seconds());
  s.training.overload.report = named<OverloadLog::Report>("overload report", "sequential");
  expect_one_number(s);
}

// Ranks that process the same tokens count them once.
TEST(QuickAnswer, WithReplicatedTokens) {
  Scenario s = testing::small_job("dgx-h100x2");
  s.set_dispatchers("kempnerforge");
  s.parallel.ep = 2;
  expect_one_number(s);
}

// Prices are made once for a cluster and a recipe.
TEST(QuickAnswer, SharesPrices) {
  const Scenario s = testing::resolved(testing::small_job());
  PriceCache prices;
  EXPECT_EQ(prices.of(s, 0), prices.of(s, 0));
  Scenario other = s;
  other.training.launch = LaunchMode::kGraphs;
  EXPECT_NE(prices.of(s, 0), prices.of(other, 0));
}

}  // namespace
}  // namespace moesim::models
