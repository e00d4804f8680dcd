#include "models/step/layer_forecast.h"

#include <algorithm>

#include "base/check.h"
#include "models/step/contention.h"
#include "models/step/training_flops.h"
#include "sim/run/booking.h"
#include "sim/run/lockstep_graph.h"
#include "sim/run/simulator.h"

namespace moesim::models {

LayerForecaster::LayerForecaster(const Scenario& scenario, const LayerPrograms& programs,
                                 const JobRouting& routing, const std::optional<RankFaults>& faults,
                                 const Contention* contention)
    : s_(scenario), programs_(programs), routing_(routing), faults_(faults), contention_(contention) {
  const auto kinds = programs.kind_of_layer();
  for (std::size_t layer = 0; layer < kinds.size(); ++layer) {
    const LayerKind& kind = programs.kinds()[kinds[layer]];
    // For a dense model, its first layer.
    if (kind.ffn != LayerKind::Ffn::kMoe && scenario.model.experts > 0) continue;
    chunks_.push_back({layer, {kind}, false, false});
    return;
  }
  check_failed("a model with experts has a layer with experts");
}

StepPasses::Options LayerForecaster::options(bool faults) const {
  StepPasses::Options o;
  o.chunks = &chunks_;
  o.full_recompute = s_.training.recompute.full;
  o.all_ranks = true;
  o.contention = contention_;
  if (faults && faults_) o.faults.assign(1, faults_);
  return o;
}

// Forward, then backward; together where the dispatcher overlaps two batches.
std::vector<PipelineSlot> LayerForecaster::slots() const {
  if (!s_.train) return {{PipelineSlot::Kind::kForward}};
  if (programs_.first()->program.overlaps_batches) return {{PipelineSlot::Kind::kOverlapped}};
  return {{PipelineSlot::Kind::kForward}, {PipelineSlot::Kind::kBackward}};
}

sim::LockstepOptions LayerForecaster::clocks(const ProgramPricer& pricer) const {
  return {pricer.launch_ps(), pricer.overlap(programs_.first()->program)};
}

std::int64_t LayerForecaster::total_ps(const ProgramPricer& pricer, bool faults) const {
  StepPasses passes(programs_, routing_, pricer, options(faults));
  return run(passes, pricer).end();
}

sim::Lockstep LayerForecaster::run(StepPasses& passes, const ProgramPricer& pricer,
                                   sim::LockstepWatch* watch) const {
  sim::Lockstep lockstep(passes.ranks(), clocks(pricer));
  lockstep.watch(watch);
  for (const PipelineSlot& slot : slots()) passes.run(0, slot, lockstep);
  return lockstep;
}

std::shared_ptr<const LayerTrace> LayerForecaster::trace(const ProgramPricer& pricer) const {
  StepPasses passes(programs_, routing_, pricer, options(true));
  sim::LockstepGraph written(passes.ranks(), {clocks(pricer), {}, nullptr});
  auto trace = std::make_shared<LayerTrace>();
  trace->ranks = passes.ranks();
  for (const PipelineSlot& slot : slots()) {
    const StepPasses::Slot runs = passes.runs_of(0, slot);
    sim::LockstepGraph::Tasks tasks = written.run(
        runs.chains, runs.order,
        [&](std::size_t c, std::size_t p, std::size_t op) { return runs.passes[c][p].ops()[op].name; });
    for (std::size_t c = 0; c < tasks.size(); ++c)
      for (std::size_t p = 0; p < tasks[c].size(); ++p) {
        const ProgramPass& pass = runs.passes[c][p];
        std::shared_ptr<const void> held = programs_.dense();
        if (pass.dispatcher) held = programs_.first();
        trace->passes.push_back({pass, std::move(held), std::move(tasks[c][p])});
      }
  }
  trace->graph = written.finalize();
  trace->timeline = sim::run(trace->graph, written, {.detail = sim::Detail::times});
  return trace;
}

Forecast LayerForecaster::forecast(const ProgramPricer& nominal, std::span<const ProgramPricer> drawn,
                                   bool book, bool trace) const {
  const auto us = [](std::int64_t ps) { return static_cast<double>(ps) * 1e-6; };
  Forecast f;
  StepPasses passes(programs_, routing_, nominal, options(true));
  const sim::Lockstep lockstep = run(passes, nominal);
  f.time_us = Estimate::exact(us(lockstep.end()));
  f.critical_rank = lockstep.last_rank();
  if (book) {
    sim::LockstepWatch rank;
    rank.rank = f.critical_rank;
    run(passes, nominal, &rank);
    sim::RankSummary booked;
    sim::book(rank.spans, sim::Time::from_ps(lockstep.end()), booked);
    f.exposed_comm_us = booked.exposed_comm.us();
    for (std::size_t i = 0; i < sim::kCategories; ++i) f.breakdown_us[i] = booked.breakdown[i].us();
  }
  if (trace) f.layer = this->trace(nominal);
  f.healthy_us = faults_ ? us(total_ps(nominal, false)) : f.time_us.value;
  if (contention_)
    f.network =
        contention_->report(us(LayerForecaster(s_, programs_, routing_, faults_, nullptr).total_ps(nominal)));
  DomainReport report;
  if (faults_)
    StepPasses(programs_, routing_, nominal, options(false)).report(report);
  else
    passes.report(report);
  f.outside_domain = report.share();
  for (const std::string& warning : programs_.first()->program.warnings)
    f.warnings.push_back(programs_.dispatcher() + ": " + warning);
  const std::vector<std::string> outside = report.lines();
  f.warnings.insert(f.warnings.end(), outside.begin(), outside.end());
  f.unmeasured = report.unmeasured();
  for (const ProgramPricer& prices : drawn) f.draws_us.push_back(us(total_ps(prices)));
  count_work(f);
  return f;
}

void LayerForecaster::count_work(Forecast& f) const {
  const Program& program = programs_.first()->program;
  f.gpus = s_.parallel.dispatch_ranks();
  for (const std::int64_t tokens : program.tokens) f.tokens += static_cast<double>(tokens);
  if (program.tokens_replicated) f.tokens /= static_cast<double>(s_.parallel.ep);
  // Padding rows that equalise the shares of a sequence-parallel group are not tokens; a file's tokens are
  // exact.
  const Parallel& p = s_.parallel;
  if (s_.routing.kind != RoutingSpec::Kind::kFile)
    f.tokens *=
        static_cast<double>(p.micro_batch * p.seq) / static_cast<double>(p.tokens_per_rank() * p.tp * p.cp);
  f.dropped_share = dropped_share(program);
  const double passes = s_.train ? 1 : 1.0 / 3;
  const LayerFlops flops = flops_of_layers(s_.model, s_.parallel.seq, s_.topk);
  const auto kinds = programs_.kind_of_layer();
  for (std::size_t l = 0; l < kinds.size(); ++l) {
    if (programs_.kinds()[kinds[l]].ffn != LayerKind::Ffn::kMoe) continue;
    f.flops = f.tokens * flops.layers[l] * passes;
    break;
  }
  f.flops -= f.tokens * f.dropped_share * expert_flops_per_token(s_.model, s_.topk) * passes;
}

}  // namespace moesim::models
