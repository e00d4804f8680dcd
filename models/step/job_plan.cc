#include "models/step/job_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/input_error.h"
#include "models/hardware/cluster.h"
#include "models/step/layer_programs.h"
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

// The forward passes of a schedule, in its order.
std::vector<std::vector<PipelineSlot>> forward_only(std::vector<std::vector<PipelineSlot>> schedule) {
  for (std::vector<PipelineSlot>& stage : schedule)
    std::erase_if(stage, [](const PipelineSlot& slot) { return slot.kind != PipelineSlot::Kind::kForward; });
  return schedule;
}

std::vector<Chunk> chunks_of(const Scenario& s) {
  const LayerFlops flops = flops_of_layers(s.model, s.parallel.seq, s.topk);
  return cut_into_chunks(s.model, s.parallel, flops.layers, 0, flops.head);
}

// The plan with the ranks that shard under HSDP: those of one node where nobody says.
TrainingPlan with_shard_group(const Scenario& s) {
  TrainingPlan plan = s.training;
  if (plan.sharding == ShardingScheme::kHsdp && plan.shard_group == 0)
    plan.shard_group = Placement(s).dense_replicas().per_domain();
  return plan;
}

}  // namespace

JobPlan::JobPlan(const Scenario& s, bool overlaps_batches) : shape(shape_of(s)), chunks(chunks_of(s)) {
  shape.overlapped = shape.overlapped || overlaps_batches;
  if (!s.train) {
    shape.kind = PipelineKind::k1F1B;
    shape.overlapped = false;
  }
  schedule = pipeline_schedule(shape);
  if (!s.train) schedule = forward_only(std::move(schedule));
}

StepMemory memory_of(const Scenario& s, const JobPlan& plan, const LayerPrograms& programs,
                     const JobRouting& routing) {
  Architecture held = s.model;
  held.experts = programs.experts();
  const TrainingPlan training = with_shard_group(s);
  return step_memory({&held, s.parallel, &training, &programs.first()->program, !routing.shared(),
                      &plan.chunks, &plan.schedule, s.cluster->profile.device().memory_bytes, s.train,
                      s.seed});
}

std::vector<double> kept_by_pass(const Scenario& s, const JobPlan& plan, const LayerPrograms& programs) {
  Architecture held = s.model;
  held.experts = programs.experts();
  return kept_by_pass({&held, s.parallel, &s.training, &programs.first()->program, false, &plan.chunks,
                       &plan.schedule, s.cluster->profile.device().memory_bytes, s.train, s.seed});
}

StepMemory memory_of(const Scenario& s, const JobPlan& plan) {
  const TrainingPlan training = with_shard_group(s);
  return step_memory({&s.model, s.parallel, &training, nullptr, false, &plan.chunks, &plan.schedule,
                      s.cluster->profile.device().memory_bytes, s.train, s.seed});
}

}  // namespace moesim::models
