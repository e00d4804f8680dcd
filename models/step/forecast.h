// A forecast: how long a layer or a training step takes, on what, and what that time is made of.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/costs/domain_report.h"
#include "models/hardware/estimate.h"
#include "models/hardware/link_load.h"
#include "models/programs/program.h"
#include "models/step/faults.h"
#include "models/step/pipeline_schedule.h"
#include "models/step/step_memory.h"
#include "models/step/step_overload.h"
#include "sim/run/lockstep.h"

namespace moesim::models {

// When the operations of one pass of a program ran, by rank of the dispatch group.
struct PassTrace {
  std::shared_ptr<const void> held;  // keeps `program` alive
  const Program* program = nullptr;
  bool forward = true;
  bool dispatcher = false;  // not the part that no dispatcher changes
  sim::LockstepTrace trace;

  const std::vector<Op>& pass() const { return forward ? program->forward() : program->backward(); }
};

// A slot of a stage's schedule and when the stage's last rank ran it, picoseconds.
struct SlotTrace {
  int stage = 0;
  PipelineSlot slot;
  std::int64_t from = 0, to = 0;
};

// Of the rows that tokens were to be computed in, those that no expert computes.
double dropped_share(const Program& program);

// What an answer under timing `flow` says of the network.
struct FlowReport {
  double calibrated_us = 0;  // the time without contention
  int groups = 0;            // dispatch groups that ran side by side; 0: timing was calibrated
  LinkLoad busiest;          // of the links, under the layers' collectives
};

struct Forecast {
  Estimate time_us;
  std::vector<double> draws_us;  // under each drawn profile, the same draws for whatever is compared
  std::array<double, sim::kCategories> breakdown_us{};  // of the critical rank, adds up to time_us.value
  double healthy_us = 0;                                // without the scenario's faults
  int critical_rank = 0;                                // of the dispatch group
  int critical_stage = 0;                               // of the pipeline; 0 of a layer
  double exposed_comm_us = 0;  // transferring while not computing, gradients and parameters included
  double outside_domain = 0;   // share of the operations' time that the profile did not measure
  std::vector<DomainReport::Unmeasured> unmeasured;  // what no profile measured on this machine

  double tokens = 0;         // that the time is for, all GPUs together
  std::int64_t gpus = 0;     // that work on them
  double flops = 0;          // of the rows that were computed, all GPUs together (kFlopConvention)
  double dropped_share = 0;  // of the rows of its tokens

  StepMemory memory;
  OverloadReport overload_report;  // of a step: what logging it costs, part of the time
  Goodput goodput;                 // of a step, where the scenario says how often a GPU fails
  FlowReport network;              // of timing `flow`
  std::vector<std::string> warnings;

  // On request. Of one MoE layer: of a step one layer of the critical stage, run from idle clocks.
  std::vector<PassTrace> layer;
  std::vector<SlotTrace> slots;         // of a step, stage by stage
  std::vector<std::int64_t> stage_end;  // in ps, with gradients and optimizer

  double seconds() const { return time_us.value * 1e-6; }
  double tokens_per_s_per_gpu() const { return tokens / seconds() / static_cast<double>(gpus); }
  double tflops_per_gpu() const { return flops / seconds() / static_cast<double>(gpus) * 1e-12; }
};

}  // namespace moesim::models
