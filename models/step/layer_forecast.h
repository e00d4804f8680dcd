// One MoE layer of a scenario, forward and backward, under one dispatcher.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/step/forecast.h"
#include "models/step/step_passes.h"

namespace moesim::models {

// A layer's programs, priced and run under different prices.
class LayerForecaster {
 public:
  // Keeps all references. The layer is the first one with experts. `contention`: with timing `flow`; null:
  // none.
  LayerForecaster(const Scenario& scenario, const LayerPrograms& programs, const JobRouting& routing,
                  const std::optional<RankFaults>& faults, const Contention* contention);

  // Forecasts the time on `nominal` prices; the caller adds memory and doubt. `drawn`: prices of drawn
  // profiles. `book`: with the breakdown. `trace`: with the span of every operation.
  Forecast forecast(const ProgramPricer& nominal, std::span<const ProgramPricer> drawn, bool book,
                    bool trace) const;
  // Returns picoseconds of the layer alone. `faults`: false for the healthy machine.
  std::int64_t total_ps(const ProgramPricer& pricer, bool faults = true) const;
  std::shared_ptr<const LayerTrace> trace(const ProgramPricer& pricer) const;

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
