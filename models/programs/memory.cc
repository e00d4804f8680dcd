#include "models/programs/memory.h"

#include <algorithm>

namespace moesim::models {

namespace {

// Layers [first, last) of a stage: as even as whole layers allow, the earlier stages taking the odd ones.
std::pair<std::int64_t, std::int64_t> stage_layers(std::int64_t layers, std::int64_t pp, std::int64_t stage) {
  const std::int64_t each = layers / pp, extra = layers % pp;
  const std::int64_t first = stage * each + std::min(stage, extra);
  return {first, first + each + (stage < extra ? 1 : 0)};
}

}  // namespace

StageParameters stage_parameters(const Architecture& a, const Parallel& p, int stage) {
  const auto tp = static_cast<double>(p.tp);
  const double H = static_cast<double>(a.hidden);
  const double matrices = a.gated ? 3 : 2;
  StageParameters n;
  const auto [first, last] = stage_layers(a.layers, p.pp, stage);
  for (std::int64_t layer = first; layer < last; ++layer) {
    n.dense += static_cast<double>(a.attention.parameters(a.hidden)) / tp + 2 * H;
    if (a.is_moe_layer(layer)) {
      n.dense += H * static_cast<double>(a.experts) + matrices * H * static_cast<double>(a.shared_ffn) / tp;
      n.experts += static_cast<double>(a.parameters_per_expert()) * static_cast<double>(a.experts / p.ep) /
                   static_cast<double>(p.etp);
    } else {
      n.dense += matrices * H * static_cast<double>(a.dense_ffn) / tp;
    }
  }
  const double table = static_cast<double>(a.vocabulary) * H / tp;
  if (stage == 0) n.dense += table;
  if (stage == p.pp - 1 && !(a.tied_embeddings && p.pp == 1)) n.dense += table + H;
  return n;
}

MemoryForecast forecast_memory(const Architecture& a, const Parallel& p, const Program& program,
                               std::int64_t dense_saved, double limit, const MemoryPlan& plan) {
  MemoryForecast forecast;
  forecast.limit_bytes = limit;
  for (int stage = 0; stage < p.pp; ++stage) {
    if (stage > 0 && stage < p.pp - 1 && p.pp > 3)
      continue;  // the first stage keeps most, the last has the head
    const StageParameters n = stage_parameters(a, p, stage);
    const std::int64_t all_dense = p.dp * p.cp, all_experts = std::max<std::int64_t>(1, p.edp());
    const auto shards = [&](std::int64_t group) {
      if (plan.sharding == ShardingScheme::kDdp) return 1.0;
      return static_cast<double>(plan.sharding == ShardingScheme::kHsdp ? std::min(group, plan.shard_group)
                                                                        : group);
    };
    const double shard_dense = shards(all_dense), shard_experts = shards(all_experts);
    const bool weights_sharded =
        plan.sharding == ShardingScheme::kFsdp || plan.sharding == ShardingScheme::kHsdp;
    const double kept_weights =
        weights_sharded ? n.dense / shard_dense + n.experts / shard_experts : n.dense + n.experts;
    // Batch-level overlap has the forward of one more microbatch under way.
    const double in_flight = plan.train
                                 ? static_cast<double>(std::min<std::int64_t>(
                                       p.pp - stage + (program.overlaps_batches ? 1 : 0), p.microbatches))
                                 : 1;
    const auto [first, last] = stage_layers(a.layers, p.pp, stage);
    double moe = 0, dense = 0;
    for (std::int64_t layer = first; layer < last; ++layer) (a.is_moe_layer(layer) ? moe : dense) += 1;
    const double tokens = static_cast<double>(p.tokens_per_rank());
    const double dense_ffn = tokens * static_cast<double>((a.gated ? 3 : 2) * a.dense_ffn) * 2;
    for (int rank = 0; rank < program.ranks(); ++rank) {
      RankMemory m;
      m.parameters = kept_weights * plan.weight_bytes;
      if (plan.train) {
        m.gradients = kept_weights * plan.gradient_bytes;
        m.optimizer = (n.dense / shard_dense + n.experts / shard_experts) * plan.optimizer_bytes;
        m.activations = in_flight * (moe * static_cast<double>(dense_saved + program.saved_bytes[rank]) +
                                     dense * (static_cast<double>(dense_saved) + dense_ffn));
      }
      const std::int64_t kept = plan.train ? program.saved_bytes[rank] : 0;
      const std::int64_t forward = program.peak_forward_bytes[rank] - kept,
                         backward = plan.train ? program.peak_backward_bytes[rank] - kept : 0;
      m.transient =
          static_cast<double>(program.overlaps_batches ? forward + backward : std::max(forward, backward));
      if (weights_sharded)  // the gathered weights of one layer
        m.transient += (n.dense * (1 - 1 / shard_dense) + n.experts * (1 - 1 / shard_experts)) /
                       std::max(1.0, moe + dense) * plan.weight_bytes;
      if (stage == p.pp - 1)  // fp32 logits and their gradient
        m.transient =
            std::max(m.transient, tokens * static_cast<double>(a.vocabulary) * 4 * (plan.train ? 2 : 1));
      m.persistent = static_cast<double>(program.persistent_bytes);
      if (m.total() > limit && forecast.first_rank < 0) {
        forecast.first_rank = rank;
        forecast.first_stage = stage;
        forecast.first_missing_bytes = m.total() - limit;
      }
      if (m.total() > forecast.max_bytes) {
        forecast.max_bytes = m.total();
        forecast.worst = m;
        forecast.rank = rank;
        forecast.stage = stage;
      }
    }
  }
  forecast.fits = forecast.max_bytes <= limit;
  forecast.missing_bytes = std::max(0.0, forecast.max_bytes - limit);
  return forecast;
}

std::vector<MemoryPoint> memory_of_layer(const Program& program, int rank, const RankMemory& whole,
                                         bool train) {
  const double saved = train ? static_cast<double>(program.saved_bytes[static_cast<std::size_t>(rank)]) : 0;
  double level = whole.total() - whole.transient - saved;
  std::vector<MemoryPoint> points;
  const auto walk = [&](const std::vector<Op>& pass, bool forward) {
    for (std::size_t i = 0; i < pass.size(); ++i) {
      const Op& op = pass[i];
      if (op.kind != OpKind::kAllocate && op.kind != OpKind::kFree) continue;
      const auto bytes = static_cast<double>(program.value(op.bytes, rank));
      level += op.kind == OpKind::kAllocate ? bytes : -bytes;
      points.push_back({forward, static_cast<std::int32_t>(i), op.name, level});
    }
  };
  points.push_back({true, -1, "everything but this layer", level});
  walk(program.forward(), true);
  if (!train) return points;
  walk(program.backward(), false);
  points.push_back(
      {false, static_cast<std::int32_t>(program.backward().size()), "saved by forward", level - saved});
  return points;
}

}  // namespace moesim::models
