// Rule F of docs/spec.md 2.11: whether the collectives of sharded weights and the exchanges of experts can be
// ordered differently on different ranks.
#pragma once

#include <string>

#include "models/programs/program.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// Returns how ranks deadlock, in one sentence; empty where their orders agree. `program`: a dispatcher's of a
// MoE layer.
std::string hang_of_unit(const Scenario& scenario, const Program& program);

}  // namespace moesim::models
