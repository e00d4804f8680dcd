#include "models/programs/layer_program.h"

#include <algorithm>
#include <map>
#include <span>

#include "models/programs/program_builder.h"
#include "models/programs/projections.h"
#include "models/workload/mixers.h"

namespace moesim::models {

namespace {

using sim::Category;
using Pass = ProgramBuilder::Pass;

// Bytes per logit that a fused cross entropy moves: bf16 read for the row sums, read and written back as
// gradient.
constexpr std::int64_t kLossForward = 4, kLossBackward = 4;
// Gradient tables are fp32: a row is read and written as two bf16 rows.
constexpr std::int64_t kFp32Columns = 2;

using Weight = Projections::Weight;
constexpr std::int64_t kScoreBytes = 4;  // per score of an indexer

// Writes the operations of one program.
class Writer {
 public:
  explicit Writer(const LayerContext& c)
      : c_(c),
        a_(*c.model),
        tp_(c.parallel.tp),
        H_(a_.hidden),
        T_(c.sequence_parallel ? c.tokens : c.tokens * tp_),
        all_(c.tokens * tp_),
        b_(bytes_of(c.activation)),
        builder_(static_cast<int>(c.parallel.ep), static_cast<int>(c.parallel.etp), static_cast<int>(tp_)) {
    builder_.program().compulsory_bytes = false;
  }

  void begin(Pass pass) { builder_.begin(pass); }
  Program take() { return builder_.finish(); }

  // Elementwise or normalising kernels over n rows of so many columns.
  void rows(std::string_view name, Category category, KernelClass kind, std::int64_t n, std::int64_t read,
            std::int64_t written, int launches = 1) {
    kernel(name, category, kind, n * b_ * read, n * b_ * written, launches);
  }
  void kernel(std::string_view name, Category category, KernelClass kind, std::int64_t read,
              std::int64_t written, int launches = 1) {
    builder_.kernel(name, category, kind, builder_.uniform(read), builder_.uniform(written), launches);
  }

  // With adapters the weight itself is frozen: its gradient is not computed, that of its input is.
  void product(Category category, std::int64_t m, const Weight& w, GemmPass pass) {
    if (pass != GemmPass::kWgrad || c_.lora.rank == 0) gemm(category, m, w, pass);
    if (!adapted(c_.lora, w)) return;
    const Weight down{"LoRA down", c_.lora.rank, w.k, true}, up{"LoRA up", w.n, c_.lora.rank, true};
    const bool forward = pass == GemmPass::kForward;
    gemm(category, m, forward ? down : up, pass);
    gemm(category, m, forward ? up : down, pass);
    // Both outputs, or both gradients of the input, are read and their sum is written.
    const std::int64_t columns = forward ? w.n : w.k;
    if (pass != GemmPass::kWgrad)
      rows("LoRA sum", category, KernelClass::kElementwise, m, 2 * columns, columns);
  }
  bool trains(const Weight& w) const { return c_.lora.rank == 0 || adapted(c_.lora, w); }
  void backward_of(Category category, std::int64_t m, const Weight& w) {
    product(category, m, w, GemmPass::kDgrad);
    product(category, m, w, GemmPass::kWgrad);
  }

  // Gathers this rank's rows over the tensor-parallel ranks; -1 where each holds all rows.
  int gather(std::string_view name, Category category, std::int64_t columns) {
    if (!c_.sequence_parallel) return -1;
    return builder_.all_gather(GroupKind::kDense, name, category, c_.activation, T_ * columns * b_);
  }
  // Gathers the tensor-parallel ranks' pieces of so many elements.
  int gather_piece(std::string_view name, Category category, std::int64_t elements) {
    return builder_.all_gather(GroupKind::kDense, name, category, c_.activation, elements * b_);
  }
  // Sums over the tensor-parallel ranks: each gets its own rows, or all of them.
  int scatter(std::string_view name, Category category, std::int64_t columns) {
    if (!c_.sequence_parallel)
      return builder_.all_reduce(GroupKind::kDense, name, category, c_.activation, all_ * columns * b_);
    return builder_.reduce_scatter(GroupKind::kDense, name, category, c_.activation, T_ * columns * b_);
  }

