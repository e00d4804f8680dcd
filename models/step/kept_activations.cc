#include "models/step/kept_activations.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "models/programs/projections.h"
#include "models/workload/mixers.h"

namespace moesim::models {

namespace {

constexpr double kE5M6Bytes = 1.5;       // 12 bits: sign, 5 of exponent, 6 of mantissa
constexpr double kIndexBytes = 4;        // per index of a chosen token
constexpr double kScoredQueries = 4096;  // queries whose scores a framework holds at once; an estimate

// The sizes of one layer on one rank, in bytes of bf16 unless noted.
struct Sizes {
  Sizes(const Architecture& a, const Parallel& p, const TrainingSettings& plan, LayerKind::Mixer mixer)
      : tp(static_cast<double>(p.tp)),
        all(static_cast<double>(p.tokens_per_rank()) * tp),
        tokens(plan.sequence_parallel ? static_cast<double>(p.tokens_per_rank()) : all),
        hidden(static_cast<double>(a.hidden)),
        rows(tokens * hidden * kBf16Bytes) {
    if (is_attention(mixer)) {
      const AttentionCore core = attention_core(a, mixer, p.seq, p.tp);
      const auto columns = [](std::int64_t n, std::int64_t each) { return static_cast<double>(n * each); };
      heads = static_cast<double>(core.heads);
      score = columns(core.heads, core.score_dim);
      value = columns(core.heads, core.value_dim);
      gathered = core.gathered;
      // Gathered keys and values are the latent vectors, which are kept anyway. Unfused products keep the
      // keys and values of every head.
      const bool unfused = plan.attention != AttentionKernel::kFlash;
      const std::int64_t kv_heads = unfused && !plan.recompute.attention ? core.heads : core.kv_heads;
      keys = gathered ? 0 : columns(kv_heads, core.score_dim);
      values = gathered ? 0 : columns(kv_heads, core.value_dim);
      if (unfused) scores = all * heads * static_cast<double>(p.seq) * kBf16Bytes;
      projected = columns(core.heads, attention_of(a, mixer).output_dim());
      gate = columns(core.heads, attention_of(a, mixer).gate_dim);
      low_rank =
          columns(rank_share(attention_of(a, mixer).output_groups, p.tp), attention_of(a, mixer).output_rank);
    }
  }
  double tp, all, tokens, hidden;
  double rows;  // hidden states of a rank
  // Columns of the core's heads; of the output projection's input and its gate.
  double heads = 0, score = 0, value = 0, keys = 0, values = 0, projected = 0, gate = 0;
  double low_rank = 0;    // columns of a low-rank output
  double scores = 0;      // bytes of all scores, where they are written
  bool gathered = false;  // a sparse core over the latent vectors
};

// Returns the bytes per element of a product's input as kept.
double product_bytes(const TrainingSettings& plan) {
  return plan.gemm == DType::kBf16 ? kBf16Bytes : static_cast<double>(bytes_of(plan.gemm));
}

bool keeps_fp8(const TrainingSettings& plan) { return plan.activations == ActivationFormat::kFp8; }

// Returns the bytes per element of an activation's input as kept.
double activation_bytes(const TrainingSettings& plan) {
  return keeps_fp8(plan) ? product_bytes(plan) : kBf16Bytes;
}

class Kept {
 public:
  void add(std::string name, double bytes) {
    if (bytes > 0) tensors_.push_back({std::move(name), bytes});
  }
  std::vector<KeptTensor> take() { return std::move(tensors_); }

