#include "models/memory.h"

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
    const double shard_dense = plan.distributed_optimizer ? static_cast<double>(p.dp * p.cp) : 1;
    const double shard_experts =
        plan.distributed_optimizer ? static_cast<double>(std::max<std::int64_t>(1, p.edp())) : 1;
    const double in_flight =
        plan.train ? static_cast<double>(std::min<std::int64_t>(p.pp - stage, p.microbatches)) : 1;
    const auto [first, last] = stage_layers(a.layers, p.pp, stage);
    double moe = 0, dense = 0;
    for (std::int64_t layer = first; layer < last; ++layer) (a.is_moe_layer(layer) ? moe : dense) += 1;
    const double tokens = static_cast<double>(p.tokens_per_rank());
    const double dense_ffn = tokens * static_cast<double>((a.gated ? 3 : 2) * a.dense_ffn) * 2;
    for (int rank = 0; rank < program.ranks(); ++rank) {
      RankMemory m;
      m.parameters = (n.dense + n.experts) * plan.weight_bytes;
      if (plan.train) {
        m.gradients = (n.dense + n.experts) * plan.gradient_bytes;
        m.optimizer = (n.dense / shard_dense + n.experts / shard_experts) * plan.optimizer_bytes;
        m.activations = in_flight * (moe * static_cast<double>(dense_saved + program.saved_bytes[rank]) +
                                     dense * (static_cast<double>(dense_saved) + dense_ffn));
      }
      const std::int64_t kept = plan.train ? program.saved_bytes[rank] : 0;
      m.transient = static_cast<double>(
          std::max(program.peak_forward_bytes[rank], plan.train ? program.peak_backward_bytes[rank] : 0) -
          kept);
      if (stage == p.pp - 1)  // fp32 logits and their gradient
        m.transient =
            std::max(m.transient, tokens * static_cast<double>(a.vocabulary) * 4 * (plan.train ? 2 : 1));
      m.persistent = static_cast<double>(program.persistent_bytes);
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

}  // namespace moesim::models
