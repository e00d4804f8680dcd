// A whole training step forecast from a model, a parallel plan and a cluster, without any recording.
//
// Layers are timed operation by operation on every rank of a dispatch group (models/step/step_pass.h), passes
// of chunks are put into the pipeline's schedule (models/step/pipeline_timing.h), gradients, parameters and
// the optimizer around them. Data-parallel replicas are alike, so one pipeline stands for all.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/hardware/estimate.h"
#include "models/step/pipeline_timing.h"
#include "models/step/step_layers.h"
#include "models/step/step_memory.h"
#include "models/workload/scenario.h"
#include "models/workload/training_plan.h"

namespace moesim::models {

// Seconds of one layer's device work, forward and backward, every operation on its own: nothing overlapped,
// nothing waited for.
struct LayerWork {
  double products = 0, conversions = 0,
         attention = 0;              // GEMMs, conversions of their operands, attention's core
  double dispatch = 0, combine = 0;  // transfers
  double kernels = 0;                // everything else on the device
};

struct StepForecast {
  std::string dispatcher;
  Estimate time_us;
  double tokens = 0;  // of the step, all ranks
  double tokens_per_s_per_gpu = 0;
  double tflops_per_gpu = 0;  // model TFLOP/s by kFlopConvention
  double mfu = 0;             // of the dense bf16 peak (fp8 runs too, so that plans compare)
  std::array<double, sim::kCategories> breakdown_us{};  // of the critical stage; adds up to time_us.value
  double bubble_us = 0;                                 // of it: idle because another stage was not done
  double exposed_comm_us = 0;  // of it: transferring while not computing, gradients and parameters included
  double healthy_us = 0;       // the step without the scenario's faults
  Goodput goodput;             // where the scenario says how often a GPU fails
  double outside_domain = 0;   // share of the operations' time that the profile did not measure
  int critical_stage = 0;
  std::int64_t gpus = 0;
  StepMemory memory;
  std::vector<double> draws_us;
  std::vector<std::string> warnings;
};

// Holds what no price changes (programs, schedule, groups), so that drawn profiles are cheap.
class StepForecaster {
 public:
  // `scenario` must be resolved. Throws InputError for plans that do not fit together, naming the rule; a
  // dispatcher that is illegal for the plan is one.
  StepForecaster(const Scenario& scenario, const DispatcherSpec& dispatcher);
  ~StepForecaster();

  // With `draws` drawn profiles for the interval (0: low = high = value), widened by kStepSigma.
  StepForecast forecast(int draws) const;
  // Whether the plan fits the GPU's memory, with the layers cut evenly: without pricing anything.
  bool fits() const;
  // What one layer of the kind makes the device do, on the rank with the longest operations; `beside`: as
  // slow as computing and expert communication are while the other runs.
  LayerWork layer_work(const LayerKind& kind, bool beside = false) const;
  // The time of one step in seconds on another profile of the same kind of cluster.
  double seconds(const Cluster& cluster) const;

 private:
  struct Priced;
  // `faults`: off for the healthy machine.
  Priced price(const Cluster& cluster, bool breakdown, bool faults = true) const;
  std::string recompute_that_fits(const std::vector<Chunk>& chunks) const;

  const Scenario scenario_;
  DispatcherSpec dispatcher_;
  std::unique_ptr<MoeProgram> moe_;
  PipelineShape shape_;
  std::vector<std::vector<PipelineSlot>> schedule_;
  std::vector<std::vector<RankFaults>> stage_faults_;  // models/step/step_faults.h; empty: a healthy machine
  std::vector<std::string> warnings_;
};

// What published steps scatter around the forecast besides what the profile knows (natural logarithm):
// frameworks, their versions, and what the model leaves out. Measured by `moesim validate --training`
// (docs/validation.md).
inline constexpr double kStepSigma = 0.15;

}  // namespace moesim::models
