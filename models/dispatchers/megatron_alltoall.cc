// Megatron AlltoAll dispatcher (docs/spec.md 2.2): rows travel to their experts over the EP group, and over
// the ETP group where experts are split; dropless, capacity with and without padding, shared expert
// overlapped.
#include "models/dispatchers/parts/capacity.h"
#include "models/dispatchers/parts/common.h"
#include "models/dispatchers/parts/shared_expert.h"

namespace moesim::models {

namespace {

class AllToAll final : public Dispatcher {
 public:
  explicit AllToAll(DispatcherOptions& options)
      : permute_fusion_(options.flag("permute_fusion", true)),
        capacity_factor_(options.number("capacity_factor", 0, 0, 1e6)),
        pad_(options.flag("pad", false)),
        pad_map_(options.integer("pad_map", 1, 1, 1 << 20)),
        pad_rows_(options.integer("pad_rows", 1, 1, 1 << 20)),
        shared_overlap_(options.flag("shared_overlap", false)),
        batch_overlap_(options.flag("batch_overlap", false)) {
    if (pad_ && capacity_factor_ == 0)
      options.fail("found pad without capacity_factor, expected a capacity: padding goes up to it");
    if (pad_map_ > 1 && capacity_factor_ > 0)
      options.fail(
          "found pad_map with capacity_factor, expected one of them: both fix the rows of an expert");
    if (pad_map_ > 1 && pad_rows_ > 1)
      options.fail(
          "found pad_map and pad_rows, expected one of them: rows are padded before or after the exchange");
  }

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (pad_ && !layer.routing->equal_tokens())
      return "drop-and-pad needs the same number of tokens on every rank: all must agree on the capacity";
    if (shared_overlap_ && layer.shared_ffn == 0)
      return "shared_overlap needs a shared expert, this model has none";
    if (batch_overlap_) return rule_against_batch_overlap(layer, shared_overlap_);
    return std::nullopt;
  }

  bool balances() const override { return capacity_factor_ == 0 && pad_map_ == 1; }

  Program build(const MoeLayer& layer) const override {
    if (pad_) return build_padded(layer);
    if (capacity_factor_ > 0) {
      const Routing limited = layer.routing->limited_to(capacities(*layer.routing, capacity_factor_));
      return build_dropless(layer, limited, true);
    }
    if (pad_map_ > 1) return build_dropless(layer, layer.routing->padded_to(pad_map_), true);
    return build_dropless(layer, *layer.routing, false);
  }

 private:
  // One exchange of rows in either direction; equal pieces with drop-and-pad.
  struct Exchange {
    bool equal = false;
    int matrix = -1;
    std::int64_t rows = 0;  // per rank, for equal pieces only

    int run(ProgramBuilder& b, std::string_view name, Category category, DType dtype, bool back,
            std::int64_t row_bytes) const {
      return equal ? b.all_to_all(GroupKind::kEp, name, category, dtype, rows * row_bytes)
                   : b.all_to_all_v(name, category, dtype, matrix, back, row_bytes);
    }
  };

  Program build_dropless(const MoeLayer& layer, const Routing& routing, bool dynamic) const {
    LayerSizes f(layer, routing);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    const Exchange exchange{false, b.matrix(GroupKind::kEp, f.splits), 0};
    ExpertBlock block = expert_block(layer, f, b);
    if (pad_rows_ > 1) {
      block.rows = sums_per_rank(round_up_each(f.experts, pad_rows_), f.E_l);
      block.table = b.table(f.E_l, round_up_each(f.experts, pad_rows_));
    }
    return build_program(b, layer, f, exchange, block, dynamic, total_dropped(*layer.routing, routing));
  }

  Program build_padded(const MoeLayer& layer) const {
    LayerSizes f(layer);
    const std::int64_t C = capacity(f.T(), f.K, f.E, capacity_factor_);
    f.sent.assign(f.R, f.E * C);
    f.arrived = f.sent;
    f.computed.assign(f.R, f.etp * f.E * C);
    f.experts.assign(std::size_t(f.R) * f.E_l, f.R * C);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    const ExpertBlock block = expert_block(layer, f, b);
    return build_program(
        b, layer, f, Exchange{true, -1, f.E * C}, block, false,
        total_dropped(*layer.routing, layer.routing->limited_to(std::vector<std::int64_t>(f.R, C))));
  }

  Program build_program(ProgramBuilder& b, const MoeLayer& layer, const LayerSizes& f,
                        const Exchange& exchange, ExpertBlock block, bool dynamic,
                        std::int64_t dropped) const {
    block.probability = true;
    b.program().dropped_rows = dropped;
    b.program().overlaps_batches = batch_overlap_;
    forward(b, layer, f, exchange, block, dynamic);
    if (layer.train) backward(b, layer, f, exchange, block);
    return finish(b, layer, f, block.rows);
  }

