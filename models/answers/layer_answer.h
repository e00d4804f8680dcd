// One MoE layer of a scenario, forward and backward, under one dispatcher.
#pragma once

#include "models/answers/answer.h"
#include "models/step/step_passes.h"

namespace moesim::models {

// A layer's programs, and its runs on different prices.
class LayerAnswer {
 public:
  // All references are kept. The layer is the first one with experts. `contention`: of timing `flow`; null:
  // none.
  LayerAnswer(const Scenario& scenario, const LayerPrograms& programs, const JobRouting& routing,
              const std::optional<RankFaults>& faults, const Contention* contention);

  struct Timed {
    std::int64_t total_ps = 0;
    int critical_rank = 0;
    sim::RankSummary booked;        // of the critical rank, where asked for
    std::vector<PassTrace> traces;  // where asked for
  };
  Timed time(const ProgramPricer& pricer, bool book, bool trace, bool faults = true) const;

  void report(const ProgramPricer& pricer, DomainReport& into) const;

 private:
  StepPasses::Options options(bool faults) const;
  std::vector<PipelineSlot> slots() const;

  const Scenario& s_;
  const LayerPrograms& programs_;
  const JobRouting& routing_;
  std::optional<RankFaults> faults_;
  const Contention* contention_;
  std::vector<Chunk> chunks_;
};

}  // namespace moesim::models
