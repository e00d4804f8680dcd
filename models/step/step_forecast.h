// Forecast of a whole training step from a model, a parallel plan and a cluster, without a recording.
//
// The step is simulated: every layer and microbatch of one pipeline has its own pass, with its own routing,
// on the clocks of its stage's ranks (models/step/step_passes.h, pipeline_run.h); gradients, parameters and
// the optimizer run around them. Data-parallel replicas are alike, so one pipeline stands for all.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/step/contention.h"
#include "models/step/faults.h"
#include "models/step/forecast.h"
#include "models/step/layer_programs.h"
#include "models/step/pipeline_layout.h"
#include "models/step/pipeline_run.h"
#include "models/step/step_memory.h"
#include "models/step/step_overload.h"
#include "models/step/step_passes.h"
#include "models/workload/scenario.h"
#include "models/workload/training_settings.h"

namespace moesim::models {

// Returns the tokens of a step on all GPUs together, where no ranks process the same ones.
double tokens_of_step(const Parallel& parallel);

// Holds everything independent of prices (programs, schedule, groups), so that drawn profiles are cheap.
class StepForecaster {
 public:
  // `scenario` must be resolved. Throws InputError naming the rule for inconsistent plans, including a
  // dispatcher that is illegal for the plan. `routings`: of several forecasts; null: its own.
  StepForecaster(const Scenario& scenario, const DispatcherSpec& dispatcher,
                 RoutingCache* routings = nullptr);
  ~StepForecaster();

  // Forecasts on `nominal` prices, without doubt. `drawn`: prices of drawn profiles. `slots`: records the
  // span of every slot. `contention`: with timing `flow`; null: none.
  Forecast forecast(const ProgramPricer& nominal, std::span<const ProgramPricer> drawn = {},
                    bool slots = false, const Contention* contention = nullptr) const;
  // Returns the imbalance of the ranks over all layers and microbatches, without prices.
  StepOverload overload() const;
  // Returns the memory of every stage, and whether it fits, without prices.
  StepMemory memory() const;
  // Returns the cheapest recomputation with which it fits; empty where none helps.
  std::string recompute_that_fits() const;
  // Returns the seconds of forecast()'s step alone; `pricer`: made for the plan's recipe.
  double seconds(const ProgramPricer& pricer) const;
  // Returns the tokens of a step on all GPUs together, each counted once.
  double tokens() const;

  const Scenario& scenario() const { return scenario_; }
  const Program& moe_program() const { return programs_->first()->program; }
  // Whether the host waits in a layer's forward pass: it waits for the sizes of the experts' input.
  bool waits_before_experts() const { return moe_program().host_syncs(moe_program().forward()) > 0; }
  const LayerPrograms& programs() const { return *programs_; }
  const JobRouting& routing() const { return routing_; }
  const PipelineLayout& plan() const { return *plan_; }

 private:
  struct Timed;
  class Draws;

  // Chooses the class of dispatch groups whose layers take longest.
  void choose_programs();
  StepPasses::Options passes_options(bool faults, const Contention* contention) const;
  // `faults`: false for the healthy machine. `contention`: null: none. `report`: collects prices outside of
  // the measured domain; may be null.
  Timed time(const ProgramPricer& pricer, bool book, bool faults, const Contention* contention,
             DomainReport* report) const;

  const Scenario scenario_;
  DispatcherSpec dispatcher_;
  JobRouting routing_;
  Placement placement_;
  std::unique_ptr<LayerPrograms> programs_;
  std::unique_ptr<PipelineLayout> plan_;
  std::vector<std::vector<RankFaults>> stage_faults_;  // models/step/step_faults.h; empty: a healthy machine
  std::vector<std::string> warnings_;
};

// Applies the faults of a scenario's machine to the stages of a pipeline.

// Returns for every pipeline stage the dispatch groups with a fault, or one group where there is only jitter,
// whose distribution is the same everywhere. Empty where nothing is slow. Replicas of a pipeline wait for
// each other, so the slowest group of a stage stands for the stage: exact for one fault; several faults in
// different replicas count as if they were in one pipeline. Appends a warning for faults of GPUs that the
// plan does not use.
std::vector<std::vector<RankFaults>> faults_of_stages(const Scenario& scenario,
                                                      std::vector<std::string>& warnings);

}  // namespace moesim::models
