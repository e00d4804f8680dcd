#include "replay/run/recorded_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/input_error.h"
#include "models/dispatchers/dispatcher.h"
#include "models/step/job_plan.h"
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

RecordedMemory recorded_memory(const JobModel& job, const models::DispatcherSpec& spec,
                               const models::Cluster& cluster, int microbatches) {
  const models::Scenario s = scenario_of(job, spec, cluster, microbatches);
  const models::MoeLayer layer = job.moe_layer(cluster.gpus_per_node);
  const auto dispatcher = models::make_dispatcher(spec);
  if (const auto rule = models::rule_against(*dispatcher, layer))
    throw InputError(fmt::format("dispatcher {}: {}", spec.text(), *rule));
  const Program program = dispatcher->build(layer);
  const models::JobPlan plan(s, program.overlaps_batches);
  const auto held = [&](const Program& of) {
    return models::step_memory({&s.model, s.parallel, &s.training, &of, false, &plan.chunks, &plan.schedule,
                                cluster.profile.device().memory_bytes, true, s.seed});
  };
  RecordedMemory out;
  out.dispatcher = spec.text();
  out.step = held(program);
  out.ranks.resize(static_cast<std::size_t>(job.topology.pp));
  for (std::size_t r = 0; r < program.saved_bytes.size(); ++r) {
    const models::StepMemory one = held(only(program, r));
    for (std::size_t stage = 0; stage < out.ranks.size(); ++stage)
      out.ranks[stage].push_back(one.stages.at(stage).bytes);
  }
  return out;
}

}  // namespace moesim::replay
