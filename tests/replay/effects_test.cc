#include "replay/recording/effects.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string_view>

#include "base/random.h"
#include "models/hardware/profile.h"

namespace moesim::replay {
namespace {

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
