// A run of one's own as the anchor of forecasts: what was measured of some dispatchers tells of the others,
// of other plans and of other machines of the kind.
//
// Every draw of the profile forecasts a time for each dispatcher. The draws that explain what was measured
// weigh more; beside them the model itself may be off, for all dispatchers alike and for each by itself, by
// factors whose logarithms are normal. How far it is off for all alike follows for every draw in closed form
// (a linear Gaussian model, Gelman et al., Bayesian Data Analysis, chapter 14), so that a few hundred draws
// suffice.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "models/answers/decision.h"
#include "models/hardware/estimate.h"

namespace moesim::models {

struct Answer;
struct Comparison;
struct Scenario;

// A measured time of one dispatcher.
struct Measured {
  std::string dispatcher;  // empty: the one that the job runs
  double us = 0;
};

struct Anchor {
  // A number that the run told something of: how it was known before and is known now, as factors on what the
  // profile or the model says.
  struct Moved {
    std::string parameter;
    Estimate before, after;
  };
  // A setting that was taken and another value of it, with which the run would be explained.
  struct Suspect {
    std::string path, value;
    double us = 0;  // the forecast with it
  };

  std::vector<Measured> measured;   // with the names of the answers
  std::vector<Estimate> before;     // of each, what was forecast
  std::vector<Estimate> forecasts;  // of every answer without the run
  bool explained = true;
  std::vector<Suspect> suspects;  // where it is not, the nearest first
  double effective_draws = 0;     // of so many draws the weights are worth
  std::vector<Moved> moved;

  // How other answers are anchored: made with `drawn` draws of which these are taken, repeated by their
  // weight, each with the logarithm of the factor that is common to all dispatchers under it.
  int drawn = 0;
  std::vector<std::size_t> draws;
  std::vector<double> shared;
};

// Finds what the measured times tell of a comparison that was answered with many draws. `told`: with the
// numbers that moved and, of a run that is not explained, the suspects. Throws InputError for a dispatcher
// that is none of its answers.
Anchor anchor_of(const Comparison& comparison, std::vector<Measured> measured, bool told = true);

// Takes the draws of an answer and its time from the anchor. `index`: of the answer among the measured ones
// of the anchor's own comparison; -1: it was not measured.
void anchor_answer(Answer& answer, const Anchor& anchor, int index);

// Finds settings with which the measured time of the answer would be forecast.
std::vector<Anchor::Suspect> suspects_of(const Scenario& scenario, const Measured& measured);

inline constexpr int kAnchorDraws = 256;       // of an answer that is anchored, at first
inline constexpr int kMostAnchorDraws = 4096;  // where fewer tell too little
inline constexpr double kFewEffective = 40;    // effective draws that are too few

}  // namespace moesim::models
