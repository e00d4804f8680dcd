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
#include "sim/graph/task_graph.h"
#include "sim/run/timeline.h"

namespace moesim::models {

struct ProgramPass {
  const Program* program = nullptr;
  bool forward = true;
  bool dispatcher = false;  // false: the part that is the same for all dispatchers

  const std::vector<Op>& ops() const { return forward ? program->forward() : program->backward(); }
};

// One MoE layer as it runs from idle clocks.
struct LayerTrace {
  struct Pass : ProgramPass {
    std::shared_ptr<const void> held;  // keeps `program` alive
    std::vector<sim::TaskId> tasks;    // [operation * ranks + rank]
  };
  // Picoseconds. A collective starts when its rank arrives and begins when the last member has arrived;
  // others begin when they start.
  struct Span {
    std::int64_t start = 0, begin = 0, end = 0;
  };
  Span span(const Pass& pass, std::size_t op, std::size_t rank) const;

  sim::TaskGraph graph;
  sim::Timeline timeline;
  std::size_t ranks = 0;  // of the dispatch group
  std::vector<Pass> passes;
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

  // On request: a trace of the layer; for a step, of one MoE layer of the critical stage.
  std::shared_ptr<const LayerTrace> layer;
  std::vector<SlotTrace> slots;         // for a step, stage by stage
  std::vector<std::int64_t> stage_end;  // ps, with gradients and optimizer

  double seconds() const { return time_us.value * 1e-6; }
  double tokens_per_s_per_gpu() const { return tokens / seconds() / static_cast<double>(gpus); }
  double tflops_per_gpu() const { return flops / seconds() / static_cast<double>(gpus) * 1e-12; }
  // Converts a price of the time.
  double per_million_tokens(double cost) const { return cost / tokens * 1e6; }
};

}  // namespace moesim::models
