#include "models/answers/layer_answer.h"

#include <algorithm>

#include "base/check.h"

namespace moesim::models {

LayerAnswer::LayerAnswer(const Scenario& scenario, const LayerPrograms& programs, const JobRouting& routing,
                         const std::optional<RankFaults>& faults, const Contention* contention)
    : s_(scenario), programs_(programs), routing_(routing), faults_(faults), contention_(contention) {
  const auto kinds = programs.kind_of_layer();
  for (std::size_t layer = 0; layer < kinds.size(); ++layer) {
    const LayerKind& kind = programs.kinds()[kinds[layer]];
    // Of a dense model, its first layer.
    if (kind.ffn != LayerKind::Ffn::kMoe && scenario.model.experts > 0) continue;
    chunks_.push_back({layer, {kind}, false, false});
    return;
  }
  check_failed("a model with experts has a layer with experts");
}

StepPasses::Options LayerAnswer::options(bool faults) const {
  StepPasses::Options o;
  o.chunks = &chunks_;
  o.full_recompute = s_.training.recompute.full;
  o.all_ranks = true;
  o.contention = contention_;
  if (faults && faults_) o.faults.assign(1, faults_);
  return o;
}

// Forward, then backward; together where the dispatcher overlaps two batches.
std::vector<PipelineSlot> LayerAnswer::slots() const {
  if (!s_.train) return {{PipelineSlot::Kind::kForward}};
  if (programs_.first()->program.overlaps_batches) return {{PipelineSlot::Kind::kOverlapped}};
  return {{PipelineSlot::Kind::kForward}, {PipelineSlot::Kind::kBackward}};
}

LayerAnswer::Timed LayerAnswer::time(const ProgramPricer& pricer, bool book, bool trace, bool faults) const {
  StepPasses passes(programs_, routing_, pricer, options(faults));
  const sim::LockstepOptions lockstep{pricer.launch_ps(), pricer.overlap(programs_.first()->program)};
  Timed timed;
  sim::Lockstep clocks(passes.ranks(), lockstep);
  std::vector<std::vector<sim::LockstepTrace>> traces;
  sim::LockstepWatch watch;
  watch.traces = &traces;
  if (trace) clocks.watch(&watch);
  for (const PipelineSlot& slot : slots()) {
    if (!trace) {
      passes.run(0, slot, clocks);
      continue;
    }
    const auto programs = passes.programs_of(0, slot);
    passes.run(0, slot, clocks);
    for (std::size_t c = 0; c < programs.size(); ++c)
      for (std::size_t p = 0; p < programs[c].size(); ++p) {
        const StepPasses::Ran& ran = programs[c][p];
        std::shared_ptr<const void> held = programs_.dense();
        if (ran.dispatcher) held = programs_.first();
        timed.traces.push_back(
            {std::move(held), ran.program, ran.forward, ran.dispatcher, std::move(traces[c][p])});
      }
  }
  timed.total_ps = clocks.end();
  timed.critical_rank = clocks.last_rank();
  if (!book) return timed;
  sim::Lockstep again(passes.ranks(), lockstep);
  sim::LockstepWatch rank;
  rank.rank = timed.critical_rank;
  again.watch(&rank);
  for (const PipelineSlot& slot : slots()) passes.run(0, slot, again);
  sim::book(rank.spans, sim::Time::from_ps(timed.total_ps), timed.booked);
  return timed;
}

void LayerAnswer::report(const ProgramPricer& pricer, DomainReport& into) const {
  StepPasses(programs_, routing_, pricer, options(false)).report(into);
}

}  // namespace moesim::models