  // Backward of products that read the gathered rows: the gather for the weight gradients runs beside the
  // input gradients, the reduce-scatter of the input gradient beside the weight gradients.
  void backward_of_gathered(std::string_view name, Category category, std::span<const Weight> weights,
                            std::int64_t columns) {
    const bool trained = std::ranges::any_of(weights, [&](const Weight& w) { return trains(w); });
    const int gathered = trained ? gather(name, category, columns) : -1;
    if (gathered >= 0) builder_.detach();
    for (const Weight& w : weights) product(category, all_, w, GemmPass::kDgrad);
    const int scattered = scatter(name, category, columns);
    if (scattered >= 0) builder_.detach();
    builder_.join(gathered);
    for (const Weight& w : weights) product(category, all_, w, GemmPass::kWgrad);
    builder_.join(scattered);
  }

  // Adds the core of attention as one operation with the launches of its kernels.
  void core(LayerKind::Mixer mixer, bool forward) {
    const AttentionCore core = attention_core(a_, mixer, c_.parallel.seq, tp_);
    const bool unmeasured =
        core.gathered || !compressors_of(a_, mixer).empty() || takes_chosen(a_, mixer, core);
    core_of(forward ? "attention" : "attention backward", core, forward, unmeasured);
  }
  // All heads of an indexer score every earlier token, and the best are chosen; its backward covers only the
  // chosen ones, after the core's own weights of them, the target, are computed.
  void index_scores() {
    const AttentionCore scored = index_core(a_, c_.parallel.seq, true);
    core_of("indexer", scored, true);
    const auto pairs =
        static_cast<std::int64_t>(static_cast<double>(all_) * mean_keys(scored.seq, scored.window));
    kernel("choice of tokens", Category::attention, KernelClass::kSelect, pairs * kScoreBytes,
           pairs * kScoreBytes, 2);
  }
  // A frozen indexer has no loss of its own.
  bool trains_indexer() const { return c_.lora.rank == 0; }
  void index_backward(LayerKind::Mixer mixer) {
    AttentionCore target = attention_core(a_, mixer, c_.parallel.seq, tp_);
    target.value_dim = 0;
    core_of("indexer's target", target, true);
    core_of("indexer backward", index_core(a_, c_.parallel.seq, false), false);
  }

  // The scan of a mixer with a state; backward takes three times the work.
  void scan(const StateMixer& m, bool forward) {
    if (m.scan_flops == 0) return;
    const std::int64_t flops = all_ * m.scan_flops / tp_;
    const int id =
        builder_.scan(forward ? "scan" : "scan backward", Category::attention, forward ? flops : 3 * flops);
    builder_.ops()[static_cast<std::size_t>(id)].unmeasured = !m.measured;
  }

  void join(int op) { builder_.join(op); }
  void all_reduce(std::string_view name, Category category, DType dtype, std::int64_t bytes) {
    builder_.all_reduce(GroupKind::kDense, name, category, dtype, bytes);
  }

  std::int64_t H() const { return H_; }
  std::int64_t T() const { return T_; }
  std::int64_t all() const { return all_; }
  std::int64_t tp() const { return tp_; }
  std::int64_t up_columns(std::int64_t inner) const { return (a_.gated ? 2 : 1) * inner; }

 private:
  void gemm(Category category, std::int64_t m, const Weight& w, GemmPass pass) {
    const int id =
        builder_.gemm(w.name, category, pass, GemmBackend::kDense, c_.activation, table(m), w.n, w.k, 1, 1);
    builder_.ops()[static_cast<std::size_t>(id)].plain = w.plain;
  }
  void core_of(std::string_view name, AttentionCore core, bool forward, bool unmeasured = true) {
    core.queries = all_;
    core.cp = c_.parallel.cp;
    core.fp8 = c_.fp8_attention;
    core.unfused = c_.attention != AttentionKernel::kFlash;
    core.dropout = c_.attention == AttentionKernel::kUnfusedDropout;
    const int launches = core.unfused ? (forward ? 4 : 7) + core.dropout : forward ? 1 : 3;
    const int id = builder_.attention(name, Category::attention,
                                      forward ? GemmPass::kForward : GemmPass::kDgrad, core, launches);
    builder_.ops()[static_cast<std::size_t>(id)].unmeasured = unmeasured;
  }
  int table(std::int64_t rows) {
    const auto [at, added] = tables_.try_emplace(rows, -1);
    if (added)
      at->second =
          builder_.table(1, std::vector<std::int64_t>(static_cast<std::size_t>(builder_.ranks()), rows));
    return at->second;
  }

