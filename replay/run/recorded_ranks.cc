#include "replay/run/recorded_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

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

// Computed and sent rows of a rank's experts in one unit: rows, or their elements.
struct Rows {
  std::int64_t received = 0, sent = 0;
};

std::int64_t elements_of(const Call& call) { return call.rows * call.row_elements; }

// Returns the rows of dispatch and combine in the MoE layers of a forward step, in order. Under tensor
// parallelism the experts compute the input of the reduction before combine: the rows of all ranks of the
// group, whether these were gathered after the exchange or travelled as columns of every row.
std::vector<Rows> layers_of(const Step& forward) {
  std::vector<Rows> layers;
  const Call *dispatch = nullptr, *reduction = nullptr;
  for (const Call& call : forward.calls) {
    if (dispatch != nullptr && call.group == GroupKind::tp &&
        (call.op == sim::CollectiveOp::reduce_scatter || call.op == sim::CollectiveOp::all_reduce))
      reduction = &call;
    if (!is_exchange(call)) continue;
    if (dispatch == nullptr) {
      dispatch = &call;
      continue;
    }
    layers.push_back(reduction == nullptr ? Rows{call.rows, dispatch->rows}
                                          : Rows{elements_of(*reduction), elements_of(*dispatch)});
    dispatch = reduction = nullptr;
  }
  return layers;
}

std::size_t gathered_layers(const Step& forward) {
  std::size_t count = 0;
  for (const Call& call : forward.calls)
    count += call.group == GroupKind::tp_expert &&
             (call.op == sim::CollectiveOp::reduce_scatter || call.op == sim::CollectiveOp::all_reduce);
  return count;
}

// Returns the rows by expert rank of a routing that is the same everywhere, and the rows that every rank
// sends; empty: unknown. Without a given routing uses the received rows of the places, with all ranks sending
// equally many.
std::vector<Rows> given_rows(const CleanJob* clean) {
  if (clean == nullptr || !clean->by_microbatch.empty()) return {};
  std::vector<Rows> rows(static_cast<std::size_t>(clean->topology.expert));
  if (!clean->routing) {
    std::int64_t all = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto place = clean->places.find({0, 0, static_cast<int>(r)});
      if (place == clean->places.end() || place->second.received_rows == 0) return {};
      all += rows[r].received = place->second.received_rows;
    }
    for (Rows& one : rows) one.sent = all / (clean->topology.tp * clean->topology.expert);
    return rows;
  }
  const std::vector<std::int64_t> totals = clean->routing->expert_totals();
  for (std::size_t e = 0; e < totals.size(); ++e)
    rows[e / (totals.size() / rows.size())].received += totals[e];
  for (std::size_t r = 0; r < rows.size(); ++r) rows[r].sent = clean->routing->rows(static_cast<int>(r));
  return rows;
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

std::optional<RecordedOverload> recorded_overload(const Topology& topology, std::span<const RankSteps> plans,
                                                  const CleanJob* clean) {
  const std::vector<Rows> given = given_rows(clean);
  const auto members = static_cast<std::size_t>(topology.tp * topology.expert);
  std::vector<models::OverloadStage> stages(static_cast<std::size_t>(topology.pp));
  for (auto& stage : stages) stage.replicas.resize(static_cast<std::size_t>(topology.expert_dp));
  for (const RankSteps& plan : plans) {
    const Coordinates at = topology.of(plan.rank);
    models::OverloadStage& stage = stages[static_cast<std::size_t>(at.pp)];
    auto& entries = stage.replicas[static_cast<std::size_t>(at.expert_dp)];
    const auto member = static_cast<std::size_t>(at.tp + topology.tp * at.expert);
    const bool first = member == 0 && at.expert_dp == 0;                 // whose order represents all
    std::map<int, std::pair<std::int32_t, std::int32_t>> of_microbatch;  // first entry and count
    std::int32_t next = 0;
    for (const Step& step : plan.steps) {
      if (step.kind == StepKind::forward) {
        std::vector<Rows> layers = layers_of(step);
        if (layers.empty() && !given.empty())
          layers.assign(gathered_layers(step), given[static_cast<std::size_t>(at.expert)]);
        of_microbatch[step.microbatch] = {next, static_cast<std::int32_t>(layers.size())};
        for (const Rows& rows : layers) {
          if (static_cast<std::size_t>(next) == entries.size())
            entries.push_back({std::vector<std::int64_t>(members, 0), std::vector<std::int64_t>(members, 0)});
          models::OverloadEntry& entry = entries[static_cast<std::size_t>(next)];
          entry.actual[member] = rows.received;
          // Every row is computed in slices by all ranks of a tensor-parallel group.
          entry.balanced[member] = rows.sent * topology.tp;
          if (first) stage.order.push_back({next, true});
          ++next;
        }
      } else if (step.kind == StepKind::backward && first) {
        const auto known = of_microbatch.find(step.microbatch);
        if (known == of_microbatch.end()) continue;
        for (std::int32_t i = known->second.second; i-- > 0;)
          stage.order.push_back({known->second.first + i, false});
      }
    }
  }
  RecordedOverload out;
  out.replicas = topology.expert_dp;
  for (const auto& stage : stages) out.entries += static_cast<std::int64_t>(stage.replicas.front().size());
  if (out.entries == 0) return std::nullopt;
  out.stages = models::overload_of(stages);
  out.logged = models::overload_of(stages, {.etp = topology.tp});
  return out;
}

}  // namespace moesim::replay
