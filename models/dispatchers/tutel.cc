// Tutel (docs/spec.md 2.13): fixed or dynamic capacity, sparse encode and decode kernels, an equal
// all-to-all that may be pipelined with the experts or done in two stages (2DH: inside the nodes, then
// between them).
#include <fmt/format.h>

#include <algorithm>

#include "models/dispatchers/parts/capacity.h"

namespace moesim::models {

namespace {

class Tutel final : public Dispatcher {
 public:
  explicit Tutel(DispatcherOptions& options)
      : capacity_factor_(options.number("capacity_factor", 1, 0, 1e6)),
        degree_(static_cast<int>(options.integer("pipeline", 1, 1, 8))),
        two_stages_(options.flag("two_dh", false)) {
    if (degree_ != 1 && degree_ != 2 && degree_ != 4 && degree_ != 8)
      options.fail(fmt::format("found pipeline={}, expected 1, 2, 4 or 8", degree_));
  }

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (two_stages_ && layer.straddles)
      return fmt::format("two_dh needs a group of several whole nodes: {} ranks straddle them unevenly",
                         layer.ranks());
    if (two_stages_ && (layer.ranks() <= layer.ranks_per_node || layer.ranks() % layer.ranks_per_node != 0))
      return fmt::format("two_dh needs a group of several whole nodes: {} ranks on nodes of {}",
                         layer.ranks(), layer.ranks_per_node);
    return FixedCapacity::illegal(layer);
  }

  Program build(const MoeLayer& layer) const override {
    const FixedCapacity fixed(layer, rows_per_expert(layer));
    const LayerSizes& f = fixed.sizes;
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    const Exchange exchange = stages(b, layer, fixed);
    ExpertBlock block = expert_block(layer, f, b);
    block.backend = GemmBackend::kBatched;
    std::vector<std::int64_t> assigned(f.tokens.size());
    for (std::size_t r = 0; r < assigned.size(); ++r) assigned[r] = f.tokens[r] * f.K;
    const PerRank buffer = b.uniform(fixed.rows * f.w), input = b.scaled(f.tokens, f.w),
                  rows = b.scaled(assigned, f.w + 12);

    b.begin(ProgramBuilder::Pass::kForward);
    b.save("layer input", input);
    b.save("places and weights", b.scaled(assigned, 8 + f.b_p));
    b.kernel("places in the experts", Category::permute, KernelClass::kReduce,
             b.scaled(f.tokens, 2 * f.K * f.E * 4), b.scaled(f.tokens, f.K * f.E * 4), 2 * f.K);
    if (capacity_factor_ == 0) {
      if (f.ep > 1) b.all_reduce(GroupKind::kEp, "largest capacity", Category::dispatch, DType::kInt64, 8);
      b.host_sync("largest capacity", Category::host_sync, b.uniform(8));
    }
    b.allocate("encoded rows", buffer);
    b.kernel("encode", Category::permute, KernelClass::kScatterRows, rows, buffer, 2);
    b.save("expert input", buffer);
    pipelined(b, exchange, "tokens", Category::dispatch, "tokens", Category::combine, layer.activation, block,
              true);
    b.free("encoded rows", buffer);
    b.save("returned rows", buffer);
    b.allocate("output", input);
    b.kernel("decode", Category::unpermute, KernelClass::kGatherRows, rows, input);
    b.free("output", input);
    free_expert_output(b, block);

    if (layer.train) {
      b.begin(ProgramBuilder::Pass::kBackward);
      b.allocate("gradient of returned rows", buffer);
      b.kernel("decode backward", Category::unpermute, KernelClass::kScatterRows,
               b.scaled(assigned, 2 * f.w + 12), buffer, 3);
      b.allocate("incoming gradient", buffer);
      pipelined(b, exchange, "output gradient", Category::combine, "hidden gradient", Category::dispatch,
                layer.activation, block, false);
      b.allocate("gradient of the input", input);
      b.kernel("encode backward", Category::permute, KernelClass::kGatherRows, rows, input);
      b.free("gradient of the input", input);
      b.free("incoming gradient", buffer);
      b.free("gradient of returned rows", buffer);
    }
    b.program().dropped_rows = fixed.dropped;
    return finish(b, layer, f, f.computed);
  }

