#include "models/step/step_memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moesim::models {

namespace {

// Held by the CUDA context, NCCL's buffers, cuBLAS workspaces and the allocator's fragmentation: 4 GB plus 5
// % of what is used (Megatron-LM's --log-memory-to-tensorboard reports of reserved against allocated lie
// there).
constexpr double kFramework = 4e9;
constexpr double kFragmentation = 1.05;

// What one rank keeps of a layer until backward, without what the dispatcher's program keeps.
double activations_of(const Architecture& a, const Parallel& p, const TrainingPlan& plan,
                      const LayerKind& kind) {
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
  if (kind.ffn == LayerKind::Ffn::kMoe) {
    bytes += ffn_inputs + T * static_cast<double>(a.experts) * 4;
    if (a.shared_ffn > 0 && !again.shared && !again.moe)
      bytes += all * up * static_cast<double>(a.shared_ffn) / tp * kBf16Bytes;
  }
  return bytes;
}

// What the dispatcher's programs of several MoE layers keep on the busiest rank: layers that route
// independently of each other do not all overload the same one, so that what it has above the mean grows with
// the root of their number.
class KeptRows {
 public:
  KeptRows(const Program* program, const TrainingPlan& plan, bool independent) : independent_(independent) {
    if (!program || program->saved_bytes.empty() || plan.recompute.full) return;
    // Rows and activations are kept as the products read them.
    const double kept = plan.gemm == DType::kBf16 ? 1.0 : 0.75;
    const auto& saved = program->saved_bytes;
    mean_ = kept * static_cast<double>(std::accumulate(saved.begin(), saved.end(), std::int64_t{0})) /
            static_cast<double>(saved.size());
    above_ = kept * static_cast<double>(*std::max_element(saved.begin(), saved.end())) - mean_;
  }
  double bytes(double layers) const {
    return layers * mean_ + (independent_ ? std::sqrt(layers) : layers) * above_;
  }

 private:
  bool independent_;
  double mean_ = 0, above_ = 0;
};

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

StepMemory step_memory(const MemoryQuestion& q) {
  const Architecture& a = *q.model;
  const Parallel& p = q.parallel;
  const TrainingPlan& plan = *q.plan;
  const Program* const program = q.program;
  const std::vector<Chunk>& chunks = *q.chunks;
  StepMemory result;
  const KeptRows rows(program, plan, q.independent_layers);
  result.limit_bytes = (q.gpu_bytes - kFramework) / kFragmentation;
  if (program && !program->saved_bytes.empty())
    result.rank =
        static_cast<int>(std::max_element(program->saved_bytes.begin(), program->saved_bytes.end()) -
                         program->saved_bytes.begin());
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
    double all_chunks = 0, moe_layers = 0;
    const auto add = [&](const Chunk& chunk) {
      const StageParameters part = chunk_parameters(a, p, chunk);
      n.dense += part.dense;
      n.experts += part.experts;
      double bytes = 0;
      double with_experts = 0;
      for (const LayerKind& kind : chunk.layers) {
        bytes += activations_of(a, p, plan, kind);
        with_experts += kind.ffn == LayerKind::Ffn::kMoe ? 1 : 0;
      }
      heaviest = std::max(heaviest, bytes + rows.bytes(with_experts));
      all_chunks += bytes;
      moe_layers += with_experts;
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
    const double count = static_cast<double>(q.in_flight[static_cast<std::size_t>(stage)]);
    const double mean = (all_chunks + rows.bytes(moe_layers)) / static_cast<double>(dual ? 2 : p.vpp);
    m.activations = std::max(heaviest, mean * count);
    if (!q.train) m.gradients = m.optimizer = m.activations = 0;
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
    if (m.total() > result.limit_bytes && result.fits)
      result.fits = false, result.first_stage = static_cast<int>(stage);
    if (m.total() > result.max_bytes) {
      result.max_bytes = m.total();
      result.worst = m;
      result.stage = static_cast<int>(stage);
    }
  }
  result.missing_bytes = std::max(0.0, result.max_bytes - result.limit_bytes);
  return result;
}

}  // namespace moesim::models
