// One MoE layer of a scenario, forward and backward, under one dispatcher.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/step/forecast.h"
#include "models/step/step_passes.h"

namespace moesim::models {

// A layer's programs, and its runs on different prices.
class LayerForecaster {
 public:
  // All references are kept. The layer is the first one with experts. `contention`: of timing `flow`; null:
  // none.
  LayerForecaster(const Scenario& scenario, const LayerPrograms& programs, const JobRouting& routing,
                  const std::optional<RankFaults>& faults, const Contention* contention);

  // On `nominal` prices; memory and doubt are not its own. `drawn`: prices of drawn profiles. `book`: what
  // the time is made of. `trace`: when every operation ran.
  Forecast forecast(const ProgramPricer& nominal, std::span<const ProgramPricer> drawn, bool book,
                    bool trace) const;
  // Picoseconds of the layer alone. `faults`: off for the healthy machine.
  std::int64_t total_ps(const ProgramPricer& pricer, bool faults = true) const;
  // When every operation ran.
  std::vector<PassTrace> trace(const ProgramPricer& pricer) const;

 private:
  StepPasses::Options options(bool faults) const;
  sim::LockstepOptions clocks(const ProgramPricer& pricer) const;
  std::vector<PipelineSlot> slots() const;
  // Runs the layer once from idle clocks; `watch` may be null.
  sim::Lockstep run(StepPasses& passes, const ProgramPricer& pricer,
                    sim::LockstepWatch* watch = nullptr) const;
  void count_work(Forecast& f) const;

  const Scenario& s_;
  const LayerPrograms& programs_;
  const JobRouting& routing_;
  std::optional<RankFaults> faults_;
  const Contention* contention_;
  std::vector<Chunk> chunks_;
};

}  // namespace moesim::models
