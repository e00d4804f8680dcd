#include "models/step/pipeline_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/input_error.h"
#include "models/costs/program_prices.h"
#include "models/costs/recipe.h"
#include "models/hardware/cluster.h"
#include "models/step/layer_programs.h"
#include "models/step/step_passes.h"
#include "models/step/training_flops.h"
#include "models/workload/placement.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMostPasses = std::int64_t{1} << 24;  // a second of work, a gigabyte of schedule

PipelineShape shape_of(const Scenario& s) {
  const Parallel& p = s.parallel;
  if (p.pp > kMostPasses || p.vpp > kMostPasses ||
      p.pp * p.vpp > kMostPasses / std::max<std::int64_t>(1, p.microbatches))
    throw InputError(
        fmt::format("parallel: found pp {} x vpp {} x {} microbatches, expected at most 2^24 passes", p.pp,
                    p.vpp, p.microbatches));
  PipelineShape shape;
  shape.stages = static_cast<int>(p.pp);
  shape.virtual_stages = static_cast<int>(p.vpp);
  shape.microbatches = static_cast<int>(p.microbatches);
  shape.kind = s.training.pipeline;
  shape.overlapped = s.training.overlap.expert_communication && p.dispatch_ranks() > 1;
  return shape;
}

// Returns the forward passes of a schedule, in its order.
std::vector<std::vector<PipelineSlot>> forward_only(std::vector<std::vector<PipelineSlot>> schedule) {
  for (std::vector<PipelineSlot>& stage : schedule)
    std::erase_if(stage, [](const PipelineSlot& slot) { return slot.kind != PipelineSlot::Kind::kForward; });
  return schedule;
}

std::vector<Chunk> cut_by_flops(const Scenario& s) {
  const LayerFlops flops = is_cut_evenly(s.model, s.parallel)
                               ? LayerFlops{}
                               : flops_of_layers(s.model, s.parallel.seq, s.topk, s.training.lora);
  return cut_into_chunks(s.model, s.parallel, flops.layers, 0, flops.head);
}

std::vector<Chunk> cut_by_time(const Scenario& s, const LayerPrograms& programs, const JobRouting& routing) {
  if (is_cut_evenly(s.model, s.parallel)) return cut_by_flops(s);
  const ProgramPricer pricer(*s.cluster, Recipe::of(s.training, s.parallel.world()));
  const std::vector<Chunk> none;
  StepPasses::Options options;
  options.chunks = &none;
  options.full_recompute = s.training.recompute.full;
  StepPasses passes(programs, routing, pricer, std::move(options));
  const auto both = [&](const StepPasses::Times& times) {
    return static_cast<double>(times.forward + (s.train ? times.backward : 0));
  };
  const double head = both(passes.head_times());
  std::vector<double> of_kind, layers;
  for (std::size_t kind = 0; kind < programs.kinds().size(); ++kind)
    of_kind.push_back(both(passes.layer_times(kind, 0, 0)) + (programs.kinds()[kind].mtp ? head : 0));
  for (const std::size_t kind : programs.kind_of_layer()) layers.push_back(of_kind[kind]);
  return cut_into_chunks(s.model, s.parallel, layers, both(passes.embedding_times()), head);
}

// Sets HSDP's shard group where it is not given: the ranks of one node.
TrainingSettings with_shard_group(const Scenario& s) {
  TrainingSettings plan = s.training;
  if (plan.sharding == ShardingScheme::kHsdp && plan.shard_group == 0)
    plan.shard_group = Placement(s).dense_replicas().per_domain();
  return plan;
}

}  // namespace

PipelineLayout::PipelineLayout(const Scenario& s, const LayerPrograms& programs, const JobRouting& routing)
    : PipelineLayout(programs.first()->program.overlaps_batches, s) {
  chunks = cut_by_time(s, programs, routing);
}

PipelineLayout::PipelineLayout(const Scenario& s, bool overlaps_batches)
    : PipelineLayout(overlaps_batches, s) {
  chunks = cut_by_flops(s);
}

PipelineLayout::PipelineLayout(bool overlaps_batches, const Scenario& s) : shape(shape_of(s)) {
  shape.overlapped = shape.overlapped || overlaps_batches;
  if (!s.train) {
    shape.kind = PipelineKind::k1F1B;
    shape.overlapped = false;
  }
  schedule = pipeline_schedule(shape);
  if (!s.train) schedule = forward_only(std::move(schedule));
}

StepMemory memory_of(const Scenario& s, const PipelineLayout& plan, const LayerPrograms& programs,
                     const JobRouting& routing) {
  Architecture held = s.model;
  held.experts = programs.experts();
  const TrainingSettings training = with_shard_group(s);
  return step_memory({&held, s.parallel, &training, &programs.first()->program, !routing.shared(),
                      &plan.chunks, &plan.schedule, s.cluster->profile.device().memory_bytes, s.train,
                      s.seed});
}

std::vector<double> kept_by_pass(const Scenario& s, const PipelineLayout& plan,
                                 const LayerPrograms& programs) {
  Architecture held = s.model;
  held.experts = programs.experts();
  return kept_by_pass({&held, s.parallel, &s.training, &programs.first()->program, false, &plan.chunks,
                       &plan.schedule, s.cluster->profile.device().memory_bytes, s.train, s.seed});
}

StepMemory memory_of(const Scenario& s, const PipelineLayout& plan) {
  const TrainingSettings training = with_shard_group(s);
  return step_memory({&s.model, s.parallel, &training, nullptr, false, &plan.chunks, &plan.schedule,
                      s.cluster->profile.device().memory_bytes, s.train, s.seed});
}

}  // namespace moesim::models
