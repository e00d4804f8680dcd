// Default settings that the answer depends on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/answers/answer.h"

namespace moesim::models {

// A setting at its default and the effect of its usual alternative.
struct Assumed {
  std::string path;
  std::string value, alternative;  // as text
  double effect = 0;  // relative change of the winner's time under the alternative: -0.28 is 28 % faster

  // Returns "--launch graphs", or "--set path=value" where the setting has no flag.
  std::string option() const;
  // Returns "training.launch eager: with --launch graphs 28 % faster".
  std::string text() const;
};

// Returns the settings whose alternative changes the winner's time by more than kMatters, strongest first,
// without those that no longer fit the memory.
// One routing stands for all layers, as in searches. Empty without a winner.
inline constexpr double kMatters = 0.05;
std::vector<Assumed> assumed_of(const Comparison& comparison);

// The time that the winner loses to an uneven routing, compared with balanced tokens.
struct Imbalance {
  std::string routing;
  double us = 0, share = 0;  // of a layer's or a step's time
  bool step = false;
  std::vector<Assumed> remedies;  // other values that make it faster by more than 1 %, the fastest first

  double hours_a_day() const { return 24 * share; }
  std::string text(std::size_t most_remedies) const;
};

// Remedies take the first layer's routing for all. nullopt without a winner, and where it costs less than 1 %.
std::optional<Imbalance> imbalance_of(const Comparison& comparison);

}  // namespace moesim::models
