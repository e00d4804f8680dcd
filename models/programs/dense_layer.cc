#include "models/programs/dense_layer.h"

#include <algorithm>
#include <vector>

#include "models/programs/program_builder.h"

namespace moesim::models {

namespace {

using sim::Category;

// One weight of the dense part: [tokens, k] x [k, n] on this rank.
struct Product {
  std::string_view name, dgrad, wgrad;
  std::int64_t n, k;
};

class DenseBuilder {
 public:
  explicit DenseBuilder(const DenseLayer& layer)
      : layer_(layer),
        a_(*layer.model),
        tp_(layer.parallel.tp),
        T_(layer.tokens),
        all_(layer.tokens * layer.parallel.tp),
        b_(bytes_of(layer.activation)),
        builder_(static_cast<int>(layer.parallel.ep), static_cast<int>(layer.parallel.etp),
                 static_cast<int>(tp_)),
        own_table_(table(T_)),
        all_table_(table(all_)) {}

  Program build() {
    builder_.begin(ProgramBuilder::Pass::kForward);
    rows_kernel("norm", Category::attention, KernelClass::kReduce, T_, a_.hidden, a_.hidden);
    builder_.all_gather(GroupKind::kDense, "attention input", Category::attention, layer_.activation,
                        row_bytes());
    const std::vector<Product> in = projections();
    for (const Product& p : in) gemm(p.name, Category::attention, GemmPass::kForward, p, all_table_);
    rows_kernel("rotary", Category::attention, KernelClass::kElementwise, all_, q_columns(), q_columns());
    attention("attention", GemmPass::kForward);
    const Product out = output_projection();
    gemm(out.name, Category::attention, GemmPass::kForward, out, all_table_);
    builder_.reduce_scatter(GroupKind::kDense, "attention output", Category::attention, layer_.activation,
                            row_bytes());
    rows_kernel("residual and norm", Category::attention, KernelClass::kReduce, T_, 2 * a_.hidden,
                2 * a_.hidden);
    const Product router{"router", "router dgrad", "router wgrad", a_.experts, a_.hidden};
    gemm(router.name, Category::router, GemmPass::kForward, router, own_table_);
    router_kernels("scores and top-k", 1);
    const bool shared = layer_.shared_expert && a_.shared_ffn > 0;
    const std::int64_t up_columns = (a_.gated ? 2 : 1) * rank_share(a_.shared_ffn, tp_);
    const Product up{"shared fc1", "shared fc1 dgrad", "shared fc1 wgrad", up_columns, a_.hidden};
    const Product down{"shared fc2", "shared fc2 dgrad", "shared fc2 wgrad", a_.hidden,
                       rank_share(a_.shared_ffn, tp_)};
    if (shared) {
      builder_.all_gather(GroupKind::kDense, "shared expert input", Category::expert, layer_.activation,
                          row_bytes());
      gemm(up.name, Category::expert, GemmPass::kForward, up, all_table_);
      rows_kernel("shared activation", Category::expert, KernelClass::kElementwise, all_, up_columns, down.k);
      gemm(down.name, Category::expert, GemmPass::kForward, down, all_table_);
      builder_.reduce_scatter(GroupKind::kDense, "shared expert output", Category::expert, layer_.activation,
                              row_bytes());
    }
    rows_kernel("residual", Category::unpermute, KernelClass::kElementwise, T_, (shared ? 3 : 2) * a_.hidden,
                a_.hidden);
    if (!layer_.train) return builder_.finish();

    builder_.begin(ProgramBuilder::Pass::kBackward);
    if (shared) {
      builder_.all_gather(GroupKind::kDense, "shared expert output gradient", Category::expert,
                          layer_.activation, row_bytes());
      backward_of(down, Category::expert, all_table_);
      rows_kernel("shared activation backward", Category::expert, KernelClass::kElementwise, all_,
                  up_columns + down.k, up_columns);
      backward_of(up, Category::expert, all_table_);
      builder_.reduce_scatter(GroupKind::kDense, "shared expert input gradient", Category::expert,
                              layer_.activation, row_bytes());
    }
    router_kernels("scores backward", 2);
    backward_of(router, Category::router, own_table_);
    rows_kernel("residual and norm backward", Category::attention, KernelClass::kReduce, T_, 4 * a_.hidden,
                2 * a_.hidden);
    builder_.all_gather(GroupKind::kDense, "attention output gradient", Category::attention,
                        layer_.activation, row_bytes());
    backward_of(out, Category::attention, all_table_);
    attention("attention backward", GemmPass::kDgrad);
    rows_kernel("rotary backward", Category::attention, KernelClass::kElementwise, all_, q_columns(),
                q_columns());
    // Sequence parallelism keeps only this rank's rows of the input and gathers them again for the weight
    // gradient.
    builder_.all_gather(GroupKind::kDense, "attention input again", Category::attention, layer_.activation,
                        row_bytes());
    for (auto p = in.rbegin(); p != in.rend(); ++p) backward_of(*p, Category::attention, all_table_);
    builder_.reduce_scatter(GroupKind::kDense, "attention input gradient", Category::attention,
                            layer_.activation, row_bytes());
    rows_kernel("norm backward", Category::attention, KernelClass::kReduce, T_, 3 * a_.hidden, a_.hidden);
    return builder_.finish();
  }