  void forward(ProgramBuilder& b, const MoeLayer& layer, const LayerSizes& f, const Exchange& exchange,
               const ExpertBlock& block, bool dynamic) const {
    const bool counts = !exchange.equal;
    const PerRank permuted = b.scaled(f.sent, f.w), arrived = b.scaled(f.arrived, f.w),
                  computed = b.scaled(f.computed, f.w);
    b.begin(ProgramBuilder::Pass::kForward);
    b.save("router input", b.scaled(f.tokens, f.w));
    b.save("routing map and probabilities", b.scaled(f.tokens, f.E * (1 + f.b_p)));
    b.save("row ids", b.scaled(f.sent, 8));
    SharedExpert shared(b, layer, f, shared_overlap_);
    int copy = -1;
    if (counts) {
      b.kernel("count rows per expert", Category::permute, KernelClass::kHistogram, b.scaled(f.tokens, f.E),
               b.uniform(f.E * 8));
      b.all_gather(GroupKind::kTpEp, "counts", Category::dispatch, DType::kInt64, f.E * 8);
      copy = b.copy_to_host("splits and counts", Category::host_sync,
                            b.uniform((f.ep + f.etp + std::int64_t{f.E_l} * f.R) * 8), b.last());
      if (dynamic) b.host_wait("before_permutation_1", Category::host_sync, copy);
    }
    shared.gather();
    b.allocate("permuted rows", permuted);
    if (permute_fusion_) {
      b.kernel("row id map", Category::permute, KernelClass::kCopy, b.scaled(f.tokens, f.E),
               b.scaled(f.tokens, f.E * 4));
    } else {
      sort_keys(b, "sort map", Category::permute, scaled_rows(f.tokens, f.E), 1, 8, 8);
    }
    gather_rows(b, "permute rows", Category::permute, f.sent, f.w);
    gather_rows(b, "permute probabilities", Category::permute, f.sent, f.b_p);
    if (counts && !dynamic && f.R > 1) b.host_wait("before_ep_alltoall", Category::host_sync, copy);

    const bool gathers = f.etp > 1, sorts = f.E_l > 1;
    allocate_or_save(b, "received rows", arrived, !gathers && !sorts);
    exchange.run(b, "tokens", Category::dispatch, layer.activation, false, f.w);
    shared.up();
    exchange.run(b, "probabilities", Category::dispatch, layer.router, false, f.b_p);
    if (gathers) {
      allocate_or_save(b, "gathered rows", computed, !sorts);
      gather_over_tp(b, "tokens", Category::dispatch, layer.activation, f, exchange, f.w);
      gather_over_tp(b, "probabilities", Category::dispatch, layer.router, f, exchange, f.b_p);
    }
    if (sorts) {
      b.save("sorted rows", computed);
      chunk_sort(b, "sort chunks", Category::permute, f, block.rows);
    }
    b.save("probabilities", b.scaled(f.computed, f.b_p));
    if (sorts && gathers) b.free("gathered rows", computed);
    if (gathers || sorts) b.free("received rows", arrived);
    b.free("permuted rows", permuted);
    if (counts && !dynamic && f.R == 1) b.host_wait("before_finish", Category::host_sync, copy);

    experts_forward(b, block);
    const PerRank combined_rows = b.scaled(f.computed, f.w);
    if (sorts) {
      b.allocate("unsorted rows", combined_rows);
      chunk_sort(b, "unsort chunks", Category::unpermute, f, block.rows);
    }
    if (gathers) reduce_over_tp(b, "expert output", Category::combine, layer, f, exchange);
    b.allocate("returned rows", permuted);
    exchange.run(b, "tokens", Category::combine, layer.activation, true, f.w);
    shared.down();
    const PerRank output = b.scaled(f.tokens, f.w);
    b.allocate("output", output);
    if (permute_fusion_) {
      b.kernel("unpermute", Category::unpermute, KernelClass::kGatherRows,
               combined(b, f.sent, f.w, f.tokens, f.E * 4), output);
    } else {
      scatter_add(b, "unpermute", Category::unpermute, f.sent, f.tokens, f.w);
    }
    shared.add();
    b.free("output", output);
    b.free("returned rows", permuted);
    if (sorts) b.free("unsorted rows", combined_rows);
    free_expert_output(b, block);
  }

