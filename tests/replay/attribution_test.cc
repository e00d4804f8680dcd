// What a change does to a step: attribution of its time, and effects one by one.
#include "replay/run/attribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "base/random.h"
#include "models/hardware/cluster.h"
#include "models/hardware/profile.h"
#include "replay/job/synthesize.h"
#include "replay/recording/effects.h"
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
        EffectKind::backward_jitter, EffectKind::loading_stall})
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

TEST(Effects, EveryOneHasAUnitASourceAndANameOfItsOwn) {
  const Effects effects;
  std::set<std::string_view> names;
  for (const Effect& effect : effects.list()) {
    EXPECT_TRUE(names.insert(effect.name).second) << effect.name;
    EXPECT_GT(effect.value, 0) << effect.name;
    EXPECT_GT(effect.sigma, 0) << effect.name;
    EXPECT_FALSE(effect.unit.empty() || effect.source.empty() || effect.what.empty()) << effect.name;
  }
  EXPECT_EQ(names.size(), kEffects);
}

TEST(Effects, AProfilesConstantTakesThePlaceOfTheDefault) {
  models::Profile profile;
  profile.set_constant("gap_other", {40, 5, "us", "measured here"});
  profile.set_constant("nothing of ours", {1, 0, "us", "measured here"});
  const Effects effects(profile), defaults;
  EXPECT_EQ(effects[EffectKind::gap_other], 40);
  const Effect& own = effects.list()[static_cast<std::size_t>(EffectKind::gap_other)];
  EXPECT_EQ(own.sigma, 5);
  EXPECT_EQ(own.source, "measured here");
  EXPECT_EQ(effects[EffectKind::gap_after_forward], defaults[EffectKind::gap_after_forward]);
}

// Three passes of 1 GB at 1.003 ms/GB are what 2,990 GB/s come from.
TEST(Effects, MemoryPassesByHand) {
  Effects effects;
  effects.set(EffectKind::memory_bandwidth, 2000);
  EXPECT_DOUBLE_EQ(effects.memory_us(1e9), 500);
  EXPECT_NEAR(Effects().memory_us(3e9) / 1e3, Effects()[EffectKind::gradient_prescale], 0.002);
}

TEST(Effects, OneIsSwitchedOffAlone) {
  const Effects all;
  for (std::size_t i = 0; i < kEffects; ++i) {
    const auto kind = static_cast<EffectKind>(i);
    const Effects without = all.without(kind);
    for (std::size_t j = 0; j < kEffects; ++j) {
      if (j == i) continue;
      EXPECT_EQ(without.list()[j].value, all.list()[j].value) << all.list()[i].name;
    }
    if (kind == EffectKind::memory_bandwidth) {
      EXPECT_LT(without.memory_us(1e12), 1);  // a terabyte takes no time
    } else if (kind == EffectKind::pipeline_bandwidth) {
      EXPECT_GT(without[kind], 1e9);
    } else {
      EXPECT_EQ(without[kind], 0) << all.list()[i].name;
    }
  }
}

TEST(Effects, DrawsHaveTheirSigmaAndAreNotNegative) {
  Random random(5);
  Effects wide;
  wide.set(EffectKind::gap_other, 0.5);  // sigma 30 us: half of the draws would be negative
  double sum = 0, squares = 0;
  int zeros = 0;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    const Effects drawn = wide.draw(random);
    const double gather = drawn[EffectKind::exposed_gather];
    sum += gather;
    squares += gather * gather;
    zeros += drawn[EffectKind::gap_other] == 0;
    EXPECT_GE(drawn[EffectKind::gap_other], 0);
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 109, 0.3);
  EXPECT_NEAR(std::sqrt(squares / kDraws - mean * mean), 4, 0.2);
  EXPECT_NEAR(static_cast<double>(zeros) / kDraws, 0.49, 0.03);
  Random again(5), same(5);
  EXPECT_EQ(Effects().draw(again)[EffectKind::gap_after_backward],
            Effects().draw(same)[EffectKind::gap_after_backward]);
}

}  // namespace
}  // namespace moesim::replay
