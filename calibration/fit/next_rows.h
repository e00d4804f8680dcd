// The next measurements that would decide an open decision.
//
// Preposterior analysis on the profile's draws. Each draw gives a time for every dispatcher and for every
// candidate row. Knowing the row, one would choose by it; the mean share of time that such choices lose is
// the regret after the row. A ridge regression predicts times from rows, and choices are made on draws
// outside of its fit (Strong, Oakley and Brennan 2014, "Estimating multiparameter partial expected value of
// perfect information from a probabilistic sensitivity analysis sample", for the idea).
#pragma once

#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/answers/answer.h"

namespace moesim::calibration {

// One row that a command measures (for DeepEP's tests two: dispatch and combine).
struct CandidateRow {
  std::string command;
  double minutes = 0;
  double apart = 0;    // octaves between the size of its calls and the scenario's
  Measurements calls;  // the measured calls; `seconds` are unknown
  // for a run of the user's own framework, which measures a choice directly; empty: a benchmark
  std::string dispatcher;
};

// Returns rows relevant to the scenario: its collectives, its libraries' dispatch kernels, expert products,
// memory-bound kernels and host costs.
std::vector<CandidateRow> candidate_rows(const models::Scenario& resolved);

// Returns log seconds of each call on a cluster (with a drawn profile). `doubts`: log factors on unmeasured
// parts, by DomainReport's text; may be empty.
std::vector<double> log_seconds(const CandidateRow& row, const models::Cluster& cluster,
                                const std::vector<std::pair<std::string, double>>& doubts = {});

struct NextRow {
  CandidateRow row;
  double regret_before = 0, regret_after = 0;  // expected loss of the choice, as a share of the best time
};

struct NextOptions {
  double minutes = 10;
  std::size_t most = 10;  // number of rows
  double noise = 0.05;    // log standard deviation of a measured row
  double sure = 1.5;      // standard errors by which a row must help; 0: every row that helps on average
  bool runs = true;       // also runs of the user's framework, where the host's launch cost is open
};

inline constexpr int kPlanDraws = 256;  // draws of the answers for plans of several rows

// Picks greedily the rows that reduce the regret most per minute, until the minutes are spent or no
// measurement helps. Needs answers with draws: few (48) suffice for the first row, kPlanDraws for several.
std::vector<NextRow> next_rows(const models::Comparison& comparison, const NextOptions& options = {});

// Returns the command of the first row for an open decision; empty: the decision is not open, or no
// measurement helps according to the answers' draws.
std::string first_measurement(const models::Comparison& comparison);

}  // namespace moesim::calibration