 private:
  // One exchange of the whole buffer or of one chunk of it.
  struct Exchange {
    std::int64_t rows = 0, row_bytes = 0;
    int inside = -1, between = -1;  // matrices of the two stages; -1: one equal all-to-all
    int degree = 1;
    PerRank chunk;
  };

  std::int64_t rows_per_expert(const MoeLayer& layer) const {
    const Routing& n = *layer.routing;
    const std::int64_t C = capacity_factor_ == 0
                               ? FixedCapacity::largest_count(n)
                               : capacity(n.tokens(0), n.topk(), n.experts(), capacity_factor_);
    return round_up(std::max<std::int64_t>(1, C), degree_);
  }

  Exchange stages(ProgramBuilder& b, const MoeLayer& layer, const FixedCapacity& fixed) const {
    const LayerSizes& f = fixed.sizes;
    Exchange exchange{fixed.rows / degree_, f.w, -1, -1, degree_, b.uniform(fixed.rows / degree_ * f.w)};
    if (!two_stages_) return exchange;
    const auto R = static_cast<std::size_t>(f.R), per_node = static_cast<std::size_t>(layer.ranks_per_node);
    const auto nodes = static_cast<std::int64_t>(R / per_node);
    const std::int64_t block = fixed.rows / degree_ / f.R;  // rows from one rank to another
    std::vector<std::int64_t> inside(R * R, 0), between(R * R, 0);
    for (std::size_t r = 0; r < R; ++r) {
      for (std::size_t l = 0; l < per_node; ++l) inside[r * R + r / per_node * per_node + l] = nodes * block;
      for (std::size_t m = 0; m < R / per_node; ++m)
        between[r * R + m * per_node + r % per_node] = layer.ranks_per_node * block;
    }
    exchange.inside = b.matrix(GroupKind::kEp, inside);
    exchange.between = b.matrix(GroupKind::kEp, between);
    return exchange;
  }

  // Runs one exchange and returns its last collective.
  static int run(ProgramBuilder& b, const Exchange& e, std::string_view name, Category category,
                 DType dtype) {
    if (e.inside < 0) return b.all_to_all(GroupKind::kEp, name, category, dtype, e.rows * e.row_bytes);
    b.kernel("align for the nodes", category, KernelClass::kCopy, e.chunk, e.chunk);
    b.all_to_all_v(name, category, dtype, e.inside, false, e.row_bytes);
    b.kernel("align for the ranks", category, KernelClass::kCopy, e.chunk, e.chunk);
    return b.all_to_all_v(name, category, dtype, e.between, false, e.row_bytes);
  }

  // Dispatch, experts and combine: chunk i + 1 travels while chunk i is computed.
  void pipelined(ProgramBuilder& b, const Exchange& e, std::string_view there, Category there_category,
                 std::string_view back, Category back_category, DType dtype, const ExpertBlock& whole,
                 bool forward) const {
    if (degree_ == 1) {
      run(b, e, there, there_category, dtype);
      forward ? experts_forward(b, whole) : experts_backward(b, whole);
      run(b, e, back, back_category, dtype);
      return;
    }
    std::vector<int> arrived, returned;
    for (int i = 0; i < degree_; ++i) {
      arrived.push_back(run(b, e, there, there_category, dtype));
      if (arrived.back() >= 0) b.detach();
    }
    ExpertBlock chunk = whole;
    std::vector<std::int64_t> per_expert;
    for (int r = 0; r < b.ranks(); ++r)
      for (const std::int64_t n : b.program().expert_rows(whole.table, r)) per_expert.push_back(n / degree_);
    chunk.rows = sums_per_rank(per_expert, whole.experts);
    chunk.table = b.table(whole.experts, std::move(per_expert));
    for (int i = 0; i < degree_; ++i) {
      b.join(arrived[static_cast<std::size_t>(i)]);
      forward ? experts_forward(b, chunk) : experts_backward(b, chunk);
      returned.push_back(run(b, e, back, back_category, dtype));
      if (i + 1 < degree_ && returned.back() >= 0) b.detach();
    }
  }

  double capacity_factor_;
  int degree_;
  bool two_stages_;
};

}  // namespace

DispatcherEntry tutel() {
  return {"tutel", "Tutel: fixed or dynamic capacity, sparse kernels, equal all-to-all; pipelined, 2DH",
          make_dispatcher_of<Tutel>};
}

}  // namespace moesim::models
