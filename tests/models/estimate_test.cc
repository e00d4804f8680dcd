#include "models/hardware/estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace moesim::models {
namespace {

// ln 2 / 1.6449 is the sigma whose 90 % interval reaches from half to twice the value.
TEST(Estimate, OfALogNormalFactor) {
  const Estimate estimate = Estimate::log_normal(8, std::log(2) / 1.6448536269514722);
  EXPECT_EQ(estimate.value, 8);
  EXPECT_NEAR(estimate.low, 4, 1e-12);
  EXPECT_NEAR(estimate.high, 16, 1e-12);
  const Estimate sure = Estimate::log_normal(8, 0);
  EXPECT_EQ(sure.low, 8);
  EXPECT_EQ(sure.high, 8);
}

TEST(Estimate, TheIntervalHoldsNinetyPercentOfWhatItsLawDraws) {
  const double sigma = 0.3;
  const Estimate estimate = Estimate::log_normal(5, sigma);
  Random random(11);
  int inside = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double drawn = 5 * std::exp(sigma * random.normal());
    inside += estimate.low <= drawn && drawn <= estimate.high;
  }
  EXPECT_NEAR(static_cast<double>(inside) / kDraws, 0.9, 0.01);
}

TEST(Estimate, OfSamplesInAnyOrderHoldsItsValue) {
  std::vector<double> samples;
  for (int i = 0; i <= 100; ++i) samples.push_back(i * 37 % 101);  // 0 to 100, shuffled
  const Estimate inside = Estimate::from_samples(50, samples);
  EXPECT_DOUBLE_EQ(inside.low, 5);
  EXPECT_DOUBLE_EQ(inside.high, 95);
  EXPECT_EQ(Estimate::from_samples(2, samples).low, 2);
  EXPECT_DOUBLE_EQ(Estimate::from_samples(2, samples).high, 95);
  EXPECT_EQ(Estimate::from_samples(99, samples).high, 99);
}

}  // namespace
}  // namespace moesim::models