  const LayerContext& c_;
  const Architecture& a_;
  std::int64_t tp_, H_, T_, all_, b_;
  ProgramBuilder builder_;
  std::map<std::int64_t, int> tables_;
};

// The pieces of a layer, forward and backward.
class Layer {
 public:
  explicit Layer(const LayerContext& c)
      : c_(c),
        a_(*c.model),
        again_(c.recompute),
        w_(c),
        residual_(residual_work(a_)),
        router_(router_weight(a_)),
        to_latent_(to_latent(a_)),
        from_latent_(from_latent(a_)) {}

  Writer& writer() { return w_; }
  bool shared() const { return c_.shared_expert && a_.shared_ffn > 0; }

  void mixer_forward(const LayerKind& kind) {
    if (kind.mtp) {
      w_.rows("join of the two streams", Category::other, KernelClass::kReduce, w_.T(), 2 * w_.H(),
              2 * w_.H(), 3);
      w_.product(Category::other, w_.T(), mtp(), GemmPass::kForward);
    }
    read_residual(Category::attention);
    if (!is_attention(kind.mixer)) return state_forward(state_mixer(a_, kind.mixer));
    const Attention& t = attention_of(a_, kind.mixer);
    const Projections p = projections_of(a_, kind.mixer, w_.tp());
    input_norm();
    w_.gather("attention input", Category::attention, w_.H());
    for (const Weight& q : p.gathered) w_.product(Category::attention, w_.all(), q, GemmPass::kForward);
    compress(kind.mixer, true);
    latent_forward(p);
    positions(t, p, "norm and rotation", 1);
    indexer_forward(p);
    w_.core(kind.mixer, true);
    if (t.gate_dim > 0) {
      const std::int64_t value = p.heads * t.output_dim(), gate = p.heads * t.gate_dim;
      w_.rows("output gate", Category::attention, KernelClass::kElementwise, w_.all(), value + gate, value);
    }
    if (p.out_down.n > 0) w_.product(Category::attention, w_.all(), p.out_down, GemmPass::kForward);
    w_.product(Category::attention, w_.all(), p.out, GemmPass::kForward);
    w_.scatter("attention output", Category::attention, w_.H());
    add_residual(Category::attention);
  }

  void mixer_backward(const LayerKind& kind) {
    if (again_.operations) operations_again(kind);
    if (is_attention(kind.mixer))
      attention_backward(kind.mixer);
    else
      state_backward(state_mixer(a_, kind.mixer));
    norm_backward(Category::attention);
    residual_backward(Category::attention);
    if (kind.mtp) {
      w_.backward_of(Category::other, w_.T(), mtp());
      w_.rows("join of the two streams backward", Category::other, KernelClass::kReduce, w_.T(), 4 * w_.H(),
              2 * w_.H(), 3);
    }
  }

  void ffn_forward(Category category, std::int64_t inner, bool output) {
    const std::int64_t f = rank_share(inner, w_.tp());
    w_.gather("FFN input", category, w_.H());
    w_.product(category, w_.all(), up(f), GemmPass::kForward);
    w_.rows("FFN activation", category, KernelClass::kElementwise, w_.all(), w_.up_columns(f), f);
    if (!output) return;
    w_.product(category, w_.all(), down(f), GemmPass::kForward);
    w_.scatter("FFN output", category, w_.H());
  }
  void ffn_backward(Category category, std::int64_t inner) {
    const std::int64_t f = rank_share(inner, w_.tp());
    w_.gather("FFN output gradient", category, w_.H());
    w_.backward_of(category, w_.all(), down(f));
    w_.rows("FFN activation backward", category, KernelClass::kElementwise, w_.all(), w_.up_columns(f) + f,
            w_.up_columns(f));
    const Weight first = up(f);
    w_.backward_of_gathered("FFN input", category, std::span(&first, 1), w_.H());
  }

