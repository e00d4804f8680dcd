// The critical path as sentences, from start to end.
#pragma once

#include <string>

#include "models/answers/answer.h"
#include "replay/run/iteration.h"

namespace moesim::tools {

// Describes a simulated iteration: a sentence per step of the schedule; in long iterations, neighbouring
// steps of a pipeline stage are merged.
std::string critical_path_text(const replay::Iteration& iteration);

// Describes a layer under one dispatcher: the operations of the rank that ends last, in order. Needs
// AnswerOptions::trace.
std::string critical_path_text(const models::Answer& forecast);

}  // namespace moesim::tools
