// The critical path as a list of sentences: who kept everybody waiting, from the start to the end.
#pragma once

#include <string>

#include "models/answers/answer.h"
#include "replay/run/iteration.h"

namespace moesim::tools {

// Of a simulated iteration. A sentence per step of the schedule; of long iterations, neighbouring steps of a
// pipeline stage are told together.
std::string critical_path_text(const replay::Iteration& iteration);

// Of a layer under one dispatcher: what the rank that ends last does, one thing after the other. Needs
// ComparisonOptions::trace.
std::string critical_path_text(const models::Answer& forecast);

}  // namespace moesim::tools
