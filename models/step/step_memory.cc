#include "models/step/step_memory.h"

#include <algorithm>

namespace moesim::models {

namespace {

// Held by the CUDA context, NCCL's buffers, cuBLAS workspaces and the allocator's fragmentation: 4 GB plus 5
// % of what is used (Megatron-LM's --log-memory-to-tensorboard reports of reserved against allocated lie
// there).
constexpr double kFramework = 4e9;
constexpr double kFragmentation = 1.05;

double activations_of(const Architecture& a, const Parallel& p, const TrainingPlan& plan,
                      const LayerKind& kind, const Program* program) {
  const double T = static_cast<double>(p.tokens_per_rank()), all = T * static_cast<double>(p.tp);
  const double h = static_cast<double>(a.hidden), tp = static_cast<double>(p.tp);
  const StepRecompute& again = plan.recompute;
  if (again.full) return T * h * kBf16Bytes;
  // Converted copies that products keep are one byte instead of two.
  const double kept = plan.gemm == DType::kBf16 ? kBf16Bytes : 1;
  double bytes = 0;
  if (kind.mixer == LayerKind::Mixer::kMamba) {
    const double inner = static_cast<double>(a.mamba.inner()) / tp;
    const double columns = static_cast<double>(a.mamba.input_columns()) / tp;
    bytes +=
        T * h * (again.norms ? kBf16Bytes : kBf16Bytes + kept) + all * (columns + 2 * inner) * kBf16Bytes;
  } else if (kind.mixer != LayerKind::Mixer::kNone) {
    const Attention& t = a.attention;
    const double heads = static_cast<double>(t.heads) / tp;
    const double score = heads * static_cast<double>(t.score_dim()),
                 value = heads * static_cast<double>(t.output_dim());
    bytes += T * h * (again.norms ? kBf16Bytes : kBf16Bytes + kept);  // residual stream and the norm's output
    double qkv = 0;
    if (t.kind == Attention::Kind::kLatent) {
      bytes += all * static_cast<double>(t.q_rank + t.kv_rank) * (kBf16Bytes + kept);
      qkv = again.latent ? 0 : 2 * score + value;
    } else {
      const double kv = static_cast<double>(t.kv_heads) / std::min(tp, static_cast<double>(t.kv_heads));
      qkv = score + 2 * kv * static_cast<double>(t.head_dim);
    }
    bytes += all * qkv * kBf16Bytes;
    bytes += all * (again.attention ? 0 : value * kBf16Bytes + heads * 4);  // output and log-sums
  }
  const double ffn_inputs = T * h * (again.norms ? kBf16Bytes : kBf16Bytes + kept);
  const double up = a.gated ? 3 : 2;
  if (kind.ffn == LayerKind::Ffn::kDense)
    bytes += ffn_inputs + all * (again.dense ? 0 : up * static_cast<double>(a.dense_ffn) / tp) * kBf16Bytes;
  if (kind.ffn == LayerKind::Ffn::kMoe && program) {
    bytes += ffn_inputs + T * static_cast<double>(a.experts) * 4;
    const std::int64_t most = *std::max_element(program->saved_bytes.begin(), program->saved_bytes.end());
    // Rows and activations are kept as the products read them.
    bytes += static_cast<double>(most) * (plan.gemm == DType::kBf16 ? 1.0 : 0.75);
    if (a.shared_ffn > 0 && !again.shared && !again.moe)
      bytes += all * up * static_cast<double>(a.shared_ffn) / tp * kBf16Bytes;
  }
  return bytes;
}

}  // namespace

StageParameters chunk_parameters(const Architecture& a, const Parallel& p, const Chunk& chunk) {
  const auto tp = static_cast<double>(p.tp);
  const double H = static_cast<double>(a.hidden), matrices = a.gated ? 3 : 2;
  StageParameters n;
  for (const LayerKind& kind : chunk.layers) {
    n.dense += 2 * H;
    if (kind.mtp) n.dense += 2 * H * H;
    if (kind.mixer == LayerKind::Mixer::kMamba)
      n.dense += static_cast<double>(a.mamba.parameters(a.hidden)) / tp;
    else if (kind.mixer != LayerKind::Mixer::kNone)
      n.dense += static_cast<double>(a.attention.parameters(a.hidden)) / tp;
    if (kind.ffn == LayerKind::Ffn::kDense) n.dense += matrices * H * static_cast<double>(a.dense_ffn) / tp;
    if (kind.ffn == LayerKind::Ffn::kMoe) {
      n.dense += H * static_cast<double>(a.experts) + matrices * H * static_cast<double>(a.shared_ffn) / tp +
                 2 * H * static_cast<double>(a.latent);
      const double local = static_cast<double>(std::max<std::int64_t>(1, a.experts / p.ep));
      n.experts += static_cast<double>(a.parameters_per_expert()) * local / static_cast<double>(p.etp);
    }
  }
  const double table = static_cast<double>(a.vocabulary) * H / tp;
  if (chunk.embedding) n.dense += table;
  if (chunk.head && !(a.tied_embeddings && chunk.embedding)) n.dense += table + H;
  return n;
}

StepMemory step_memory(const Architecture& a, const Parallel& p, const TrainingPlan& plan,
                       const Program* program, const std::vector<Chunk>& chunks,
                       const std::vector<int>& in_flight, double gpu_bytes) {
  StepMemory result;
  result.limit_bytes = (gpu_bytes - kFramework) / kFragmentation;
  const bool dual = plan.pipeline == PipelineKind::kDualPipe;
  const auto dp = static_cast<double>(p.dp * p.cp),
             edp = static_cast<double>(std::max<std::int64_t>(1, p.edp()));
  const bool fsdp = plan.sharding == ShardingScheme::kFsdp || plan.sharding == ShardingScheme::kHsdp;
  const double group = plan.sharding == ShardingScheme::kHsdp && plan.shard_group > 0
                           ? static_cast<double>(plan.shard_group)
                           : dp;
  for (std::int64_t stage = 0; stage < p.pp; ++stage) {
    RankMemory m;
    StageParameters n;
    double heaviest = 0, unit = 0;
    double all_chunks = 0;
    const auto add = [&](const Chunk& chunk) {
      const StageParameters part = chunk_parameters(a, p, chunk);
      n.dense += part.dense;
      n.experts += part.experts;
      double bytes = 0;
      for (const LayerKind& kind : chunk.layers) bytes += activations_of(a, p, plan, kind, program);
      heaviest = std::max(heaviest, bytes);
      all_chunks += bytes;
      unit = std::max(
          unit, (part.dense + part.experts) / std::max<double>(1, static_cast<double>(chunk.layers.size())));
      if (chunk.head)  // logits in bf16, their gradient in place, and fp32 row sums
        m.transient =
            std::max(m.transient, static_cast<double>(p.tokens_per_rank()) *
                                      static_cast<double>(a.vocabulary) * (kBf16Bytes + kBf16Bytes));
    };
    for (std::int64_t v = 0; v < p.vpp; ++v) add(chunks[static_cast<std::size_t>(v * p.pp + stage)]);
    if (dual) add(chunks[static_cast<std::size_t>(p.pp - 1 - stage)]);
    const double held = n.dense + n.experts;
    const double shards = fsdp ? 1 : 0;
    const double sharded =
        n.dense / (shards > 0 ? group : 1) + n.experts / (shards > 0 ? std::min(group, edp) : 1);
    // FSDP holds its shard and the unit at work (twice, for the prefetch).
    m.parameters = fsdp ? sharded * kBf16Bytes + 2 * unit * kBf16Bytes : held * kBf16Bytes;
    m.gradients = fsdp ? sharded * 4 + unit * 4 : held * 4;
    const bool spread = plan.sharding != ShardingScheme::kDdp;
    m.optimizer =
        (spread ? n.dense / dp + n.experts / edp : held) * static_cast<double>(plan.optimizer_bytes);
    // Chunks in flight: the mean chunk of the stage, at least its heaviest once.
    const double count = static_cast<double>(in_flight[static_cast<std::size_t>(stage)]);
    const double mean = all_chunks / static_cast<double>(dual ? 2 : p.vpp);
    m.activations = std::max(heaviest, mean * count);
    if (program)
      for (int r = 0; r < program->ranks(); ++r) {
        const auto i = static_cast<std::size_t>(r);
        const double peak = static_cast<double>(
            std::max(program->peak_forward_bytes[i],
                     program->peak_backward_bytes.empty() ? 0 : program->peak_backward_bytes[i]) -
            program->saved_bytes[i]);
        m.transient = std::max(m.transient, peak);
      }
    if (plan.recompute.full && program)  // one layer's activations while it is computed again
      m.transient +=
          static_cast<double>(*std::max_element(program->saved_bytes.begin(), program->saved_bytes.end()));
    m.persistent = program ? static_cast<double>(program->persistent_bytes) : 0;
    if (m.total() > result.max_bytes) {
      result.max_bytes = m.total();
      result.worst = m;
      result.stage = static_cast<int>(stage);
    }
  }
  result.fits = result.max_bytes <= result.limit_bytes;
  result.missing_bytes = std::max(0.0, result.max_bytes - result.limit_bytes);
  return result;
}

}  // namespace moesim::models
