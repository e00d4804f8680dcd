// A forecast of a layer or a training step: its time, the hardware, and the breakdown of the time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/costs/domain_report.h"
#include "models/hardware/estimate.h"
#include "models/hardware/group_shape.h"
#include "models/programs/program.h"
#include "models/step/faults.h"
#include "models/step/pipeline_schedule.h"
#include "models/step/step_memory.h"
#include "models/step/step_overload.h"
#include "sim/run/lockstep.h"

namespace moesim::models {

// Spans of the operations of one pass of a program, by rank of the dispatch group.
struct PassTrace {
  std::shared_ptr<const void> held;  // keeps `program` alive
  const Program* program = nullptr;
  bool forward = true;
  bool dispatcher = false;  // false: the part that is the same for all dispatchers
  sim::LockstepTrace trace;

  const std::vector<Op>& pass() const { return forward ? program->forward() : program->backward(); }
};

// A slot of a stage's schedule with its span on the stage's last rank, picoseconds.
struct SlotTrace {
  int stage = 0;
  PipelineSlot slot;
  std::int64_t from = 0, to = 0;
};

// Returns the share of rows that no expert computes.
double dropped_share(const Program& program);

// Results of timing `flow`.
struct FlowReport {
  double calibrated_us = 0;  // the time without contention
  int groups = 0;            // dispatch groups that ran side by side; 0: timing was calibrated
  LinkLoad busiest;          // busiest link under the layers' collectives
};

struct Forecast {
  Estimate time_us;
  // one entry per drawn profile; draws are the same for everything that is compared
  std::vector<double> draws_us;
  std::array<double, sim::kCategories> breakdown_us{};  // of the critical rank; its sum is time_us.value
  double healthy_us = 0;                                // without the scenario's faults
  int critical_rank = 0;                                // rank in the dispatch group
  int critical_stage = 0;                               // pipeline stage; 0 for a layer
  double exposed_comm_us = 0;  // transfers while nothing computes, gradients and parameters included
  double outside_domain = 0;   // share of the operations' time outside of the profile's measurements
  std::vector<DomainReport::Unmeasured> unmeasured;  // prices that were not measured on this machine

  double tokens = 0;         // tokens processed in the time, on all GPUs together
  std::int64_t gpus = 0;     // GPUs that process them
  double flops = 0;          // of the computed rows, on all GPUs together (kFlopConvention)
  double dropped_share = 0;  // share of the rows that is dropped

  StepMemory memory;
  OverloadReport overload_report;  // for a step: cost of logging it, contained in the time
  Goodput goodput;                 // for a step, where the scenario gives the failure rate of a GPU
  FlowReport network;              // with timing `flow`
  std::vector<std::string> warnings;

  // On request: traces of one MoE layer; for a step, of one layer of the critical stage, run from idle
  // clocks.
  std::vector<PassTrace> layer;
  std::vector<SlotTrace> slots;         // for a step, stage by stage
  std::vector<std::int64_t> stage_end;  // ps, with gradients and optimizer

  double seconds() const { return time_us.value * 1e-6; }
  double tokens_per_s_per_gpu() const { return tokens / seconds() / static_cast<double>(gpus); }
  double tflops_per_gpu() const { return flops / seconds() / static_cast<double>(gpus) * 1e-12; }
  // Converts a price of the time.
  double per_million_tokens(double cost) const { return cost / tokens * 1e6; }
};

}  // namespace moesim::models
