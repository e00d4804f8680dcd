// What to measure next, so that a decision that is open is made right.
//
// Preposterior analysis on the profile's draws. Under every draw of the profile each dispatcher takes a time,
// and each row that could be measured takes one, too. Who could see the row would choose by it: the share of
// time that his choices lose, in the mean of the draws, is the regret after the row. How times follow from
// rows is a ridge regression, and choices are made on draws that it has not seen (Strong, Oakley and Brennan
// 2014, "Estimating multiparameter partial expected value of perfect information from a probabilistic
// sensitivity analysis sample", for the idea).
#pragma once

#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/answers/answer.h"

namespace moesim::calibration {

// One row (of DeepEP's tests two: dispatch and combine) that a command measures.
struct CandidateRow {
  std::string command;
  double minutes = 0;
  double apart = 0;    // octaves between the size of its calls and the scenario's
  Measurements calls;  // what is measured; `seconds` are not known
  std::string
      dispatcher;  // of a run of one's own framework, which measures a choice itself; empty: of a benchmark
};

// Rows that tell something of the scenario: its collectives, its libraries' dispatch kernels, expert
// products, memory-bound kernels and what the host costs.
std::vector<CandidateRow> candidate_rows(const models::Scenario& resolved);

// Log seconds of the calls on a cluster (with a drawn profile), one for each; `doubts`: log factors on parts
// that no profile measured, by DomainReport's text, may be empty.
std::vector<double> log_seconds(const CandidateRow& row, const models::Cluster& cluster,
                                const std::vector<std::pair<std::string, double>>& doubts = {});

struct NextRow {
  CandidateRow row;
  double regret_before = 0, regret_after = 0;  // expected share of the best time that the choice loses
};

struct NextOptions {
  double minutes = 10;
  std::size_t most = 10;  // rows
  double noise = 0.05;    // log standard deviation of a measured row
  double sure = 1.5;      // standard errors by which a row has to help; 0: every row that helps in the mean
  bool runs = true;  // runs of one's own framework too, where what is open is what the host takes to launch
};

inline constexpr int kPlanDraws = 256;  // of answers that tell several rows

// Greedily the rows that take the most regret away per minute, until the minutes are spent or nothing that
// can be measured helps. Needs answers with draws: few (48) mostly tell the first row, kPlanDraws several.
std::vector<NextRow> next_rows(const models::Comparison& comparison, const NextOptions& options = {});

// The first of them, where it is too close to call; empty: it is not, or nothing that can be measured helps,
// as far as the draws of the answers tell.
std::string first_measurement(const models::Comparison& comparison);

}  // namespace moesim::calibration
