#include "models/step/kept_activations.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace moesim::models {

namespace {

// The sizes of one layer on one rank, in bytes of bf16 where nothing else is said.
struct Sizes {
  Sizes(const Architecture& a, const Parallel& p)
      : tp(static_cast<double>(p.tp)),
        tokens(static_cast<double>(p.tokens_per_rank())),
        all(tokens * tp),
        hidden(static_cast<double>(a.hidden)),
        rows(tokens * hidden * kBf16Bytes) {
    const Attention& t = a.attention;
    heads = static_cast<double>(rank_share(t.heads, p.tp));
    score = heads * static_cast<double>(t.score_dim());
    value = heads * static_cast<double>(t.output_dim());
    if (t.kind == Attention::Kind::kLatent) {
      keys = score, values = value;
    } else {
      keys = values = static_cast<double>(rank_share(t.kv_heads, p.tp) * t.head_dim);
    }
  }
  double tp, tokens, all, hidden;
  double rows;  // the hidden states of a rank
  double heads = 0, score = 0, value = 0, keys = 0, values = 0;
};

// Bytes of an element of a product's input as it is kept.
double product_bytes(const TrainingPlan& plan) {
  return plan.gemm == DType::kBf16 ? kBf16Bytes : static_cast<double>(bytes_of(plan.gemm));
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

void attention(Kept& kept, const Architecture& a, const Sizes& s, const TrainingPlan& plan) {
  const StepRecompute& again = plan.recompute;
  const Attention& t = a.attention;
  const double product = product_bytes(plan), core = plan.fp8_attention ? 1 : kBf16Bytes;
  const bool latent = t.kind == Attention::Kind::kLatent;
  if (latent) {
    const double down = static_cast<double>(t.q_rank + t.kv_rank), rope = static_cast<double>(t.rope_dim);
    kept.add("attention/latent vectors", s.all * (down + rope) * kBf16Bytes);
    if (!again.latent) kept.add("attention/normalised latent vectors", s.all * down * product);
  }
  if (t.qk_norm)
    kept.add("attention/queries and keys before their norm", s.all * (s.score + s.keys) * kBf16Bytes);
  if (!latent || !again.latent)
    kept.add("attention/queries, keys, values", s.all * (s.score + s.keys + s.values) * core);
  // The projection's input is the core's output: in bf16 one tensor, which recomputing the core does not
  // free.
  const bool one = plan.gemm == DType::kBf16 && core == kBf16Bytes;
  kept.add("attention/input of the projection", s.all * s.value * product);
  if (!again.attention) {
    if (!one) kept.add("attention/output of the core", s.all * s.value * core);
    kept.add("attention/log-sums", s.all * s.heads * 4);
  }
}

// The fused kernel keeps its input and the scan's output and convolves again in backward
// (mamba_split_conv1d_scan_combined of state-spaces/mamba).
void mamba(Kept& kept, const Architecture& a, const Sizes& s, const TrainingPlan& plan) {
  const Mamba& m = a.mamba;
  const double inner = static_cast<double>(m.inner()) / s.tp;
  kept.add("state space/input projection's output",
           s.all * static_cast<double>(m.input_columns()) / s.tp * kBf16Bytes);
  kept.add("state space/scan's output", s.all * inner * kBf16Bytes);
  kept.add("state space/input of the projection", s.all * inner * product_bytes(plan));
}

void ffn(Kept& kept, const std::string& module, const Architecture& a, const Sizes& s,
         const TrainingPlan& plan, std::int64_t inner) {
  const double width = static_cast<double>(inner) / s.tp;
  kept.add(module + "/up projection's output", s.all * (a.gated ? 2 : 1) * width * kBf16Bytes);
  kept.add(module + "/activation", s.all * width * product_bytes(plan));
}

}  // namespace

double bytes_of(const std::vector<KeptTensor>& tensors) {
  double sum = 0;
  for (const KeptTensor& t : tensors) sum += t.bytes;
  return sum;
}

std::vector<KeptTensor> kept_by_layer(const Architecture& a, const Parallel& p, const TrainingPlan& plan,
                                      const LayerKind& kind) {
  const Sizes s(a, p);
  const StepRecompute& again = plan.recompute;
  Kept kept;
  if (again.full) {
    kept.add("layer/input", s.rows);
    return kept.take();
  }
  const double normed = s.tokens * s.hidden * product_bytes(plan);
  if (kind.mtp) kept.add("MTP/joined streams", 3 * s.rows);
  if (kind.mixer != LayerKind::Mixer::kNone) {
    kept.add("norm/input of attention's norm", s.rows);
    if (!again.norms) kept.add("norm/output of attention's norm", normed);
    if (kind.mixer == LayerKind::Mixer::kMamba)
      mamba(kept, a, s, plan);
    else
      attention(kept, a, s, plan);
  }
  if (kind.ffn == LayerKind::Ffn::kNone) return kept.take();
  kept.add("norm/input of the FFN's norm", s.rows);
  if (kind.ffn == LayerKind::Ffn::kDense) {
    if (!again.norms) kept.add("norm/output of the FFN's norm", normed);
    if (!again.dense) ffn(kept, "dense FFN", a, s, plan, a.dense_ffn);
    return kept.take();
  }
  kept.add("router/scores", s.tokens * static_cast<double>(a.experts) * 4);
  if (a.latent > 0 && !again.moe)
    kept.add("experts/output before the latent projection",
             s.tokens * static_cast<double>(a.latent) * kBf16Bytes);
  if (a.shared_ffn > 0 && !again.shared && !again.moe) {
    if (plan.gemm != DType::kBf16 && !again.norms) kept.add("shared expert/input", normed);
    ffn(kept, "shared expert", a, s, plan, a.shared_ffn);
  }
  return kept.take();
}

namespace {

constexpr std::string_view kRouterInput = "router input";

// Bytes by which fp8 narrows what a program keeps on a rank: the rows of an expert's two products.
double narrowed_by(const Program& program, std::size_t rank, const Architecture& a,
                   const TrainingPlan& plan) {
  if (plan.gemm == DType::kBf16) return 0;
  const double columns =
      static_cast<double>(a.expert_width()) +
      (plan.recompute.activation ? 0
                                 : static_cast<double>(a.expert_ffn) / static_cast<double>(program.etp()));
  return static_cast<double>(program.computed_rows[rank]) * columns * (kBf16Bytes - product_bytes(plan));
}

// Whether the program computes the whole layer again and keeps its input only.
bool keeps_input_only(const Program& program) {
  return std::any_of(program.forward().begin(), program.forward().end(),
                     [](const Op& op) { return op.kind == OpKind::kFree && op.name == "saved"; });
}

}  // namespace

double kept_bytes(const Program& program, int rank, const Architecture& a, const TrainingPlan& plan) {
  if (program.saved_bytes.empty() || plan.recompute.full) return 0;
  const auto r = static_cast<std::size_t>(rank);
  const auto saved = static_cast<double>(program.saved_bytes[r]);
  if (keeps_input_only(program)) return saved;
  double input = 0;
  for (const Op& op : program.forward())
    if (op.kind == OpKind::kAllocate && op.name == kRouterInput)
      input += static_cast<double>(program.value(op.bytes, rank));
  return (plan.recompute.norms ? 0 : input) + saved - input -
         std::min(narrowed_by(program, r, a, plan), saved - input);
}

std::vector<KeptTensor> kept_by_program(const Program& program, int rank, const Architecture& a,
                                        const TrainingPlan& plan) {
  const auto r = static_cast<std::size_t>(rank);
  Kept kept;
  if (program.saved_bytes.empty() || plan.recompute.full) return {};
  if (keeps_input_only(program)) {
    kept.add("experts/layer input", static_cast<double>(program.saved_bytes[r]));
    return kept.take();
  }
  // What forward allocates and does not free, by name, in order.
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
  double rows = 0;
  for (const auto& [name, bytes] : open)
    if (name != kRouterInput) rows += bytes;
  const double narrowed = std::min(narrowed_by(program, r, a, plan), rows);
  for (const auto& [name, bytes] : open) {
    if (name == kRouterInput && plan.recompute.norms) continue;
    const double share = name == kRouterInput || rows <= 0 ? 0 : narrowed * bytes / rows;
    kept.add("experts/" + std::string(name), bytes - share);
  }
  return kept.take();
}

double backward_transient(const Architecture& a, const Parallel& p, const TrainingPlan& plan,
                          const LayerKind& kind) {
  const Sizes s(a, p);
  // The gradient of the residual stream; with tensor parallelism also the gathered rows of two products.
  const double stream = s.rows + (s.tp > 1 ? 2 * s.tp * s.rows : 0);
  double most = 0;
  const auto of_ffn = [&](std::int64_t inner, bool again) {
    // The gradient of the up projection's output; what was kept is freed as backward passes it.
    const double width = static_cast<double>(inner) / s.tp * kBf16Bytes * s.all;
    most = std::max(most, (a.gated ? 2 : 1) * width + (again ? (a.gated ? 3 : 2) * width : 0));
  };
  if (kind.ffn == LayerKind::Ffn::kDense) of_ffn(a.dense_ffn, plan.recompute.dense);
  if (kind.ffn == LayerKind::Ffn::kMoe && a.shared_ffn > 0)
    of_ffn(a.shared_ffn, plan.recompute.shared || plan.recompute.moe);
  if (kind.mixer == LayerKind::Mixer::kMamba)
    most = std::max(most, s.all * static_cast<double>(a.mamba.input_columns()) / s.tp * kBf16Bytes);
  else if (kind.mixer != LayerKind::Mixer::kNone)
    most =
        std::max(most, s.all * (s.score + s.keys + s.values) * kBf16Bytes *
                           (plan.recompute.latent && a.attention.kind == Attention::Kind::kLatent ? 2 : 1));
  return stream + most;
}

double distinct_weights(const Architecture& a, const Parallel& p, const std::vector<LayerKind>& kinds) {
  std::set<std::pair<double, double>> shapes;
  const Sizes s(a, p);
  const auto add = [&](double rows, double columns) {
    if (rows > 0 && columns > 0) shapes.emplace(rows, columns);
  };
  const auto ffn = [&](std::int64_t inner, double split, double width) {
    const double f = static_cast<double>(inner) / split;
    add((a.gated ? 2 : 1) * f, width);
    add(width, f);
  };
  const Attention& t = a.attention;
  for (const LayerKind& kind : kinds) {
    if (kind.mixer == LayerKind::Mixer::kMamba) {
      add(static_cast<double>(a.mamba.input_columns()) / s.tp, s.hidden);
      add(s.hidden, static_cast<double>(a.mamba.inner()) / s.tp);
    } else if (kind.mixer != LayerKind::Mixer::kNone) {
      if (t.kind == Attention::Kind::kLatent) {
        if (t.q_rank > 0) add(static_cast<double>(t.q_rank), s.hidden);
        add(s.score, t.q_rank > 0 ? static_cast<double>(t.q_rank) : s.hidden);
        add(static_cast<double>(t.kv_rank + t.rope_dim), s.hidden);
        add(s.heads * static_cast<double>(t.nope_dim + t.value_dim), static_cast<double>(t.kv_rank));
      } else {
        add(s.score + s.keys + s.values, s.hidden);
      }
      add(s.hidden, s.value);
    }
    if (kind.ffn == LayerKind::Ffn::kDense) ffn(a.dense_ffn, s.tp, s.hidden);
    if (kind.ffn == LayerKind::Ffn::kMoe) {
      ffn(a.shared_ffn, s.tp, s.hidden);
      ffn(a.expert_ffn, static_cast<double>(p.etp), static_cast<double>(a.expert_width()));
    }
  }
  double sum = 0;
  for (const auto& [rows, columns] : shapes) sum += rows * columns;
  return sum;
}

}  // namespace moesim::models
