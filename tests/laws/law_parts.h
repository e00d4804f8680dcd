// Helpers from which laws are written.
#pragma once

#include <string>

#include "models/workload/architecture.h"
#include "tests/laws/laws.h"

namespace moesim::laws {

// Rounding to picoseconds, operation by operation.
inline constexpr double kRounding = 1e-6;
// Tolerance where an earlier launch may take a link or the GPU from a pass that others wait for, and for
// flows in windows of time.
inline constexpr double kOrder = 1e-3;

enum class Is { kNoMore, kNoLess, kTheSame };

// Returns how `other` breaks its relation to `value`; empty where it does not.
std::string relation(Is is, double value, double other, double tolerance);

models::Architecture model_of(const Case& one);

}  // namespace moesim::laws
