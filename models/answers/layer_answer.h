// One MoE layer of a scenario, forward and backward, under one dispatcher.
#pragma once

#include "models/answers/answer.h"
#include "models/step/step_passes.h"

namespace moesim::models {

// Ranks whose messages timing `flow` follows one by one.
inline constexpr std::size_t kMostFlowRanks = 1024;

// A layer's programs, and its runs on different prices.
class LayerAnswer {
 public:
  // All references are kept. The layer is the first one with experts.
  LayerAnswer(const Scenario& scenario, const LayerPrograms& programs, const JobRouting& routing,
              const std::optional<RankFaults>& faults);

  struct Timed {
    std::int64_t total_ps = 0;
    int critical_rank = 0;
    sim::RankSummary booked;        // of the critical rank, where asked for
    std::vector<PassTrace> traces;  // where asked for
  };
  Timed time(const ProgramPricer& pricer, bool book, bool trace, bool faults = true) const;
  // The same with all dispatch groups of the job at once on the cluster's network.
  struct FlowTimed {
    std::int64_t total_ps = 0;
    int critical_rank = 0;
    sim::Breakdown breakdown;
    int groups = 1;
    LinkLoad busiest;
  };
  FlowTimed time_on(const sim::Fabric& fabric, const ProgramPricer& pricer) const;

  void report(const ProgramPricer& pricer, DomainReport& into) const;

 private:
  StepPasses::Options options(bool faults) const;
  std::vector<PipelineSlot> slots() const;
  std::vector<std::vector<std::int32_t>> flow_groups() const;

  const Scenario& s_;
  const LayerPrograms& programs_;
  const JobRouting& routing_;
  std::optional<RankFaults> faults_;
  std::vector<Chunk> chunks_;
};

}  // namespace moesim::models
