// Rule F of docs/spec.md 2.11: whether the collectives of sharded weights and the exchanges of experts can
// come in another order on another rank.
#pragma once

#include <string>

#include "models/programs/program.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// How ranks come to wait for each other for ever, in one sentence; empty where their orders agree. `program`
// is a dispatcher's of a MoE layer.
std::string hang_of_unit(const Scenario& scenario, const Program& program);

}  // namespace moesim::models
