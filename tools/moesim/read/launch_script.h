// A plan as a batch script that starts its training.
#pragma once

#include <string>

#include "models/workload/scenario.h"

namespace moesim::tools {

// Returns a bash script with lines for sbatch, torchrun and pretrain_gpt.py of Megatron-LM with the plan's
// arguments; comments above them give the moesim command that forecasts the plan (`command`) and what the
// arguments leave out. Throws InputError for features that Megatron lacks.
std::string launch_script(const models::Scenario& plan, const std::string& command, int version = 0);

}  // namespace moesim::tools
