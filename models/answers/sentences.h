// Sentences of a comparison: the recommendation, its reason, and why other dispatchers cannot be chosen; and
// the answers that words of a user mean.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

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

// Returns the position of the answer that `option` names: the one with this name and these options, else the
// only one with this name. Throws InputError where there is none, and where it has no forecast.
std::size_t answer_named(const Comparison& comparison, const std::string& dispatcher,
                         std::string_view option);

// Returns the dispatcher that runs today: the only one, or the job's where it is among several; else nullopt.
std::optional<std::string> own_dispatcher(const Comparison& comparison);

}  // namespace moesim::models
