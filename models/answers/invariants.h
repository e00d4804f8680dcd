// What holds of every answer, asked before anybody sees it.
#pragma once

#include <cstddef>
#include <string>

#include "models/answers/answer.h"

namespace moesim::models {

// What cannot be of an answer that is ok(), in one clause ("an MFU of 7.15, expected 0 to 1"); empty: all is
// well. Times, sizes and rates are finite and not negative, intervals hold their value, the parts of time and
// memory add up to the whole, shares lie in [0, 1], and the MFU is at most 1 (of the fastest type that the
// plan computes in, over bf16).
std::string impossible(const Scenario& scenario, const Answer& answer);

// The part of that which holds of any forecast, of a layer, a step or a recording: all but MFU, traffic and
// cost. Links carry at most what they can.
std::string impossible(const Forecast& forecast);

// The same of a time with its interval, of the memory of a job, and of a decision between `answers` answers.
std::string impossible(const Estimate& time_us);
std::string impossible(const StepMemory& memory);
std::string impossible(const Decision& decision, std::size_t answers);

// Whether parts are their whole, as far as rounding goes; microseconds.
bool adds_up(double sum_us, double total_us);

// Throws InputError with what is impossible.
void check_answer(const Scenario& scenario, const Answer& answer);

// Throws InputError for `what`, unless it is empty. `of`: what the forecast is of, "alltoall".
void check_possible(const std::string& of, const std::string& what);

}  // namespace moesim::models
