#include "base/statistics.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

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

}  // namespace
}  // namespace moesim
