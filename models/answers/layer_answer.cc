#include "models/answers/layer_answer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/input_error.h"
#include "models/costs/cluster_costs.h"
#include "models/step/layer_graph.h"
#include "sim/run/simulator.h"

namespace moesim::models {

LayerAnswer::LayerAnswer(const Scenario& scenario, const LayerPrograms& programs, const JobRouting& routing,
                         const std::optional<RankFaults>& faults)
    : s_(scenario), programs_(programs), routing_(routing), faults_(faults) {
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

// The job's dispatch groups, as many as stay cheap, the group that the programs are of among them.
std::vector<std::vector<std::int32_t>> LayerAnswer::flow_groups() const {
  const Placement& placement = programs_.placement();
  std::vector<std::vector<std::int32_t>> groups{programs_.where().gpus};
  for (std::int64_t stage = 0; stage < s_.parallel.pp; ++stage)
    for (std::vector<std::int32_t>& gpus : placement.dispatch_groups(stage)) {
      if ((groups.size() + 1) * gpus.size() > kMostFlowRanks) return groups;
      if (gpus != groups.front()) groups.push_back(std::move(gpus));
    }
  return groups;
}

LayerAnswer::FlowTimed LayerAnswer::time_on(const sim::Fabric& fabric, const ProgramPricer& pricer) const {
  if (programs_.first()->program.overlaps_batches)
    throw InputError(fmt::format("{}: found an overlap of two batches, expected none under timing flow",
                                 programs_.dispatcher()));
  const std::size_t kind = programs_.kind_of_layer()[chunks_.front().first];
  const Program &before = programs_.before(kind), &moe = programs_.first()->program,
                &after = programs_.after();
  const UnevenLoads none(before, programs_.shapes());
  std::vector<std::pair<const Program*, bool>> order{{&before, true}, {&moe, true}, {&after, true}};
  if (s_.train && s_.training.recompute.full)
    order.insert(order.end(), {{&before, true}, {&moe, true}, {&after, true}});
  if (s_.train) order.insert(order.end(), {{&after, false}, {&moe, false}, {&before, false}});
  std::vector<sim::LockstepProgram> priced;
  std::vector<PricedPass> passes;
  priced.reserve(order.size());
  for (const auto& [program, forward] : order) {
    const std::vector<Op>& pass = forward ? program->forward() : program->backward();
    priced.push_back(
        pricer.price(*program, pass, programs_.shapes(), program == &moe ? programs_.first()->loads : none));
    passes.push_back({program, &pass, &priced.back()});
  }
  FlowTimed timed;
  const int ranks = moe.ranks();
  const std::vector<std::vector<std::int32_t>> groups = flow_groups();
  timed.groups = static_cast<int>(groups.size());
  const sim::TaskGraph graph = layer_graph(passes, pricer.launch_ps(), groups);
  sim::RunOptions options;
  options.timing = sim::Timing::flow;
  options.fabric = &fabric;
  options.flow_window =
      flow_window(std::int64_t{timed.groups} * ranks * ranks);  // of one all-to-all of all groups
  const sim::Timeline timeline = sim::run(graph, ClusterCosts(*s_.cluster), options);
  timed.total_ps = timeline.iteration().ps();
  const auto critical = static_cast<std::int32_t>(timeline.critical_rank().value());
  for (const std::vector<std::int32_t>& gpus : groups)
    if (const auto at = std::find(gpus.begin(), gpus.end(), critical); at != gpus.end())
      timed.critical_rank = static_cast<int>(at - gpus.begin());
  timed.breakdown = timeline.breakdown();
  timed.busiest = busiest_link(timeline, fabric);
  return timed;
}

void LayerAnswer::report(const ProgramPricer& pricer, DomainReport& into) const {
  StepPasses(programs_, routing_, pricer, options(false)).report(into);
}

}  // namespace moesim::models