  void backward(ProgramBuilder& b, const MoeLayer& layer, const LayerSizes& f, const Exchange& exchange,
                const ExpertBlock& block) const {
    const bool gathers = f.etp > 1, sorts = f.E_l > 1;
    const PerRank permuted = b.scaled(f.sent, f.w), computed = b.scaled(f.computed, f.w);
    b.begin(ProgramBuilder::Pass::kBackward);
    SharedExpert shared(b, layer, f, shared_overlap_);
    shared.backward_gather();
    b.allocate("gradient of returned rows", permuted);
    gather_rows(b, "unpermute backward", Category::unpermute, f.sent, f.w);
    b.allocate("incoming gradient", computed);
    exchange.run(b, "output gradient", Category::combine, layer.activation, false, f.w);
    shared.backward_down();
    if (gathers)
      gather_over_tp(b, "output gradient", Category::combine, layer.router, f, exchange, f.H * f.b_p);
    if (sorts) chunk_sort(b, "unsort chunks backward", Category::unpermute, f, block.rows);
    experts_backward(b, block);
    if (sorts) chunk_sort(b, "sort chunks backward", Category::permute, f, block.rows);
    if (gathers) {
      scatter_over_tp(b, "hidden gradient", layer.activation, f, exchange, f.w);
      scatter_over_tp(b, "probability gradient", layer.router, f, exchange, f.b_p);
    }
    exchange.run(b, "probability gradient", Category::dispatch, layer.router, true, f.b_p);
    exchange.run(b, "hidden gradient", Category::dispatch, layer.activation, true, f.w);
    shared.backward_up();
    b.free("incoming gradient", computed);
    const PerRank input = b.scaled(f.tokens, f.w);
    b.allocate("gradient of the input", input);
    if (permute_fusion_) {
      b.kernel("permute backward", Category::permute, KernelClass::kGatherRows,
               combined(b, f.sent, f.w, f.tokens, f.E * 4), input);
    } else {
      scatter_add(b, "permute backward", Category::permute, f.sent, f.tokens, f.w);
    }
    b.kernel("scatter probability gradients", Category::permute, KernelClass::kScatterRows,
             b.scaled(f.sent, 8 + f.b_p), b.scaled(f.tokens, f.E * f.b_p), 2);
    shared.add();
    b.free("gradient of the input", input);
    b.free("gradient of returned rows", permuted);
  }

  static void allocate_or_save(ProgramBuilder& b, std::string_view name, PerRank bytes, bool save) {
    if (save) {
      b.save(name, bytes);
    } else {
      b.allocate(name, bytes);
    }
  }

  static std::vector<std::int64_t> scaled_rows(std::vector<std::int64_t> rows, std::int64_t factor) {
    for (std::int64_t& r : rows) r *= factor;
    return rows;
  }

  // Source-major to expert-major or back: every row is read and written once; pad rows are written only.
  static void chunk_sort(ProgramBuilder& b, std::string_view name, Category category, const LayerSizes& f,
                         const std::vector<std::int64_t>& padded) {
    b.kernel(name, category, KernelClass::kGatherRows, b.scaled(f.computed, f.w + 8), b.scaled(padded, f.w));
  }

  static void gather_over_tp(ProgramBuilder& b, std::string_view name, Category category, DType dtype,
                             const LayerSizes& f, const Exchange& exchange, std::int64_t row_bytes) {
    if (exchange.equal) {
      b.all_gather(GroupKind::kTp, name, category, dtype, exchange.rows * row_bytes);
    } else {
      b.all_gather_v(GroupKind::kTp, name, category, dtype, f.arrived, row_bytes);
    }
  }

  static void scatter_over_tp(ProgramBuilder& b, std::string_view name, DType dtype, const LayerSizes& f,
                              const Exchange& exchange, std::int64_t row_bytes) {
    if (exchange.equal) {
      b.reduce_scatter(GroupKind::kTp, name, Category::dispatch, dtype, exchange.rows * row_bytes);
    } else {
      b.reduce_scatter_v(GroupKind::kTp, name, Category::dispatch, dtype, f.arrived, row_bytes);
    }
  }

  // Sums the partial products of the ETP group, in the router's dtype.
  static void reduce_over_tp(ProgramBuilder& b, std::string_view name, Category category,
                             const MoeLayer& layer, const LayerSizes& f, const Exchange& exchange) {
    const PerRank wide = b.scaled(f.computed, f.H * f.b_p);
    const bool cast = f.b_p != f.b;
    if (cast)
      b.kernel("cast to router dtype", category, KernelClass::kElementwise, b.scaled(f.computed, f.w), wide);
    if (exchange.equal) {
      b.reduce_scatter(GroupKind::kTp, name, category, layer.router, exchange.rows * f.H * f.b_p);
    } else {
      b.reduce_scatter_v(GroupKind::kTp, name, category, layer.router, f.arrived, f.H * f.b_p);
    }
    if (cast)
      b.kernel("cast back", category, KernelClass::kElementwise, b.scaled(f.arrived, f.H * f.b_p),
               b.scaled(f.arrived, f.w));
  }

  bool permute_fusion_;
  double capacity_factor_;
  bool pad_;
  std::int64_t pad_map_, pad_rows_;
  bool shared_overlap_;
  bool batch_overlap_;
};

}  // namespace

DispatcherEntry megatron_alltoall() {
  return {"alltoall",
          "Megatron AlltoAll: rows travel to their experts; capacity, padding, shared-expert overlap",
          make_dispatcher_of<AllToAll>};
}

}  // namespace moesim::models
