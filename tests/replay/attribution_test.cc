// Where an iteration goes: shares add up, and a cause that is not there has no share.
#include "replay/run/attribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/hardware/cluster.h"
#include "replay/job/synthesize.h"
#include "replay/run/forecast.h"
#include "replay/run/model_pricing.h"

namespace moesim::replay {
namespace {

struct Told {
  std::map<CauseOfTime, double> us;
  Attribution attribution;
  double iteration_us = 0;
};

Told tell(const char* routing, int stages, const Effects& effects) {
  SynthesisSpec spec;
  spec.model = models::Architecture::load("mixtral-8x7b");
  spec.cluster = models::Cluster::load("echo-h800x2");
  spec.topology = {.expert = 4, .expert_dp = 4 / stages, .pp = stages};
  spec.layers = 4;
  spec.routing = models::RoutingSpec::parse(routing);
  spec.noise = 0;
  const SyntheticRecordings made = synthesize(spec);
  const RecordedJob job = interpret(made.scaling);
  const CleanJob clean = denoise(std::span(&job, 1));
  ForecastOptions options;
  options.microbatches = 4;
  options.architecture = &spec.model;
  const ScalingForecast forecast_made = forecast(clean, made.scaling.named, spec.cluster, effects, options);
  Told told;
  told.iteration_us = forecast_made.iteration.us();
  told.attribution = attribute(forecast_made.iteration, forecast_made.plans, spec.layers / stages,
                               [&] { return std::make_unique<ModelPricing>(spec.cluster, clean, effects); });
  for (const TimeShare& share : told.attribution.shares) told.us[share.cause] = share.us;
  return told;
}

Effects even_ranks() {
  Effects effects;
  for (const EffectKind kind :
       {EffectKind::expert_spread, EffectKind::dense_spread, EffectKind::forward_jitter,
        EffectKind::backward_jitter, EffectKind::first_forwards})
    effects.set(kind, 0);
  return effects;
}

TEST(Attribution, SharesAddUpToTheIteration) {
  for (const char* routing : {"balanced", "zipf:1.2"}) {
    const Told told = tell(routing, 2, Effects());
    double sum = 0;
    for (const auto& [cause, us] : told.us) sum += us;
    EXPECT_NEAR(sum, told.iteration_us, 1e-3);
    EXPECT_EQ(told.us.size(), kCausesOfTime - 1);  // without contention
  }
}

TEST(Attribution, WithoutSkewNothingIsBookedAsSkew) {
  const Told even = tell("balanced", 2, even_ranks());
  EXPECT_NEAR(even.us.at(CauseOfTime::routing_skew), 0, 1e-3 * even.iteration_us);
  EXPECT_NEAR(even.us.at(CauseOfTime::attention_skew), 0, 1e-3 * even.iteration_us);
  const Told skewed = tell("zipf:1.2", 2, even_ranks());
  EXPECT_GT(skewed.us.at(CauseOfTime::routing_skew), 0.05 * skewed.iteration_us);
  // Without the skew the same job is left.
  EXPECT_NEAR(skewed.us.at(CauseOfTime::computing), even.us.at(CauseOfTime::computing),
              0.05 * even.us.at(CauseOfTime::computing));
}

TEST(Attribution, OneStageHasNoBubble) {
  const Told one = tell("balanced", 1, even_ranks());
  EXPECT_NEAR(one.us.at(CauseOfTime::bubble), 0, 1e-3 * one.iteration_us);
  EXPECT_GT(tell("balanced", 2, even_ranks()).us.at(CauseOfTime::bubble), 0.01 * one.iteration_us);
}

TEST(Attribution, TheBusiestExpertRankIsTheOneOthersWaitFor) {
  const Told skewed = tell("zipf:1.2", 1, even_ranks());
  ASSERT_FALSE(skewed.attribution.ranks.empty());
  for (std::size_t i = 1; i < skewed.attribution.ranks.size(); ++i)
    EXPECT_GE(skewed.attribution.ranks[i - 1].us, skewed.attribution.ranks[i].us);
  // Each of the expert groups has the same one.
  EXPECT_EQ(skewed.attribution.ranks[0].index % 4, skewed.attribution.ranks[1].index % 4);
  EXPECT_EQ(skewed.attribution.layers.size(), 4u);
}

}  // namespace
}  // namespace moesim::replay
