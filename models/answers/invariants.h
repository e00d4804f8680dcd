// What holds of every answer, asked before anybody sees it.
#pragma once

#include <string>

#include "models/answers/answer.h"

namespace moesim::models {

// What cannot be of an answer that is ok(), in one clause ("an MFU of 7.15, expected 0 to 1"); empty: all is
// well. Times, sizes and rates are finite and not negative, intervals hold their value, the parts of time and
// memory add up to the whole, shares lie in [0, 1], and the MFU is at most 1 (of the fastest type that the
// plan computes in, over bf16).
std::string impossible(const Scenario& scenario, const Answer& answer);

// Throws InputError with what is impossible.
void check_answer(const Scenario& scenario, const Answer& answer);

}  // namespace moesim::models
