#include "models/hardware/estimate.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace moesim::models {
namespace {

TEST(Quantile, IsLinearBetweenOrderStatistics) {
  const std::vector<double> five = {10, 20, 40, 80, 160};
  EXPECT_EQ(quantile(five, 0), 10);
  EXPECT_EQ(quantile(five, 0.25), 20);
  EXPECT_EQ(quantile(five, 0.5), 40);
  EXPECT_DOUBLE_EQ(quantile(five, 0.6), 56);    // 0.4 of the way from 40 to 80
  EXPECT_DOUBLE_EQ(quantile(five, 0.95), 144);  // 0.8 of the way from 80 to 160
  EXPECT_EQ(quantile(five, 1), 160);
  EXPECT_EQ(quantile(std::vector<double>{7}, 0.3), 7);
}

RC_GTEST_PROP(Quantile, LeavesItsShareBelow, ()) {
  auto values = *rc::gen::nonEmpty(rc::gen::container<std::vector<double>>(
      rc::gen::map(rc::gen::inRange(-1000, 1000), [](int i) { return i / 8.0; })));
  std::sort(values.begin(), values.end());
  const double share = *rc::gen::inRange(0, 101) / 100.0;
  const double at = quantile(values, share);
  const auto below =
      static_cast<double>(std::count_if(values.begin(), values.end(), [&](double v) { return v < at; }));
  const auto above =
      static_cast<double>(std::count_if(values.begin(), values.end(), [&](double v) { return v > at; }));
  const auto last = static_cast<double>(values.size() - 1);
  RC_ASSERT(below <= std::floor(share * last) + 1);
  RC_ASSERT(above <= std::floor((1 - share) * last) + 1);
}

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
