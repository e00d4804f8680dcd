// Default settings that the answer depends on.
#pragma once

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

}  // namespace moesim::models
