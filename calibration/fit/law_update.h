// Bayesian update of one law by a few rows of another machine.
//
// The prior of the logarithms of the law's parameters is normal around the known law, with the covariance
// between machines of one kind. A row's log time scatters around the law as a Student t with four degrees of
// freedom, so that a throttled row counts little; rows of one log share an offset, since a fault of the run
// affects all of them. The result is the most probable law and, from the curvature there, the remaining
// uncertainty.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/hardware/profile.h"

namespace moesim::calibration {

// Returns log(model / measured) of every row under a trial law, always equally many.
using LawResiduals = std::function<std::vector<double>(const models::ParameterSet&)>;

struct LawUpdate {
  std::vector<double>
      covariance;  // prior covariance of the logarithms, n x n; a zero variance fixes a parameter
  std::vector<double> low, high;  // bounds of the values
  std::vector<int> log_of_row;    // rows of one log have the same number, from 0
  double scatter = 0.05;          // initial log standard deviation of a row
  // Least and most multiple of the spread between machines by which this one is known to differ.
  double least_spread = 0, most_spread = 1;
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

// Returns d log time / d log parameter at every point, one row of n for each; `log_times` returns the points'
// log times under a trial law.
std::vector<std::vector<double>> sensitivities(
    const models::ParameterSet& law,
    const std::function<std::vector<double>(const models::ParameterSet&)>& log_times);

// Returns the covariance of the logarithms of a law's parameters on another machine of the same kind: the
// fit's own uncertainty plus the spread between machines (docs/calibration.md, "One log makes it mine"). A
// law derived from other machines varies more, by its residual. Row-major, n x n.
std::vector<double> machine_covariance(const models::ParameterSet& law);

}  // namespace moesim::calibration
