// A framework's additions to the bare kernels: host time, isolated calls, SMs held by transfers.
#include "models/costs/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "base/statistics.h"
#include "models/answers/answer.h"
#include "models/costs/program_prices.h"
#include "models/hardware/cluster.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

Recipe of(Framework framework) {
  TrainingSettings plan;
  plan.framework = framework;
  return Recipe::of(plan, 8);
}

// The 5 %, 50 % and 95 % quantiles of the drawn host time of a launch, against the recipe's own.
std::vector<double> drawn_launches(Framework framework) {
  const Recipe recipe = of(framework);
  std::vector<double> ratios;
  for (int d = 0; d < 2000; ++d) {
    Random random = Random::for_item(7, static_cast<std::uint64_t>(d));
    ratios.push_back(recipe.drawn(random).launch / recipe.launch);
  }
  std::sort(ratios.begin(), ratios.end());
  return {quantile(ratios, 0.05), quantile(ratios, 0.5), quantile(ratios, 0.95)};
}

TEST(Recipe, AStockSetUpLaunchesSlowerThanATunedOne) {
  EXPECT_DOUBLE_EQ(of(Framework::kMegatronRecipe).launch, of(Framework::kMegatron).launch);
  EXPECT_NEAR(of(Framework::kMegatronStock).launch / of(Framework::kMegatronRecipe).launch, 2.1, 1e-12);
}

TEST(Recipe, LeftOpenIsAsWideAsBothTogether) {
  const auto tuned = drawn_launches(Framework::kMegatronRecipe),
             stock = drawn_launches(Framework::kMegatronStock), open = drawn_launches(Framework::kMegatron);
  EXPECT_NEAR(tuned[1], 1, 0.02);
  EXPECT_NEAR(stock[1], 1, 0.02);
  EXPECT_NEAR(open[0], tuned[0], 0.08);
  EXPECT_NEAR(open[2], 2.1 * stock[2], 0.25);
}

TEST(Recipe, BareKernelsAreDrawnAsTheyAre) {
  Random random(1);
  EXPECT_EQ(Recipe::bare().drawn(random), Recipe::bare());
}

sim::Overlap overlap_of(const std::string& dispatcher) {
  const Routing routing = make_routing(RoutingSpec(), 8, 4096, 64, 8, 1);
  MoeLayer layer;
  layer.hidden = 2048;
  layer.expert_ffn = 1024;
  layer.ep = 8;
  layer.routing = &routing;
  const Cluster cluster = Cluster::load("dgx-h100x1");
  return ProgramPricer(cluster, of(Framework::kMegatron)).overlap(build(dispatcher, layer));
}

TEST(Recipe, ComputingLosesTheSmsThatTheKernelsOfTheDispatcherHold) {
  EXPECT_NEAR(overlap_of("flex-deepep").compute, 132.0 / 112, 1e-12);
  EXPECT_NEAR(overlap_of("flex-deepep:sms=24").compute, 132.0 / 108, 1e-12);
  EXPECT_NEAR(overlap_of("alltoall").compute, 132.0 / 116, 1e-12);
  EXPECT_NEAR(overlap_of("flex-deepep:sms=132").compute, 132, 1e-12);
}

// Returns the time of a step whose transfers run beside computing.
double step_us(const std::string& dispatcher) {
  Scenario s;
  s.set_model("qwen3-30b-a3b");
  s.set_cluster("dgx-h100x1");
  s.set_dispatchers(dispatcher);
  s.scope = Scenario::Scope::kStep;
  s.parallel.ep = 8;
  s.parallel.microbatches = 4;
  s.training.overlap.expert_communication = true;
  s.training.launch = LaunchMode::kGraphs;  // otherwise the host decides
  AnswerOptions options;
  options.draws = 0;
  return answer(s, options).answers.front().time_us.value;
}

TEST(Recipe, AllSmsForTheTransferAreNoGainBesideComputing) {
  EXPECT_GT(step_us("flex-deepep:sms=132"), step_us("flex-deepep:sms=20"));
}

}  // namespace
}  // namespace moesim::models::testing