  void dense_forward(std::int64_t inner) {
    read_residual(Category::other);
    w_.rows("norm", Category::other, KernelClass::kReduce, w_.T(), w_.H(), w_.H());
    ffn_forward(Category::other, inner, true);
    add_residual(Category::other);
  }
  void dense_backward(std::int64_t inner) {
    if (again_.norms) w_.rows("norm again", Category::other, KernelClass::kReduce, w_.T(), w_.H(), w_.H());
    if (again_.dense) ffn_forward(Category::other, inner, false);
    ffn_backward(Category::other, inner);
    w_.rows("norm backward", Category::other, KernelClass::kReduce, w_.T(), 3 * w_.H(), w_.H(), 2);
    residual_backward(Category::other);
  }

  void router_forward() {
    read_residual(Category::router);
    w_.rows("norm", Category::router, KernelClass::kReduce, w_.T(), w_.H(), w_.H());
    scores();
    if (shared()) ffn_forward(Category::expert, a_.shared_ffn, true);
    if (a_.latent > 0) w_.product(Category::expert, w_.T(), to_latent_, GemmPass::kForward);
  }
  void router_backward() {
    if (a_.latent > 0) w_.backward_of(Category::expert, w_.T(), to_latent_);
    w_.kernel("scores backward", Category::router, KernelClass::kReduce, 4 * score_bytes(), 2 * score_bytes(),
              4);
    w_.backward_of(Category::router, w_.T(), router_);
    norm_backward(Category::router);
    residual_backward(Category::router);
  }

  void after_forward() {
    if (a_.expert_bias)
      w_.rows("expert biases", Category::expert, KernelClass::kElementwise, w_.T() * c_.topk, biased(),
              biased(), 2);
    if (a_.latent > 0) w_.product(Category::expert, w_.T(), from_latent_, GemmPass::kForward);
    add_residual(Category::unpermute, shared() ? w_.H() : 0);
  }
  void after_backward() {
    if (again_.norms) w_.rows("norm again", Category::router, KernelClass::kReduce, w_.T(), w_.H(), w_.H());
    if (again_.moe && !again_.full) scores();
    if (shared()) {
      if ((again_.moe || again_.shared) && !again_.full) ffn_forward(Category::expert, a_.shared_ffn, false);
      ffn_backward(Category::expert, a_.shared_ffn);
    }
    if (a_.latent > 0) w_.backward_of(Category::expert, w_.T(), from_latent_);
    if (a_.expert_bias)
      w_.rows("expert biases backward", Category::expert, KernelClass::kReduce, w_.T() * c_.topk, biased(), 0,
              2);
  }

 private:
  Weight up(std::int64_t f) const { return ffn_up(a_, f); }
  Weight down(std::int64_t f) const { return ffn_down(a_, f); }
  Weight mtp() const { return mtp_join(a_); }

  std::int64_t score_bytes() const { return w_.T() * (a_.experts + a_.zero_experts) * bytes_of(c_.router); }
  std::int64_t biased() const { return w_.up_columns(a_.expert_ffn / c_.parallel.etp) + a_.expert_width(); }

  // Reads a block's row from the residual streams, or writes its output back.
  void read_residual(Category category) {
    if (residual_.mixed > 0) w_.product(category, w_.T(), mixing(), GemmPass::kForward);
    if (residual_.read_before > 0)
      w_.rows("row out of the residuals", category, KernelClass::kReduce, w_.T(), residual_.read_before,
              residual_.written_before, 3);
  }
  void add_residual(Category category, std::int64_t shared = 0) {
    w_.rows("residual", category, KernelClass::kElementwise, w_.T(), residual_.read_after + shared,
            residual_.written_after);
  }
  // Gradients of all inputs: they are read, added to and written.
  void residual_backward(Category category) {
    if (residual_.read_before == 0) return;
    if (again_.streams && !again_.full && residual_.mixed > 0) {
      read_residual(category);
      add_residual(category);
    }
    if (residual_.mixed > 0) w_.backward_of(category, w_.T(), mixing());
    w_.rows("residuals backward", category, KernelClass::kReduce, w_.T(),
            2 * (residual_.read_before + residual_.written_after),
            residual_.read_before + residual_.written_after, 4);
  }
  Weight mixing() const { return residual_mixing(a_); }
  // Computes keys of several tokens each from the compressors' products.
  void compress(LayerKind::Mixer mixer, bool forward) {
    for (const Compressor& c : compressors_of(a_, mixer))
      w_.rows(forward ? "compression of keys" : "compression of keys backward", Category::attention,
              KernelClass::kReduce, w_.all(), 2 * c.columns,
              forward ? std::max<std::int64_t>(1, c.width / c.ratio) : 2 * c.columns, 2);
  }

