// Statistics and random numbers.
#include "base/statistics.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace moesim {
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

TEST(Quantile, OfValuesInAnyOrder) {
  EXPECT_DOUBLE_EQ(quantile_of({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(quantile_of({2, 1}, 0.9), 1.9);
}

TEST(Median, IsTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({9, 1, 2, 4}), 3);
}

// Figures of printed tables of the normal distribution.
TEST(Normal, IsThatOfTheTables) {
  EXPECT_DOUBLE_EQ(normal_below(0), 0.5);
  EXPECT_NEAR(normal_below(1.96), 0.9750021, 1e-7);
  EXPECT_NEAR(normal_below(-3), 0.0013499, 1e-7);
  EXPECT_DOUBLE_EQ(normal_quantile(0.5), 0);
  EXPECT_DOUBLE_EQ(normal_quantile(0.95), kZ90);
  EXPECT_NEAR(normal_quantile(0.001), -3.0902323, 1e-7);
  for (const double p : {1e-12, 0.01, 0.3, 0.9, 0.999})
    EXPECT_NEAR(normal_below(normal_quantile(p)), p, 1e-14);
}

TEST(Random, FirstDrawsAreFixedForEver) {
  Random random(0);
  EXPECT_EQ(random.next(), 0xe220a8397b1dcdafULL);  // the published splitmix64 sequence for seed 0
  EXPECT_EQ(random.next(), 0x6e789e6aa1b965f4ULL);
}

TEST(Random, MomentsOfTheDistributions) {
  Random random(1);
  double uniform = 0, normal = 0, square = 0, gamma = 0;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) {
    uniform += random.uniform();
    const double z = random.normal();
    normal += z;
    square += z * z;
    gamma += random.gamma(0.7);
  }
  EXPECT_NEAR(uniform / kDraws, 0.5, 0.005);
  EXPECT_NEAR(normal / kDraws, 0.0, 0.01);
  EXPECT_NEAR(square / kDraws, 1.0, 0.02);
  EXPECT_NEAR(gamma / kDraws, 0.7, 0.01);
}

TEST(Random, ItemsHaveStreamsOfTheirOwn) {
  EXPECT_NE(Random::for_item(1, 0).next(), Random::for_item(1, 1).next());
  EXPECT_EQ(Random::for_item(1, 5).next(), Random::for_item(1, 5).next());
}

}  // namespace
}  // namespace moesim
