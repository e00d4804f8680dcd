// Anchors forecasts to times that the user measured: measured dispatchers inform the forecasts of other
// dispatchers, plans and machines of the same kind.
//
// Every draw of the profile forecasts a time for each dispatcher. Draws that explain the measurements get
// larger weights. The model itself may also be off, by a factor common to all dispatchers and by one factor
// for each; the logarithms of both are normal. The posterior of the common factor follows for every draw in
// closed form (a linear Gaussian model, Gelman et al., Bayesian Data Analysis, chapter 14), so a few hundred
// draws suffice. A measured layer anchors steps, too: its draws have the same prices, launches and exchanges;
// what else steps and layers differ in stays as uncertain as it was.
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
  std::string dispatcher;  // empty: the dispatcher that the job runs
  double us = 0;
  bool layer = false;  // of one MoE layer, where the forecasts are of steps
};

struct Anchor {
  // A parameter that the measurements constrained: its estimate before and after, as factors on the value in
  // the profile or the model.
  struct Moved {
    std::string parameter;
    Estimate before, after;
  };
  // Another value of an assumed setting that would explain the measured times.
  struct Suspect {
    std::string path, value;
    double us = 0;  // the forecast with that value
  };

  std::vector<Measured> measured;   // with the names that the answers have
  std::vector<Estimate> before;     // the forecast of each measured time without the anchor
  std::vector<Estimate> forecasts;  // the forecast of every answer without the anchor
  bool explained = true;
  std::vector<Suspect> suspects;  // where not explained: suspects, nearest forecast first
  double effective_draws = 0;     // effective sample size of the weights
  std::vector<Moved> moved;

  // Resampling for other answers: of `drawn` draws these indices are taken, repeated by weight, each with the
  // logarithm of the factor common to all dispatchers under it.
  struct Resampled {
    std::vector<std::size_t> draws;
    std::vector<double> shared;
  };
  int drawn = 0;
  Resampled measurement;
  // As if the runs had taken as long as forecast, which moves no other forecast: what it moves is chance.
  Resampled expectation;

  // Returns the position of an answer's dispatcher among the measured ones; -1: it was not measured, or only
  // for a layer.
  int known(const std::string& dispatcher) const;
};

// Computes the anchor of a comparison that was answered with many draws. `told`: also fills `moved` and, for
// times that are not explained, `suspects`. Throws InputError for a dispatcher that the comparison lacks.
Anchor anchor_of(const Comparison& comparison, std::vector<Measured> measured, bool told = true);

// Replaces the draws and the time of an answer by the anchored ones. `index`: position of the answer among
// the measured ones of the anchor's own comparison; -1: it was not measured.
void anchor_answer(Answer& answer, const Anchor& anchor, int index);

// Returns settings, nearest first, under which the forecast of the answer comes close to its measured time.
std::vector<Anchor::Suspect> suspects_of(const Scenario& scenario, const Measured& measured);

inline constexpr int kAnchorDraws = 256;       // draws of an anchored answer at first
inline constexpr int kMostAnchorDraws = 4096;  // draws where the effective sample size is too small
inline constexpr double kFewEffective = 40;    // effective draws below which more are made

}  // namespace moesim::models