  void input_norm() { w_.rows("norm", Category::attention, KernelClass::kReduce, w_.T(), w_.H(), w_.H()); }
  void norm_backward(Category category) {
    w_.rows("norm and residual backward", category, KernelClass::kReduce, w_.T(), 4 * w_.H(), w_.H(), 2);
  }
  void latent_forward(const Projections& p) {
    if (p.latent_columns > 0)
      w_.rows("latent norm", Category::attention, KernelClass::kReduce, w_.all(), p.latent_columns,
              p.latent_columns, 2);
    for (const Weight& q : p.latent) w_.product(Category::attention, w_.all(), q, GemmPass::kForward);
  }
  // Norms of queries and keys where the model has them, and rotary embeddings, which read and write both.
  void positions(const Attention& t, const Projections& p, std::string_view name, std::int64_t norm_reads) {
    const std::int64_t columns = (p.heads + p.kv_heads) * t.score_dim();
    const auto norm = [&] {
      if (t.qk_norm)
        w_.rows(name, Category::attention, KernelClass::kReduce, w_.all(), norm_reads * columns, columns, 2);
    };
    if (norm_reads == 1) norm();
    w_.rows(name, Category::attention, KernelClass::kElementwise, w_.all(), columns, columns, 2);
    if (norm_reads != 1) norm();
  }
  // Returns the columns of the indexer's queries and key, which are rotated; the key is normalised, and
  // pooled by its gate.
  std::int64_t index_columns() const {
    return a_.attention.index_heads * a_.attention.index_dim + a_.attention.index_key_columns();
  }
  void indexer_forward(const Projections& p) {
    if (p.index.empty()) return;
    for (const Weight& w : p.index) w_.product(Category::attention, w_.all(), w, GemmPass::kForward);
    w_.rows("indexer's norm and rotation", Category::attention, KernelClass::kElementwise, w_.all(),
            index_columns(), index_columns(), 2);
    w_.index_scores();
  }
  // torchtitan's checkpointing by operation computes these again besides the experts.
  void operations_again(const LayerKind& kind) {
    for (const Weight& w : every_second(a_, kind, w_.tp()).again)
      w_.product(Category::attention, w_.all(), w, GemmPass::kForward);
    for (int block = 0; block < blocks_of(kind); ++block) input_norm();
    if (is_attention(kind.mixer))
      positions(attention_of(a_, kind.mixer), projections_of(a_, kind.mixer, w_.tp()),
                "norm and rotation again", 1);
    const std::int64_t inner = kind.ffn == LayerKind::Ffn::kDense ? dense_ffn_of(a_, kind)
                               : shared()                         ? a_.shared_ffn
                                                                  : 0,
                       f = rank_share(inner, w_.tp());
    if (f > 0)
      w_.rows("FFN activation again", Category::other, KernelClass::kElementwise, w_.all(), w_.up_columns(f),
              f);
  }
  void recompute_attention(LayerKind::Mixer mixer, const Projections& p) {
    if (again_.full) return;
    if (again_.norms) input_norm();
    if (again_.latent && p.latent_columns > 0) {
      latent_forward(p);
      positions(attention_of(a_, mixer), p, "norm and rotation again", 1);
    }
    if (again_.attention) w_.core(mixer, true);
  }
  void attention_backward(LayerKind::Mixer mixer) {
    const Attention& t = attention_of(a_, mixer);
    const Projections p = projections_of(a_, mixer, w_.tp());
    recompute_attention(mixer, p);
    w_.gather("attention output gradient", Category::attention, w_.H());
    w_.backward_of(Category::attention, w_.all(), p.out);
    if (p.out_down.n > 0) w_.backward_of(Category::attention, w_.all(), p.out_down);
    if (t.gate_dim > 0) {
      const std::int64_t value = p.heads * t.output_dim(), gate = p.heads * t.gate_dim;
      w_.rows("output gate backward", Category::attention, KernelClass::kElementwise, w_.all(),
              2 * value + gate, value + gate);
    }
    w_.core(mixer, false);
    positions(t, p, "norm and rotation backward", 2);
    if (!p.index.empty() && w_.trains_indexer()) {
      w_.index_backward(mixer);
      w_.rows("indexer's norm and rotation backward", Category::attention, KernelClass::kElementwise,
              w_.all(), 2 * index_columns(), index_columns(), 2);
      for (const Weight& w : p.index) w_.product(Category::attention, w_.all(), w, GemmPass::kWgrad);
    }
    for (auto q = p.latent.rbegin(); q != p.latent.rend(); ++q)
      w_.backward_of(Category::attention, w_.all(), *q);
    compress(mixer, false);
    if (p.latent_columns > 0)
      w_.rows("latent norm backward", Category::attention, KernelClass::kReduce, w_.all(),
              2 * p.latent_columns, p.latent_columns, 2);
    w_.backward_of_gathered("attention input", Category::attention, p.gathered, w_.H());
  }

