// Invariants of every answer, checked before it is returned.
#pragma once

#include <cstddef>
#include <string>

#include "models/answers/answer.h"

namespace moesim::models {

// Returns the first violated invariant of an answer that is ok(), in one clause ("an MFU of 7.15, expected 0
// to 1"), or "". Times, sizes and rates are finite and not negative, intervals contain their value, the parts
// of time and memory add up to the whole, shares lie in [0, 1], and the MFU is at most 1 (the peak of the
// fastest type that the plan computes in, over bf16).
std::string impossible(const Scenario& scenario, const Answer& answer);

// The subset that holds for any forecast of a layer, step or recording: all but MFU, traffic and cost. Links
// carry at most their capacity.
std::string impossible(const Forecast& forecast);

// Likewise for a time with its interval, the memory of a job, and a decision between `answers` answers.
std::string impossible(const Estimate& time_us);
std::string impossible(const StepMemory& memory);
std::string impossible(const Decision& decision, std::size_t answers);

// Returns whether parts add up to their total, up to rounding. Microseconds.
bool adds_up(double sum_us, double total_us);

// Throws InputError with the violated invariant, if any.
void check_answer(const Scenario& scenario, const Answer& answer);

// Throws InputError for a `what` that is not empty. `of`: the subject of the forecast, "alltoall".
void check_possible(const std::string& of, const std::string& what);

}  // namespace moesim::models
