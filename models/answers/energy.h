// Power and energy of a training step: from the shares of its time, not from its MFU. A busy tensor core draws near
// the power limit whatever it reaches; what lowers power is time outside of kernels.
#pragma once

#include <optional>

#include "models/answers/answer.h"
#include "models/hardware/estimate.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// The energy of all nodes of a job, with their fans and power supplies but without network and cooling. The interval
// covers how much of its limit a GPU draws in each kind of work, and nodes that air cools as well as those that liquid does.
struct Energy {
  Estimate node_watts;    // of a node, mean over the step
  double peak_watts = 0;  // of all nodes, while all GPUs compute
  Estimate joules_per_token;
  double kwh_per_step = 0;
};

// Returns the energy of a step; nullopt for a layer and for a GPU whose power limit is not known.
std::optional<Energy> energy_of(const Scenario& scenario, const Answer& answer);

}  // namespace moesim::models
