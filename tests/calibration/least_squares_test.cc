#include "calibration/fit/least_squares.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace moesim::calibration {
namespace {

TEST(LeastSquares, FindsParametersInSpiteOfOutliers) {
  Random random(5);
  std::vector<double> x, y;
  for (int i = 0; i < 200; ++i) {
    x.push_back(1 + i);
    y.push_back((3 + 0.25 * x.back()) * std::exp(0.02 * random.normal()) * (i % 20 == 0 ? 4 : 1));
  }
  const FitResult fit = fit_log({1, 1}, [&](const std::vector<double>& p) {
    std::vector<double> r;
    for (std::size_t i = 0; i < x.size(); ++i) r.push_back(std::log((p[0] + p[1] * x[i]) / y[i]));
    return r;
  });
  EXPECT_NEAR(fit.values[0], 3, 0.15);
  EXPECT_NEAR(fit.values[1], 0.25, 0.01);
  EXPECT_GT(fit.covariance[0], 0);
}

TEST(LeastSquares, ACoveringSigmaHoldsNinetyPercentInSpiteOfOutliers) {
  Random random(3);
  std::vector<double> residuals;
  for (int i = 0; i < 2000; ++i) residuals.push_back(0.05 * random.normal() * (i % 50 == 0 ? 100 : 1));
  const double sigma = covering_sigma(residuals);
  EXPECT_NEAR(sigma, 0.05, 0.01);
  EXPECT_EQ(covering_sigma({}), 0);
}

// Two parameters that only their product tells apart: the sum of the logarithms is found, the split keeps the
// prior's standard deviation of 1 instead of growing without bound.
TEST(LeastSquares, AnOpenDirectionIsFiniteAndSaysThatItIsOpen) {
  const FitResult fit = fit_log({1, 4}, [](const std::vector<double>& p) {
    return std::vector<double>{std::log(p[0] * p[1] / 36), std::log(p[0] * p[1] / 36), 0.01, -0.01};
  });
  EXPECT_NEAR(fit.values[0] * fit.values[1], 36, 0.01);
  const double sum = fit.covariance[0] + 2 * fit.covariance[1] + fit.covariance[3];
  const double difference = fit.covariance[0] - 2 * fit.covariance[1] + fit.covariance[3];
  EXPECT_LT(sum, 0.01);
  EXPECT_NEAR(difference, 2, 0.01);  // of two independent standard deviations of 1
}

TEST(LeastSquares, BoundsAreKept) {
  FitOptions options;
  options.low = {2};
  options.high = {5};
  const auto towards = [](double target) {
    return [target](const std::vector<double>& p) { return std::vector<double>(3, std::log(p[0] / target)); };
  };
  EXPECT_DOUBLE_EQ(fit_log({3}, towards(100), options).values[0], 5);
  EXPECT_DOUBLE_EQ(fit_log({3}, towards(0.1), options).values[0], 2);
  EXPECT_NEAR(fit_log({3}, towards(4), options).values[0], 4, 1e-3);
}

}  // namespace
}  // namespace moesim::calibration
