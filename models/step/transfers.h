// Transfers of a training step around its passes: activations between stages, parameters, gradients,
// optimizer.
#pragma once

#include <functional>
#include <vector>

#include "models/costs/domain_report.h"
#include "models/costs/program_prices.h"
#include "models/programs/memory.h"
#include "models/step/parameter_collectives.h"
#include "models/step/pipeline_run.h"
#include "models/workload/layer_stack.h"
#include "models/workload/placement.h"
#include "models/workload/scenario.h"

namespace moesim::models {

class Contention;

// Slowdown of links with a fault anywhere in the machine.
struct LinkFaults {
  double network = 1, nvlink = 1;
};

// Return the lists of tensors that one optimizer kernel can update (one per mesh, as torch's foreach kernels
// take no tensors of two meshes), and the kernels that an optimizer step launches for a chunk's weights.
std::int64_t optimizer_meshes(const Scenario& scenario, const StageParameters& parameters);
std::int64_t optimizer_launches(const Scenario& scenario, const StageParameters& parameters);

// Returns the collectives of parameters of a step that answers list: of the first stage with its share of the
// layers, on a healthy machine; none where the scenario does not say how parameters are sharded.
std::vector<TimedCollective> timed_collectives(const Scenario& scenario, std::int64_t slots,
                                               const Placement& placement, const ProgramPricer& pricer);

// The step whose transfers are asked for, and how its passes run.
struct TransferInputs {
  const Scenario& scenario;
  const std::vector<Chunk>& chunks;
  std::int64_t slots;  // experts with every copy that the placement keeps
  const Placement& placement;
  const ProgramPricer& pricer;
  // Time for which the collectives of a chunk's pass (chunk, forward) occupy the network between NVLink
  // domains.
  std::function<std::int64_t(std::size_t, bool)> network_of;
  // kept_by_pass() of the job, called where activations are offloaded.
  std::function<std::vector<double>()> kept_of_pass;
  LinkFaults faults = {};
  const Contention* contention = nullptr;  // with timing `flow`
  bool waits_before_experts = false;       // the host waits in a layer's forward pass, before its experts
  DomainReport* report = nullptr;  // collects prices outside of the measured domain for one microbatch
};
PipelineTransfers step_transfers(const TransferInputs& inputs);

}  // namespace moesim::models
