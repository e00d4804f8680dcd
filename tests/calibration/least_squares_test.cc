// Least squares, and the update of a law by new rows.
#include "calibration/fit/least_squares.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace moesim::calibration {
namespace {

using models::ParameterSet;

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

// The update of one law, on laws whose answer is known.

// T = latency + bytes / rate.
struct Line {
  std::vector<double> bytes, seconds;

  static double of(const ParameterSet& set, double size) {
    return set.get("latency", 0) + size / set.get("rate", 1);
  }
  LawResiduals residuals() const {
    return [this](const ParameterSet& trial) {
      std::vector<double> r;
      for (std::size_t i = 0; i < bytes.size(); ++i) r.push_back(std::log(of(trial, bytes[i]) / seconds[i]));
      return r;
    };
  }
};

ParameterSet law(double latency, double rate) {
  ParameterSet set;
  set.names = {"latency", "rate"};
  set.values = {latency, rate};
  return set;
}

LawUpdate update_of(std::size_t rows, double sigma) {
  LawUpdate update;
  update.covariance = {sigma * sigma, 0, 0, sigma * sigma};
  update.log_of_row.assign(rows, 0);
  update.scatter = 0.02;
  return update;
}

Line rows_of(const ParameterSet& truth, const std::vector<double>& sizes) {
  Line line;
  Random random(3);
  for (const double size : sizes) {
    line.bytes.push_back(size);
    line.seconds.push_back(Line::of(truth, size) * std::exp(0.01 * random.normal()));
  }
  return line;
}

const ParameterSet kBefore = law(2e-5, 4e11);

TEST(LawUpdate, FollowsRowsOfASlowerMachine) {
  const ParameterSet truth = law(3e-5, 2.8e11);
  const Line line = rows_of(truth, {1e3, 1e5, 1e6, 1e7, 1e8, 1e9});
  const UpdatedLaw after = update_law(kBefore, update_of(6, 0.4), line.residuals());
  EXPECT_NEAR(after.values[0] / 3e-5, 1, 0.04);
  EXPECT_NEAR(after.values[1] / 2.8e11, 1, 0.04);
  EXPECT_LT(std::sqrt(after.covariance[0]), 0.06);
  EXPECT_LT(std::sqrt(after.covariance[3]), 0.06);
  for (const double weight : after.weight) EXPECT_GT(weight, 0.5);
}

// Rows of large messages say nothing of the latency.
TEST(LawUpdate, LeavesWhatNoRowSpeaksOf) {
  const Line line = rows_of(law(3e-5, 2.8e11), {1e9, 2e9, 4e9});
  const UpdatedLaw after = update_law(kBefore, update_of(3, 0.4), line.residuals());
  EXPECT_NEAR(after.values[0] / 2e-5, 1, 0.02);
  EXPECT_GT(std::sqrt(after.covariance[0]), 0.3);
  EXPECT_NEAR(after.values[1] / 2.8e11, 1, 0.05);
}

TEST(LawUpdate, OneThrottledRowCountsLittle) {
  const ParameterSet truth = law(2.4e-5, 3.4e11);
  const std::vector<double> sizes{1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 3e8, 1e9, 2e9, 4e9};
  Line line = rows_of(truth, sizes);
  line.seconds[7] *= 3;
  const UpdatedLaw after = update_law(kBefore, update_of(10, 0.4), line.residuals());
  EXPECT_LT(after.weight[7], 0.1);
  EXPECT_NEAR(after.values[1] / 3.4e11, 1, 0.06);
  EXPECT_GT(std::abs(after.left_out[7]), 0.8);
}

TEST(LawUpdate, NoRowMovesNothing) {
  const Line none;
  const UpdatedLaw after = update_law(kBefore, update_of(0, 0.4), none.residuals());
  EXPECT_NEAR(after.values[0] / kBefore.values[0], 1, 1e-12);
  EXPECT_NEAR(after.values[1] / kBefore.values[1], 1, 1e-12);
  EXPECT_TRUE(after.weight.empty());
}

// Rows that the law explains as well as they scatter leave it almost where it is, and are believed.
TEST(LawUpdate, RowsOfAMachineJustLikeIt) {
  const Line line = rows_of(kBefore, {1e3, 1e5, 1e6, 1e7, 1e8, 1e9});
  const UpdatedLaw after = update_law(kBefore, update_of(6, 0.4), line.residuals());
  EXPECT_NEAR(after.values[0] / kBefore.values[0], 1, 0.03);
  EXPECT_NEAR(after.values[1] / kBefore.values[1], 1, 0.03);
}

TEST(LawUpdate, AVarianceOfZeroHoldsAParameter) {
  const Line line = rows_of(law(3e-5, 2.8e11), {1e3, 1e5, 1e6, 1e7, 1e8, 1e9});
  LawUpdate update = update_of(6, 0.4);
  update.covariance[0] = 0;
  const UpdatedLaw after = update_law(kBefore, update, line.residuals());
  EXPECT_DOUBLE_EQ(after.values[0], kBefore.values[0]);
  EXPECT_EQ(after.covariance[0], 0);
}

TEST(LawUpdate, Sensitivities) {
  const auto slopes = sensitivities(kBefore, [](const ParameterSet& set) {
    return std::vector<double>{std::log(Line::of(set, 1)), std::log(Line::of(set, 1e12))};
  });
  EXPECT_NEAR(slopes[0][0], 1, 0.01);
  EXPECT_NEAR(slopes[1][1], -1, 0.01);
}

}  // namespace
}  // namespace moesim::calibration