  std::vector<Product> projections() const {
    const Attention& t = a_.attention;
    if (t.kind == Attention::Kind::kLatent) {
      std::vector<Product> in;
      const std::int64_t q = rank_share(t.heads, tp_) * t.score_dim();
      if (t.q_rank > 0) {
        in.push_back({"query down", "query down dgrad", "query down wgrad", t.q_rank, a_.hidden});
        in.push_back({"query up", "query up dgrad", "query up wgrad", q, t.q_rank});
      } else {
        in.push_back({"query", "query dgrad", "query wgrad", q, a_.hidden});
      }
      in.push_back({"key/value down", "key/value down dgrad", "key/value down wgrad", t.kv_rank + t.rope_dim,
                    a_.hidden});
      in.push_back({"key/value up", "key/value up dgrad", "key/value up wgrad",
                    rank_share(t.heads, tp_) * (t.nope_dim + t.value_dim), t.kv_rank});
      return in;
    }
    return {{"query, key, value", "query, key, value dgrad", "query, key, value wgrad",
             (rank_share(t.heads, tp_) + 2 * rank_share(t.kv_heads, tp_)) * t.head_dim, a_.hidden}};
  }

  Product output_projection() const {
    return {"attention projection", "attention projection dgrad", "attention projection wgrad", a_.hidden,
            rank_share(a_.attention.heads, tp_) * a_.attention.output_dim()};
  }

  std::int64_t q_columns() const {
    const Attention& t = a_.attention;
    const std::int64_t kv = t.kind == Attention::Kind::kLatent ? t.heads : t.kv_heads;
    return (rank_share(t.heads, tp_) + rank_share(kv, tp_)) * t.score_dim();
  }

 private:
  int table(std::int64_t rows) {
    return builder_.table(1, std::vector<std::int64_t>(static_cast<std::size_t>(builder_.ranks()), rows));
  }
  std::int64_t row_bytes() const { return T_ * a_.hidden * b_; }

  void gemm(std::string_view name, Category category, GemmPass pass, const Product& p, int rows) {
    builder_.gemm(name, category, pass, GemmBackend::kGrouped, layer_.activation, rows, p.n, p.k, 1, 1);
  }

  void backward_of(const Product& p, Category category, int rows) {
    gemm(p.dgrad, category, GemmPass::kDgrad, p, rows);
    gemm(p.wgrad, category, GemmPass::kWgrad, p, rows);
  }

  void rows_kernel(std::string_view name, Category category, KernelClass kernel, std::int64_t rows,
                   std::int64_t read_columns, std::int64_t written_columns) {
    builder_.kernel(name, category, kernel, builder_.uniform(rows * read_columns * b_),
                    builder_.uniform(rows * written_columns * b_));
  }

  // Softmax or sigmoid over the experts, top-k, and the dense probability and map.
  void router_kernels(std::string_view name, int passes) {
    const std::int64_t scores = T_ * a_.experts * bytes_of(layer_.router);
    builder_.kernel(name, Category::router, KernelClass::kReduce, builder_.uniform(passes * 2 * scores),
                    builder_.uniform(scores + T_ * a_.experts), 3);
  }

  void attention(std::string_view name, GemmPass pass) {
    const Attention& t = a_.attention;
    const std::int64_t heads = rank_share(t.heads, tp_);
    const std::int64_t seq = layer_.parallel.seq;
    // A causal query sees half the sequence on average; a windowed layer at most its window.
    std::int64_t keys = std::max<std::int64_t>(1, seq / 2);
    if (t.window > 0 && t.window < seq && t.window_every > 0) {
      const std::int64_t windowed = std::max<std::int64_t>(1, t.window - t.window * t.window / (2 * seq));
      keys = (keys + (t.window_every - 1) * windowed) / t.window_every;
    }
    Op op;
    op.kind = OpKind::kAttention;
    op.category = Category::attention;
    op.name = name;
    op.pass = pass;
    op.dtype = layer_.activation;
    op.table = all_table_;
    op.n = heads * t.score_dim();
    op.k = heads * t.output_dim();
    op.keys = keys;
    builder_.push(op);
  }

  const DenseLayer& layer_;
  const Architecture& a_;
  std::int64_t tp_, T_, all_, b_;
  ProgramBuilder builder_;
  int own_table_, all_table_;
};

}  // namespace

Program dense_program(const DenseLayer& layer) { return DenseBuilder(layer).build(); }

std::int64_t dense_saved_bytes(const DenseLayer& layer) {
  const Architecture& a = *layer.model;
  const std::int64_t tp = layer.parallel.tp, all = layer.tokens * tp, b = bytes_of(layer.activation);
  DenseBuilder builder(layer);
  // Inputs of the two norms and of the products, queries/keys/values, the attention output and its log-sums.
  std::int64_t columns = builder.output_projection().k;
  for (const Product& p : builder.projections()) columns += p.n;
  std::int64_t bytes =
      4 * layer.tokens * a.hidden * b + all * columns * b + all * rank_share(a.attention.heads, tp) * 4;
  bytes += layer.tokens * a.experts * bytes_of(layer.router);
  if (a.shared_ffn > 0) bytes += all * ((a.gated ? 3 : 2) * rank_share(a.shared_ffn, tp)) * b;
  return bytes;
}

}  // namespace moesim::models
