// Bayesian update of one law by a few rows of another machine.
//
// Before any row, the logarithms of the law's parameters are normal around the law that is known, with a
// covariance that says how machines of one kind differ. A row's log time scatters around the law as a Student
// t of four degrees, so that a throttled row counts little; rows of one log share an offset, since whatever
// was wrong with the run was wrong with all of it. The result is the most probable law and, from the
// curvature there, what is still unknown.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/hardware/profile.h"

namespace moesim::calibration {

// log(model / measured) of every row under a trial law, always the same number.
using LawResiduals = std::function<std::vector<double>(const models::ParameterSet&)>;

struct LawUpdate {
  std::vector<double>
      covariance;  // before any row, of the logarithms, n x n; a zero variance holds a parameter
  std::vector<double> low, high;  // bounds of the values
  std::vector<int> log_of_row;    // rows of one log have the same number, from 0
  double scatter = 0.05;          // log standard deviation of a row, to begin with
  double least_spread = 0;        // share of the covariance that the machine is known to differ by at least
};

struct UpdatedLaw {
  std::vector<double> values;
  std::vector<double> covariance;  // of the logarithms, given the rows
  double scatter = 0;              // of a row, as found
  double evidence = 0;             // log probability of the rows, up to a constant
  // By row: how much it counts (1: in full), and how far a law of the other rows is off there.
  std::vector<double> weight, left_out;
};

UpdatedLaw update_law(const models::ParameterSet& before, const LawUpdate& update,
                      const LawResiduals& residuals);

// d log time / d log parameter at every point, one row of n for each; `log_times` gives the points' log times
// under a trial law.
std::vector<std::vector<double>> sensitivities(
    const models::ParameterSet& law,
    const std::function<std::vector<double>(const models::ParameterSet&)>& log_times);

}  // namespace moesim::calibration