 private:
  std::vector<KeptTensor> tensors_;
};

void attention(Kept& kept, const Architecture& a, const Sizes& s, const TrainingSettings& plan,
               LayerKind::Mixer mixer) {
  const StepRecompute& again = plan.recompute;
  const Attention& t = attention_of(a, mixer);
  const double product = product_bytes(plan), core = plan.fp8_attention && s.scores == 0 ? 1 : kBf16Bytes;
  const bool latent = t.kind == Attention::Kind::kLatent;
  if (t.q_rank > 0 || latent) {
    const double down = static_cast<double>(t.q_rank + t.kv_rank), rope = static_cast<double>(t.rope_dim);
    kept.add("attention/latent vectors", s.all * (down + rope) * kBf16Bytes);
    if (!again.latent) kept.add("attention/normalised latent vectors", s.all * down * product);
  }
  if (t.qk_norm)
    kept.add("attention/queries and keys before their norm", s.all * (s.score + s.keys) * kBf16Bytes);
  // Projections of latent vectors may be recomputed: all of MLA's, the queries of others.
  const bool up_again = again.latent && (latent || t.q_rank > 0);
  kept.add("attention/queries, keys, values",
           up_again && latent ? 0 : s.all * ((up_again ? 0 : s.score) + s.keys + s.values) * core);
  for (const Compressor& c : compressors_of(a, mixer))
    kept.add("attention/compressor's input", s.all * static_cast<double>(2 * c.columns) * kBf16Bytes);
  if (has_indexer(a, mixer)) {
    kept.add("attention/indexer's queries and keys",
             s.all * static_cast<double>(t.index_heads * t.index_dim + t.index_key_columns()) * kBf16Bytes);
    kept.add("attention/chosen tokens",
             s.all * static_cast<double>(t.index_topk) / static_cast<double>(t.index_block) * kIndexBytes);
  }
  // The projection's input is the core's output: in bf16 one tensor, which recomputing the core does not
  // free. A gate, or a core on latent vectors, separates them.
  const bool one =
      (keeps_fp8(plan) || (plan.gemm == DType::kBf16 && core == kBf16Bytes)) && s.gate == 0 && !s.gathered;
  kept.add("attention/gate", s.all * s.gate * kBf16Bytes);
  kept.add("attention/input of the projection",
           s.all * s.projected * (keeps_fp8(plan) ? kE5M6Bytes : product));
  kept.add("attention/low-rank output", s.all * s.low_rank * product);
  if (!again.attention) {
    if (!one) kept.add("attention/output of the core", s.all * s.value * core);
    if (s.scores == 0) kept.add("attention/log-sums", s.all * s.heads * 4);
    kept.add("attention/probabilities", s.scores);
    if (plan.attention == AttentionKernel::kUnfusedDropout)
      kept.add("attention/dropout's mask and output", s.scores * (1 + 1 / kBf16Bytes));
  }
}

// Mamba-2's fused kernel keeps its input and the scan's output and convolves again in backward
// (mamba_split_conv1d_scan_combined of state-spaces/mamba); others keep more. The state is not kept: every
// sequence begins without one.
void state_space(Kept& kept, const StateMixer& m, const Sizes& s, const TrainingSettings& plan) {
  const auto bytes = [&](std::int64_t columns, double each) {
    return s.all * static_cast<double>(columns) / s.tp * each;
  };
  kept.add("state space/input projection's output", bytes(m.input, kBf16Bytes));
  kept.add("state space/scan's input", bytes(m.kept, kBf16Bytes));
  kept.add("state space/scan's output", bytes(m.inner, kBf16Bytes));
  kept.add("state space/input of the projection", bytes(m.inner, product_bytes(plan)));
}

// Whether the products of FFNs read what they multiply again in backward, for the gradient of a weight.
bool trains_ffn(const TrainingSettings& plan) {
  return plan.lora.rank == 0 || plan.lora.modules != Lora::Modules::kAttention;
}

void ffn(Kept& kept, const std::string& module, const Architecture& a, const Sizes& s,
         const TrainingSettings& plan, std::int64_t inner) {
  const double width = static_cast<double>(inner) / s.tp;
  kept.add(module + "/up projection's output", s.all * (a.gated ? 2 : 1) * width * activation_bytes(plan));
  if (trains_ffn(plan) && !keeps_fp8(plan))
    kept.add(module + "/activation", s.all * width * product_bytes(plan));
}

// Returns the blocks whose streams are recomputed from those of the first; 0: none are.
double recomputed_streams(const Architecture& a, const Parallel& p, const TrainingSettings& plan) {
  if (!plan.recompute.streams || a.residual.kind != Residual::Kind::kHyper) return 0;
  std::int64_t blocks = 0;
  for (const LayerKind& kind : layer_stack(a)) blocks += blocks_of(kind);
  return static_cast<double>(recomputed_blocks(a, std::max<std::int64_t>(1, blocks / p.pp)));
}

}  // namespace

double bytes_of(const std::vector<KeptTensor>& tensors) {
  double sum = 0;
  for (const KeptTensor& t : tensors) sum += t.bytes;
  return sum;
}

std::vector<KeptTensor> kept_by_layer(const Architecture& a, const Parallel& p, const TrainingSettings& plan,
                                      const LayerKind& kind) {
  const Sizes s(a, p, plan, kind.mixer);
  const StepRecompute& again = plan.recompute;
  Kept kept;
  if (again.full) {
    kept.add("layer/input", s.rows * static_cast<double>(residual_streams(a)));
    if (a.residual.group > 0)
      kept.add("layer/sum of its group", s.rows / static_cast<double>(a.residual.group));
    return kept.take();
  }
  if (again.operations) {
    kept.add("layer/input", s.rows * static_cast<double>(residual_streams(a)));
    double columns = 0;
    for (const Projections::Weight& w : every_second(a, kind, p.tp).kept) columns += static_cast<double>(w.n);
    kept.add("products/every second output", s.all * columns * kBf16Bytes);
    if (is_attention(kind.mixer)) {
      kept.add("attention/output of the core", s.all * s.value * kBf16Bytes);
      kept.add("attention/log-sums", s.all * s.heads * 4);
    }
    if (kind.ffn == LayerKind::Ffn::kMoe && p.ep > 1)
      kept.add("experts/rows of the combine",
               s.tokens * static_cast<double>(a.topk * a.expert_width()) * kBf16Bytes);
    return kept.take();
  }
  const double group = recomputed_streams(a, p, plan);
  const double streams =
      group > 0
          ? s.hidden * (1 + static_cast<double>(residual_streams(a)) / group)  // outputs of blocks beside
          : static_cast<double>(residual_work(a).kept);
  kept.add("residual/streams", s.tokens * blocks_of(kind) * streams * kBf16Bytes);
  // A recomputed row out of the streams is not kept.
  const double norm_input = group > 0 ? 0 : s.rows;
  const double normed = s.tokens * s.hidden * product_bytes(plan);
  if (kind.mtp) kept.add("MTP/joined streams", 3 * s.rows);
  if (plan.lora.rank > 0) {
    double adapters = 0;
    for (const Projections::Weight& w : layer_weights(a, kind, p.tp)) adapters += adapted(plan.lora, w);
    kept.add("adapters/rows between their products",
             s.all * adapters * static_cast<double>(plan.lora.rank) * kBf16Bytes);
  }
  if (kind.mixer != LayerKind::Mixer::kNone) {
    kept.add("norm/input of attention's norm", norm_input);
    if (!again.norms) kept.add("norm/output of attention's norm", normed);
    if (is_attention(kind.mixer))
      attention(kept, a, s, plan, kind.mixer);
    else
      state_space(kept, state_mixer(a, kind.mixer), s, plan);
  }
  if (kind.ffn == LayerKind::Ffn::kNone) return kept.take();
  kept.add("norm/input of the FFN's norm", norm_input);
  if (kind.ffn == LayerKind::Ffn::kDense) {
    if (!again.norms && trains_ffn(plan)) kept.add("norm/output of the FFN's norm", normed);
    if (!again.dense) ffn(kept, "dense FFN", a, s, plan, dense_ffn_of(a, kind));
    return kept.take();
  }
  kept.add("router/scores", s.tokens * static_cast<double>(a.experts + a.zero_experts) * 4);
  if (a.latent > 0 && !again.moe)
    kept.add("experts/output before the latent projection",
             s.tokens * static_cast<double>(a.latent) * kBf16Bytes);
  if (a.shared_ffn > 0 && !again.shared && !again.moe) {
    if (plan.gemm != DType::kBf16 && !again.norms && trains_ffn(plan))
      kept.add("shared expert/input", normed);
    ffn(kept, "shared expert", a, s, plan, a.shared_ffn);
  }
  return kept.take();
}

namespace {

constexpr std::string_view kRouterInput = "router input";

// Whether a tensor is the rows that experts multiply, or was before they were sorted. Programs that sort them free
// the earlier ones.
bool is_expert_input(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kNames{"expert input", "permuted rows", "received rows",
                                                          "gathered rows", "sorted rows"};
  return std::ranges::find(kNames, name) != kNames.end();
}

// Whether a program keeps a tensor for the gradients of weights alone. Frozen experts and a frozen router
// need no rows that they multiplied; adapters beside them do.
bool only_for_weights(std::string_view name, const TrainingSettings& plan) {
  if (plan.lora.rank == 0 || plan.lora.modules == Lora::Modules::kExperts) return false;
  return name == "fc2 input" || is_expert_input(name) || (name == kRouterInput && !trains_ffn(plan));
}

// Whether backward computes a program's kept tensor again besides the program's own recomputation: all but
// the rows that a collective brought, where only outputs of operations are kept.
bool again_outside(std::string_view name, const Program& program, const TrainingSettings& plan) {
  if (plan.recompute.operations) return !is_expert_input(name) || program.ep() == 1;
  return plan.recompute.norms && name == kRouterInput;
}

// Returns the bytes that fp8 saves in a program's kept tensors on a rank: the rows of an expert's two
// products, and of its activation.
double narrowed_by(const Program& program, std::size_t rank, const Architecture& a,
                   const TrainingSettings& plan) {
  if (plan.gemm == DType::kBf16 || plan.lora.rank > 0) return 0;
  const double inner = static_cast<double>(a.expert_ffn) / static_cast<double>(program.etp());
  const double columns = static_cast<double>(a.expert_width()) + (plan.recompute.activation ? 0 : inner);
  return static_cast<double>(program.computed_rows[rank]) *
         (columns * (kBf16Bytes - product_bytes(plan)) +
          inner * (a.gated ? 2 : 1) * (kBf16Bytes - activation_bytes(plan)));
}

// Returns whether the program recomputes the whole layer and keeps only its input.
bool keeps_input_only(const Program& program) {
  return std::any_of(program.forward().begin(), program.forward().end(),
                     [](const Op& op) { return op.kind == OpKind::kFree && op.name == "saved"; });
}

}  // namespace

double kept_bytes(const Program& program, int rank, const Architecture& a, const TrainingSettings& plan) {
  if (program.saved_bytes.empty() || plan.recompute.full) return 0;
  const auto r = static_cast<std::size_t>(rank);
  const auto saved = static_cast<double>(program.saved_bytes[r]);
  if (keeps_input_only(program)) return saved;
  double input = 0, frozen = 0, again = 0;
  for (const Op& op : program.forward()) {
    if (op.kind != OpKind::kAllocate && op.kind != OpKind::kFree) continue;
    const double sign = op.kind == OpKind::kAllocate ? 1 : -1;
    const double bytes = sign * static_cast<double>(program.value(op.bytes, rank));
    if (only_for_weights(op.name, plan))
      frozen += bytes;
    else if (again_outside(op.name, program, plan))
      again += bytes;
    else if (op.name == kRouterInput)
      input += bytes;
  }
  const double rows = saved - frozen - again - input;
  return input + rows - std::min(narrowed_by(program, r, a, plan), rows);
}

std::vector<KeptTensor> kept_by_program(const Program& program, int rank, const Architecture& a,
                                        const TrainingSettings& plan) {
  const auto r = static_cast<std::size_t>(rank);
  Kept kept;
  if (program.saved_bytes.empty() || plan.recompute.full) return {};
  if (keeps_input_only(program)) {
    kept.add("experts/layer input", static_cast<double>(program.saved_bytes[r]));
    return kept.take();
  }
  // Tensors that forward allocates and does not free, by name, in order.
  std::vector<std::pair<std::string_view, double>> open;
  for (const Op& op : program.forward()) {
    if (op.kind != OpKind::kAllocate && op.kind != OpKind::kFree) continue;
    const auto bytes = static_cast<double>(program.value(op.bytes, rank));
    const auto at = std::find_if(open.begin(), open.end(), [&](const auto& o) { return o.first == op.name; });
    if (at == open.end())
      open.emplace_back(op.name, op.kind == OpKind::kAllocate ? bytes : -bytes);
    else
      at->second += op.kind == OpKind::kAllocate ? bytes : -bytes;
  }
  std::erase_if(open, [&](const auto& o) {
    return only_for_weights(o.first, plan) || again_outside(o.first, program, plan);
  });
  double rows = 0;
  for (const auto& [name, bytes] : open)
    if (name != kRouterInput) rows += bytes;
  const double narrowed = std::min(narrowed_by(program, r, a, plan), rows);
  for (const auto& [name, bytes] : open) {
    const double share = name == kRouterInput || rows <= 0 ? 0 : narrowed * bytes / rows;
    kept.add("experts/" + std::string(name), bytes - share);
  }
  return kept.take();
}

double backward_transient(const Architecture& a, const Parallel& p, const TrainingSettings& plan,
                          const LayerKind& kind) {
  const Sizes s(a, p, plan, kind.mixer);
  // The gradient of the residual stream; with tensor parallelism also the gathered rows of two products, or a
  // gradient before its all-reduce.
  // Recomputed streams and rows of a group of blocks are there at once.
  const double stream =
      s.rows * static_cast<double>(residual_streams(a)) +
      (s.tp > 1 ? (plan.sequence_parallel ? 2 * s.tp : 1) * s.rows : 0) +
      s.rows * static_cast<double>(residual_streams(a) + 2) * recomputed_streams(a, p, plan);
  double most = 0;
  const auto of_ffn = [&](std::int64_t inner, bool again) {
    // The gradient of the up projection's output; kept tensors are freed as backward passes them.
    const double width = static_cast<double>(inner) / s.tp * kBf16Bytes * s.all;
    most = std::max(most, (a.gated ? 2 : 1) * width + (again ? (a.gated ? 3 : 2) * width : 0));
  };
  if (kind.ffn == LayerKind::Ffn::kDense) of_ffn(dense_ffn_of(a, kind), plan.recompute.dense);
  if (kind.ffn == LayerKind::Ffn::kMoe && a.shared_ffn > 0)
    of_ffn(a.shared_ffn, plan.recompute.shared || plan.recompute.moe);
  if (is_attention(kind.mixer)) {
    const bool again = plan.recompute.latent && a.attention.kind == Attention::Kind::kLatent;
    // Scores of the indexer are stored until the best are chosen: fp32, a range of queries at a time.
    const double scores =
        has_indexer(a, kind.mixer) ? std::min(s.all, kScoredQueries) * static_cast<double>(p.seq) * 4 : 0;
    // Unfused: the gradient of the probabilities, and the probabilities that were not kept.
    const double unfused = s.scores * (plan.recompute.attention ? 2 : 1);
    most = std::max(
        {most, s.all * (s.score + s.keys + s.values) * kBf16Bytes * (again ? 2 : 1) + unfused, scores});
  } else if (kind.mixer != LayerKind::Mixer::kNone) {
    const StateMixer m = state_mixer(a, kind.mixer);
    most = std::max(most, s.all * static_cast<double>(m.input) / s.tp * kBf16Bytes);
  }
  return stream + most;
}

double distinct_weights(const Architecture& a, const Parallel& p, const std::vector<LayerKind>& kinds) {
  std::set<std::pair<double, double>> shapes;
  const double hidden = static_cast<double>(a.hidden), tp = static_cast<double>(p.tp);
  const auto add = [&](double rows, double columns) {
    if (rows > 0 && columns > 0) shapes.emplace(rows, columns);
  };
  const auto ffn = [&](std::int64_t inner, double split, double width) {
    const double f = static_cast<double>(inner) / split;
    add((a.gated ? 2 : 1) * f, width);
    add(width, f);
  };
  for (const LayerKind& kind : kinds) {
    if (is_attention(kind.mixer)) {
      const Projections of = projections_of(a, kind.mixer, p.tp);
      for (const auto* part : {&of.gathered, &of.latent, &of.index})
        for (const Projections::Weight& w : *part) add(static_cast<double>(w.n), static_cast<double>(w.k));
      for (const Projections::Weight& w : {of.out_down, of.out})
        add(static_cast<double>(w.n), static_cast<double>(w.k));
    } else if (kind.mixer != LayerKind::Mixer::kNone) {
      const StateMixer m = state_mixer(a, kind.mixer);
      add(static_cast<double>(m.input) / tp, hidden);
      for (const StateMixer::Product& narrow : m.narrow)
        add(static_cast<double>(narrow.n) / tp, static_cast<double>(narrow.k));
      add(hidden, static_cast<double>(m.inner) / tp);
    }
    if (kind.ffn == LayerKind::Ffn::kDense) ffn(dense_ffn_of(a, kind), tp, hidden);
    if (kind.ffn == LayerKind::Ffn::kMoe) {
      ffn(a.shared_ffn, tp, hidden);
      ffn(a.expert_ffn, static_cast<double>(p.etp), static_cast<double>(a.expert_width()));
    }
  }
  double sum = 0;
  for (const auto& [rows, columns] : shapes) sum += rows * columns;
  return sum;
}

}  // namespace moesim::models
