// Robust non-linear least squares over positive parameters (Levenberg-Marquardt on their logarithms): a law from its
// rows, and a law that is known, moved by rows of another machine.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "models/hardware/profile.h"

namespace moesim::calibration {

// A parameter of a law: start and bounds of its fit, and the log standard deviation of a prior around the start.
struct FittedParameter {
  const char* name;
  double start, low, high;
  double sigma = 0;  // 0: no prior
};

struct FitOptions {
  int iterations = 60;
  double huber = 0.1;             // larger residuals count linearly, not squared
  std::vector<double> low, high;  // bounds of the parameters; empty = none
};

struct FitResult {
  std::vector<double> values;
  std::vector<double> covariance;  // of the logarithms, row-major
  double rms = 0;                  // of the weighted residuals
};

// Finds positive parameters that minimise sum huber(residual). `residuals(parameters)` returns log(model /
// measured) of every row, always equally many. The covariance is rms^2 (J^T J)^-1 at the optimum
// (Moore-Penrose where the data leave a direction undetermined, with a standard deviation of 1 for that
// direction's parameters).
FitResult fit_log(std::vector<double> start,
                  const std::function<std::vector<double>(const std::vector<double>&)>& residuals,
                  const FitOptions& options = {});

// Returns log(model / measured) of every row under a trial law, always equally many.
using LawResiduals = std::function<std::vector<double>(const models::ParameterSet&)>;

// Likewise fits names, values, covariance and residual of a law.
void fit_law(models::ParameterSet& set, std::span<const FittedParameter> parameters,
             const LawResiduals& residuals, FitOptions options = {});

// Returns the log standard deviation whose 90 % interval holds 90 % of these residuals: outliers affect it
// little, unlike a root mean square.
double covering_sigma(const std::vector<double>& residuals);

// Bayesian update of one law by a few rows of another machine.
//
// The prior of the logarithms of the law's parameters is normal around the known law, with the covariance
// between machines of one kind. A row's log time scatters around the law as a Student t with four degrees of
// freedom, so that a throttled row counts little; rows of one log share an offset, since a fault of the run
// affects all of them. The result is the most probable law and, from the curvature there, the remaining
// uncertainty.

struct LawUpdate {
  std::vector<double>
      covariance;  // prior covariance of the logarithms, n x n; a zero variance fixes a parameter
  std::vector<double> low, high;  // bounds of the values
  std::vector<int> log_of_row;    // rows of one log have the same number, from 0
  double scatter = 0.05;          // initial log standard deviation of a row
  // Least and most multiple of the spread between machines by which this one is known to differ.
  double least_spread = 0, most_spread = 1;
  // The sign with which each parameter moves for a longer time. With it rows that are all far off by one factor
  // move the law by it, as a machine of another kind; else they would be outliers.
  std::vector<int> longer;
};

struct UpdatedLaw {
  std::vector<double> values;
  std::vector<double> covariance;  // posterior covariance of the logarithms
  double scatter = 0;              // estimated log standard deviation of a row
  double evidence = 0;             // log probability of the rows, up to a constant
  double jumps = 1;                // multiple of the spread of corrections that the rows make likely
  // By row: its weight (1: full), and the error there of a law fitted to the other rows.
  std::vector<double> weight, left_out;
};

UpdatedLaw update_law(const models::ParameterSet& before, const LawUpdate& update,
                      const LawResiduals& residuals);

struct WeighedLaw {
  double weight;  // all together: 1
  const std::vector<double>&values, &covariance;
};
// Sets those of `values` that are positive to the weighted mean of their logarithms, and returns the covariance of
// these: the laws' own, and the spread between the laws.
std::vector<double> mean_of_logs(const std::vector<WeighedLaw>& laws, std::vector<double>& values);

// Returns d log time / d log parameter at every point, one row of n for each; `log_times` returns the points'
// log times under a trial law.
std::vector<std::vector<double>> sensitivities(
    const models::ParameterSet& law,
    const std::function<std::vector<double>(const models::ParameterSet&)>& log_times);

// Returns a covariance n x n of logarithms that survives writing its correlations with three digits.
std::vector<double> writable(std::vector<double> covariance, std::size_t n);

// Adds a parameter whose value is known.
void add_known(models::ParameterSet& set, std::string_view name, double value);

// Extends the range of a quantity of `set` to `value`; adds the range where it is missing.
void widen(models::ParameterSet& set, const char* quantity, double value);

}  // namespace moesim::calibration
