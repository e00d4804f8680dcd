// What a comparison says to people: the recommendation, its reason, and why others cannot be chosen.
#pragma once

#include <string>

#include "models/answers/answer.h"

namespace moesim::models {

// Which dispatcher to run and what that can cost, or why none is recommended.
std::string sentence(const Comparison& comparison);

// Where the choice and the nearest one that differs from it spend their time differently.
std::string because(const Comparison& comparison);

// Why an answer cannot be chosen; empty where it can.
std::string barred_text(const Answer& answer);

// "2.4 %" of 0.024, "15 %" of 0.15: with as many digits as a reader compares.
std::string share_text(double share);

// "97 %" of a probability; no number of draws makes anything certain.
std::string probability_text(double probability);

}  // namespace moesim::models
