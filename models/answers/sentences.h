// Sentences of a comparison: the recommendation, its reason, and why other dispatchers cannot be chosen.
#pragma once

#include <string>

#include "models/answers/answer.h"

namespace moesim::models {

// Returns which dispatcher to run and its possible loss, or why none is recommended.
std::string sentence(const Comparison& comparison);

// Returns where the choice and the nearest answer that differs from it spend their time differently.
std::string because(const Comparison& comparison);

// Returns why an answer cannot be chosen; empty where it can.
std::string barred_text(const Answer& answer);

// Formats 0.024 as "2.4 %" and 0.15 as "15 %".
std::string share_text(double share);

// Formats a probability as "97 %"; never as 0 % or 100 %, which a finite number of draws cannot show.
std::string probability_text(double probability);

}  // namespace moesim::models