  // Scores, top-k, the map and its probabilities, counts and the balancing loss.
  void scores() {
    w_.product(Category::router, w_.T(), router_, GemmPass::kForward);
    w_.kernel("scores and top-k", Category::router, KernelClass::kReduce, 4 * score_bytes(),
              3 * score_bytes(), 6);
  }

  void state_forward(const StateMixer& m) {
    const std::int64_t c = rank_share(m.convolved, w_.tp()), i = rank_share(m.inner, w_.tp()),
                       between = m.between / w_.tp();
    input_norm();
    w_.gather("state-space input", Category::attention, w_.H());
    w_.product(Category::attention, w_.all(), state_in(a_, m, w_.tp()), GemmPass::kForward);
    for (const StateMixer::Product& p : m.narrow)
      w_.product(Category::attention, w_.all(), state_narrow(p, w_.tp()), GemmPass::kForward);
    if (m.convolved > 0)
      w_.rows("convolution", Category::attention, KernelClass::kElementwise, w_.all(), c, c);
    w_.rows("scan's rows", Category::attention, KernelClass::kReduce, w_.all(), scanned(m) + between,
            i + between, m.launches);
    w_.scan(m, true);
    w_.rows("gated norm", Category::attention, KernelClass::kReduce, w_.all(), 2 * i, i);
    w_.product(Category::attention, w_.all(), state_out(a_, m, w_.tp()), GemmPass::kForward);
    w_.scatter("state-space output", Category::attention, w_.H());
    add_residual(Category::attention);
  }
  void state_backward(const StateMixer& m) {
    const std::int64_t c = rank_share(m.convolved, w_.tp()), i = rank_share(m.inner, w_.tp()),
                       between = m.between / w_.tp(), in = scanned(m);
    if (again_.norms) input_norm();
    w_.gather("state-space output gradient", Category::attention, w_.H());
    w_.backward_of(Category::attention, w_.all(), state_out(a_, m, w_.tp()));
    w_.rows("gated norm backward", Category::attention, KernelClass::kReduce, w_.all(), 3 * i, 2 * i);
    w_.rows("scan's rows backward", Category::attention, KernelClass::kReduce, w_.all(), 2 * in + 3 * between,
            in + 2 * between, m.backward_launches);
    w_.scan(m, false);
    if (m.convolved > 0)
      w_.rows("convolution backward", Category::attention, KernelClass::kElementwise, w_.all(), 2 * c, c);
    for (auto p = m.narrow.rbegin(); p != m.narrow.rend(); ++p)
      w_.backward_of(Category::attention, w_.all(), state_narrow(*p, w_.tp()));
    const Weight input = state_in(a_, m, w_.tp());
    w_.backward_of_gathered("state-space input", Category::attention, std::span(&input, 1), w_.H());
  }
  // Returns the columns that the scan reads.
  std::int64_t scanned(const StateMixer& m) const { return rank_share(m.scanned, w_.tp()); }

