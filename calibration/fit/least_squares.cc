#include "calibration/fit/least_squares.h"

#include <algorithm>
#include <cmath>

#include <Eigen/Dense>

#include "base/check.h"
#include "base/statistics.h"

namespace moesim::calibration {

namespace {

double huber_loss(double r, double limit) {
  const double a = std::abs(r);
  return a <= limit ? 0.5 * r * r : limit * (a - 0.5 * limit);
}

double total_loss(const std::vector<double>& r, double limit) {
  double sum = 0;
  for (const double x : r) sum += huber_loss(x, limit);
  return sum;
}

std::vector<double> clamped_exp(const Eigen::VectorXd& logs, const FitOptions& options) {
  std::vector<double> values(static_cast<std::size_t>(logs.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::exp(logs[static_cast<Eigen::Index>(i)]);
    if (!options.low.empty()) values[i] = std::clamp(values[i], options.low[i], options.high[i]);
  }
  return values;
}

}  // namespace

FitResult fit_log(std::vector<double> start,
                  const std::function<std::vector<double>(const std::vector<double>&)>& residuals,
                  const FitOptions& options) {
  const auto n = static_cast<Eigen::Index>(start.size());
  Eigen::VectorXd x(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    check(start[static_cast<std::size_t>(i)] > 0, "fitted parameters are positive");
    x[i] = std::log(start[static_cast<std::size_t>(i)]);
  }
  std::vector<double> r = residuals(clamped_exp(x, options));
  const auto rows = static_cast<Eigen::Index>(r.size());
  double loss = total_loss(r, options.huber);
  double damping = 1e-2;
  Eigen::MatrixXd jacobian(rows, n);
  Eigen::MatrixXd normal(n, n);
  for (int iteration = 0; iteration < options.iterations; ++iteration) {
    // Models have steps (tiles, waves), so the difference quotient spans 2 %, not a rounding error.
    constexpr double kStep = 0.02;
    for (Eigen::Index j = 0; j < n; ++j) {
      Eigen::VectorXd up = x, down = x;
      up[j] += kStep;
      down[j] -= kStep;
      const auto a = residuals(clamped_exp(up, options));
      const auto b = residuals(clamped_exp(down, options));
      for (Eigen::Index i = 0; i < rows; ++i)
        jacobian(i, j) = (a[static_cast<std::size_t>(i)] - b[static_cast<std::size_t>(i)]) / (2 * kStep);
    }
    Eigen::VectorXd gradient = Eigen::VectorXd::Zero(n);
    normal.setZero();
    for (Eigen::Index i = 0; i < rows; ++i) {
      const double value = r[static_cast<std::size_t>(i)];
      const double weight = std::abs(value) <= options.huber ? 1 : options.huber / std::abs(value);
      gradient += weight * value * jacobian.row(i).transpose();
      normal += weight * jacobian.row(i).transpose() * jacobian.row(i);
    }
    bool improved = false;
    for (int attempt = 0; attempt < 12 && !improved; ++attempt) {
      Eigen::MatrixXd damped = normal;
      for (Eigen::Index j = 0; j < n; ++j) damped(j, j) += damping * std::max(normal(j, j), 1e-9);
      Eigen::VectorXd step = damped.ldlt().solve(-gradient);
      for (Eigen::Index j = 0; j < n; ++j) step[j] = std::clamp(step[j], -0.5, 0.5);
      const Eigen::VectorXd candidate = x + step;
      const auto trial = residuals(clamped_exp(candidate, options));
      const double trial_loss = total_loss(trial, options.huber);
      if (trial_loss < loss) {
        improved = true;
        const double gain = (loss - trial_loss) / std::max(loss, 1e-300);
        const auto inside = clamped_exp(candidate, options);
        for (Eigen::Index j = 0; j < n; ++j) x[j] = std::log(inside[static_cast<std::size_t>(j)]);
        r = trial;
        loss = trial_loss;
        damping = std::max(damping / 5, 1e-8);
        if (gain < 1e-6) iteration = options.iterations;
      } else {
        damping *= 4;
      }
    }
    if (!improved) break;
  }

  FitResult result;
  result.values = clamped_exp(x, options);
  double squares = 0;
  for (const double value : r) {
    const double limited = std::min(std::abs(value), 5 * options.huber);
    squares += limited * limited;
  }
  // Few rows for many parameters say little about their scatter: at most two thirds count as used up.
  const double freedom = std::max(static_cast<double>(rows - n), static_cast<double>(rows) / 3);
  result.rms = rows > 0 ? std::sqrt(squares / freedom) : 0;
  // A weak prior of standard deviation 1 on every logarithm keeps undetermined directions finite.
  const double variance = std::max(result.rms * result.rms, 1e-8);
  Eigen::MatrixXd information = normal / variance;
  information += Eigen::MatrixXd::Identity(n, n);
  const Eigen::MatrixXd covariance = information.ldlt().solve(Eigen::MatrixXd::Identity(n, n));
  result.covariance.resize(static_cast<std::size_t>(n * n));
  for (Eigen::Index i = 0; i < n; ++i)
    for (Eigen::Index j = 0; j < n; ++j)
      result.covariance[static_cast<std::size_t>(i * n + j)] = 0.5 * (covariance(i, j) + covariance(j, i));
  return result;
}

double covering_sigma(const std::vector<double>& residuals) {
  if (residuals.empty()) return 0;
  constexpr double kCovered = 0.9;
  std::vector<double> magnitudes;
  magnitudes.reserve(residuals.size());
  for (const double r : residuals) magnitudes.push_back(std::abs(r));
  const auto at =
      std::min(static_cast<std::size_t>(std::ceil(kCovered * static_cast<double>(magnitudes.size()))),
               magnitudes.size() - 1);
  std::nth_element(magnitudes.begin(), magnitudes.begin() + static_cast<std::ptrdiff_t>(at),
                   magnitudes.end());
  return magnitudes[at] / kZ90;
}

void widen(models::ParameterSet& set, const char* quantity, double value) {
  for (auto& range : set.domain)
    if (range.quantity == quantity) {
      range.low = std::min(range.low, value);
      range.high = std::max(range.high, value);
      return;
    }
  set.domain.push_back({quantity, value, value});
}

}  // namespace moesim::calibration
