#include "replay/run/recorded_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>

#include "base/input_error.h"
#include "models/dispatchers/dispatcher.h"
#include "models/step/pipeline_layout.h"
#include "models/workload/scenario.h"

namespace moesim::replay {

namespace {

using models::Program;

models::Scenario scenario_of(const JobModel& job, const models::DispatcherSpec& dispatcher,
                             const models::Cluster& cluster, int microbatches) {
  models::Scenario s;
  s.scope = models::Scenario::Scope::kStep;
  s.model = job.architecture;
  s.parallel = job.topology.parallel();
  s.parallel.seq = job.seq;
  s.parallel.micro_batch = job.micro_batch;
  s.parallel.microbatches = microbatches;
  for (const char* path : {"parallel.dp", "parallel.etp", "parallel.microbatches", "training.sharding"})
    s.give(path);
  s.training.sharding = models::ShardingScheme::kDdp;
  s.dispatchers = {dispatcher};
  s.cluster = std::make_shared<const models::Cluster>(cluster);
  s.resolve();
  return s;
}

// The steps in which a stage holds most, by the memory model's name of the moment.
StepKind kind_at(std::string_view moment) {
  if (moment == "forward") return StepKind::forward;
  if (moment == "loss") return StepKind::loss;
  return moment == "optimizer step" ? StepKind::optimizer : StepKind::backward;
}

// Returns the program with kept memory on one rank only, so that the model takes it for the fullest.
Program only(const Program& program, std::size_t rank) {
  Program one = program;
  for (auto* bytes : {&one.saved_bytes, &one.peak_forward_bytes, &one.peak_backward_bytes})
    for (std::size_t r = 0; r < bytes->size(); ++r)
      if (r != rank) (*bytes)[r] = 0;
  return one;
}

}  // namespace

const models::RankMemory& RecordedMemory::of(const Topology& topology, int rank) const {
  const Coordinates at = topology.of(rank);
  return ranks.at(static_cast<std::size_t>(at.pp))
      .at(static_cast<std::size_t>(at.tp + topology.tp * at.expert));
}

std::vector<std::pair<double, double>> RecordedMemory::over_time(const Iteration& iteration, int rank) const {
  const Coordinates at = iteration.topology.of(rank);
  const auto stage = static_cast<std::size_t>(at.pp),
             member = static_cast<std::size_t>(at.tp + iteration.topology.tp * at.expert);
  const models::RankMemory& held = ranks.at(stage).at(member);
  const double pass = kept.at(stage).at(member);
  const StepKind fullest = kind_at(step.stages.at(stage).moment);
  double level = held.parameters + held.gradients + held.optimizer + held.persistent;
  std::vector<std::pair<double, double>> points{{0, level}};
  for (const StepSpan& span : iteration.spans) {
    if (span.rank != rank) continue;
    if (span.kind == StepKind::forward) level += pass;
    const double working = span.kind == fullest ? held.transient : 0;
    if (span.kind == StepKind::forward || working > 0) points.emplace_back(span.start_us, level + working);
    if (span.kind == StepKind::backward) level -= pass;
    if (span.kind == StepKind::backward || working > 0) points.emplace_back(span.end_us, level);
  }
  return points;
}

RecordedMemory recorded_memory(const JobModel& job, const models::DispatcherSpec& spec,
                               const models::Cluster& cluster, int microbatches) {
  const models::Scenario s = scenario_of(job, spec, cluster, microbatches);
  const models::MoeLayer layer = job.moe_layer(cluster.gpus_per_node);
  const auto dispatcher = models::make_dispatcher(spec);
  if (const auto rule = models::rule_against(*dispatcher, layer))
    throw InputError(fmt::format("dispatcher {}: {}", spec.text(), *rule));
  const Program program = dispatcher->build(layer);
  const models::PipelineLayout plan(s, program.overlaps_batches);
  const auto question = [&](const Program& of) {
    return models::MemoryQuestion{
        &s.model, s.parallel,   &s.training,    &of,
        false,    &plan.chunks, &plan.schedule, cluster.profile.device().memory_bytes,
        true,     s.seed};
  };
  RecordedMemory out;
  out.dispatcher = spec.text();
  out.step = models::step_memory(question(program));
  out.ranks.resize(static_cast<std::size_t>(job.topology.pp));
  out.kept.resize(out.ranks.size());
  for (std::size_t r = 0; r < program.saved_bytes.size(); ++r) {
    const Program own = only(program, r);
    const models::StepMemory one = models::step_memory(question(own));
    const std::vector<double> passes = models::kept_by_pass(question(own));  // a chunk is a stage here
    for (std::size_t stage = 0; stage < out.ranks.size(); ++stage) {
      out.ranks[stage].push_back(one.stages.at(stage).bytes);
      out.kept[stage].push_back(passes.at(stage));
    }
  }
  return out;
}

}  // namespace moesim::replay