  const LayerContext& c_;
  const Architecture& a_;
  const StepRecompute& again_;
  Writer w_;
  ResidualWork residual_;
  Weight router_, to_latent_, from_latent_;
};

}  // namespace

Program before_experts(const LayerContext& context, const LayerKind& kind) {
  Layer layer(context);
  layer.writer().begin(Pass::kForward);
  if (kind.mixer != LayerKind::Mixer::kNone) layer.mixer_forward(kind);
  if (kind.ffn == LayerKind::Ffn::kDense) layer.dense_forward(dense_ffn_of(*context.model, kind));
  if (kind.ffn == LayerKind::Ffn::kMoe) layer.router_forward();
  if (context.train) {
    layer.writer().begin(Pass::kBackward);
    if (kind.ffn == LayerKind::Ffn::kDense) layer.dense_backward(dense_ffn_of(*context.model, kind));
    if (kind.ffn == LayerKind::Ffn::kMoe) layer.router_backward();
    if (kind.mixer != LayerKind::Mixer::kNone) layer.mixer_backward(kind);
  }
  return layer.writer().take();
}

Program after_experts(const LayerContext& context) {
  Layer layer(context);
  layer.writer().begin(Pass::kForward);
  layer.after_forward();
  if (context.train) {
    layer.writer().begin(Pass::kBackward);
    layer.after_backward();
  }
  return layer.writer().take();
}

Program embedding_program(const LayerContext& context) {
  Writer w(context);
  w.begin(Pass::kForward);
  w.rows("embedding", Category::embedding, KernelClass::kGatherRows, w.all(), w.H(), w.H());
  w.scatter("embedded rows", Category::embedding, w.H());
  if (context.train && context.lora.rank == 0) {
    w.begin(Pass::kBackward);
    w.gather("embedding gradient", Category::embedding, w.H());
    // Rows of gradients are added to fp32 rows.
    w.rows("embedding backward", Category::embedding, KernelClass::kScatterAdd, w.all(),
           (1 + kFp32Columns) * w.H(), kFp32Columns * w.H(), 2);
  }
  return w.take();
}

Program head_program(const LayerContext& context) {
  Writer w(context);
  const std::int64_t V = context.model->vocabulary;
  const Weight head{"output head", std::max<std::int64_t>(1, largest_share(V, w.tp())), w.H(), true};
  // Without loss parallelism the columns of the logits are gathered, and every rank computes the whole loss.
  const bool gathered = !context.loss_parallel && w.tp() > 1;
  const std::int64_t own = w.all() * head.n, logits = gathered ? w.all() * V : own;
  w.begin(Pass::kForward);
  const ResidualWork streams = residual_work(*context.model);
  if (streams.read_before > 0)
    w.rows("join of the residuals", Category::loss, KernelClass::kReduce, w.T(), streams.read_before,
           streams.written_before, 3);
  w.rows("final norm", Category::loss, KernelClass::kReduce, w.T(), w.H(), w.H());
  w.gather("head input", Category::loss, w.H());
  w.product(Category::loss, w.all(), head, GemmPass::kForward);
  if (gathered) w.gather_piece("logits", Category::loss, own);
  w.kernel("cross entropy", Category::loss, KernelClass::kReduce, kLossForward / 2 * logits,
           kLossForward / 2 * logits, 3);
  // One number per token each: the largest logit, the target's logit, the sum of exponentials.
  if (!gathered)
    for (const std::string_view sum : {"largest logit", "target's logit", "sum of exponentials"})
      w.all_reduce(sum, Category::loss, DType::kFp32, w.all() * 4);
  if (context.train) {
    w.begin(Pass::kBackward);
    w.kernel("cross entropy backward", Category::loss, KernelClass::kElementwise, kLossBackward / 2 * logits,
             kLossBackward / 2 * logits);
    if (gathered)
      w.kernel("own columns of the gradient", Category::loss, KernelClass::kCopy,
               own * bytes_of(context.activation), own * bytes_of(context.activation));
    w.backward_of_gathered("head input", Category::loss, std::span(&head, 1), w.H());
    w.rows("final norm backward", Category::loss, KernelClass::kReduce, w.T(), 3 * w.H(), w.H(), 2);
    if (streams.read_before > 0)
      w.rows("join of the residuals backward", Category::loss, KernelClass::kReduce, w.T(),
             streams.read_before + streams.written_before, streams.read_before, 3);
  }
  return w.take();
}

}  // namespace moesim::models
