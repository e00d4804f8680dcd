// KempnerForge expert parallelism (docs/spec.md 2.11): counts per rank, rows and expert ids (as float32)
// travel; all ranks of an EP group process the same tokens; zero contributions keep every gradient path
// alive.
#include <array>

#include "models/dispatchers/parts/capacity.h"
#include "models/dispatchers/parts/common.h"
#include "models/programs/check.h"

namespace moesim::models {

namespace {

constexpr std::array<std::string_view, 3> kReplicated{"auto", "true", "false"};
constexpr std::array<std::string_view, 3> kExperts{"grouped", "loop", "padded"};

class KempnerForge final : public Dispatcher {
 public:
  explicit KempnerForge(DispatcherOptions& options)
      : replicated_(options.choice("replicated", 0, kReplicated)),
        experts_(options.choice("experts", 0, kExperts)),
        packed_(options.flag("packed", true)),
        gradient_scale_(options.flag("gradient_scale", false)),
        graph_edge_(options.flag("graph_edge", true)),
        capacity_factor_(options.number("capacity_factor", 0, 0, 1e6)) {
    if (!packed_ && experts_ == 1)
      options.fail(
          "found packed=false with experts=loop, expected one of them: the loop uses each weight in place");
  }

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.etp > 1) return "KempnerForge does not split experts over etp";
    if (!graph_edge_ && layer.train) return mismatch_without_edge(layer);
    return std::nullopt;
  }

  Program build(const MoeLayer& layer) const override {
    // Given routing is what each rank really routes; a drawn one is shared by the group, as the data loader
    // does.
    const bool replicate = replicated_ == 1 || (replicated_ == 0 && !layer.routing_given);
    const Routing shared = replicate ? layer.routing->replicated() : Routing();
    const LayerSizes f(layer, replicate ? shared : *layer.routing);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    b.program().tokens_replicated = replicate && f.ep > 1;
    const int matrix = b.matrix(GroupKind::kEp, f.splits);
    ExpertBlock block = expert_block(layer, f, b);
    block.split_gate = true;
    if (experts_ == 1) block.backend = GemmBackend::kLoop;
    if (experts_ == 2) pad_to_largest(b, f, block);
    const std::int64_t weights = (f.gated ? 3 : 2) * std::int64_t{f.E_l} * f.H * f.F * bytes_of(layer.weight);
    const PerRank sent = b.scaled(f.sent, f.w), received = b.scaled(f.computed, f.w);
    const PerRank output = b.scaled(f.tokens, f.w);

    b.begin(ProgramBuilder::Pass::kForward);
    b.save("layer input", b.scaled(f.tokens, f.w));
    b.save("ids, order, weights", b.scaled(f.sent, 3 * 8 + f.b_p));
    sort_keys(b, "sort by rank", Category::permute, f.sent, 8, 8, 64);
    b.allocate("sorted rows", sent);
    gather_rows(b, "gather rows", Category::permute, f.sent, f.w);
    if (f.ep > 1) {
      count(b, "rows per rank", f.sent, f.ep);
      b.all_to_all(GroupKind::kEp, "counts", Category::dispatch, DType::kInt64, std::int64_t{f.ep} * 8);
      b.host_sync("received rows per rank", Category::host_sync, b.uniform(std::int64_t{f.ep} * 8));
    }
    b.allocate("received rows", received);
    b.all_to_all_v("tokens", Category::dispatch, layer.activation, matrix, false, f.w);
    b.all_to_all_v("expert ids", Category::dispatch, DType::kFp32, matrix, false, 4);
    sort_keys(b, "sort by expert", Category::permute, f.computed, 8, 8, 64);
    b.save("expert input", received);
    gather_rows(b, "rows by expert", Category::permute, f.computed, f.w);
    count(b, "rows per expert", f.computed, f.E_l);
    if (!packed_) {
      b.save("stacked weights", b.uniform(weights));
      b.kernel("stack weights", Category::expert, KernelClass::kCopy, b.uniform(weights), b.uniform(weights),
               3);
    }
    run_experts(b, f, block);
    sort_keys(b, "invert permutation", Category::unpermute, f.computed, 8, 8, 64);
    gather_rows(b, "unsort rows", Category::unpermute, f.computed, f.w);
    zero_contribution(b, layer, f);
    if (gradient_scale_) scale_gradients(b, f);
    if (graph_edge_)
      b.kernel("keep the graph edge", Category::unpermute, KernelClass::kReduce, received, b.uniform(4), 2);
    b.allocate("returned rows", sent);
    b.all_to_all_v("tokens", Category::combine, layer.activation, matrix, true, f.w);
    b.save("rows for the gradient of the weights", sent);
    sort_keys(b, "invert order", Category::unpermute, f.sent, 8, 8, 64);
    gather_rows(b, "unsort returned rows", Category::unpermute, f.sent, f.w);
    b.kernel("multiply weights", Category::unpermute, KernelClass::kElementwise,
             b.scaled(f.sent, f.w + f.b_p), sent);
    b.allocate("output", output);
    scatter_add(b, "scatter_add", Category::unpermute, f.sent, f.tokens, f.w);
    b.free("output", output);
    b.free("returned rows", sent);
    b.free("received rows", received);
    b.free("sorted rows", sent);
    free_expert_output(b, block);

    if (layer.train) {
      b.begin(ProgramBuilder::Pass::kBackward);
      b.allocate("gradient of returned rows", sent);
      gather_rows(b, "scatter_add backward", Category::unpermute, f.sent, f.w);
      b.kernel("weights backward", Category::unpermute, KernelClass::kElementwise,
               b.scaled(f.sent, 2 * f.w + f.b_p), b.scaled(f.sent, f.w + f.b_p), 2);
      b.allocate("incoming gradient", received);
      b.all_to_all_v("output gradient", Category::combine, layer.activation, matrix, false, f.w);
      gather_rows(b, "unsort backward", Category::unpermute, f.computed, f.w);
      experts_backward(b, block);
      if (!packed_) {
        const PerRank stacked = b.uniform(weights);
        b.allocate("stacked gradients", stacked);
        b.kernel("unstack gradients", Category::expert, KernelClass::kCopy, stacked, stacked, 3);
        b.free("stacked gradients", stacked);
      }
      b.kernel("rows by expert backward", Category::permute, KernelClass::kScatterRows,
               b.scaled(f.computed, f.w + 8), received);
      b.all_to_all_v("hidden gradient", Category::dispatch, layer.activation, matrix, true, f.w);
      b.allocate("gradient of the input", output);
      scatter_add(b, "gather rows backward", Category::permute, f.sent, f.tokens, f.w);
      b.free("gradient of the input", output);
      b.free("incoming gradient", received);
      b.free("gradient of returned rows", sent);
    }
    if (capacity_factor_ > 0) b.program().dropped_rows = rows_over_capacity(f);
    return finish(b, layer, f, block.rows);
  }

 private:
  // Rule P (docs/spec.md 2.11) on two such layers without the added 0 * sum(received): ranks whose experts
  // got no row have no gradient path through the dispatch and skip its backward.
  std::optional<std::string> mismatch_without_edge(const MoeLayer& layer) const {
    const Program p = build(layer);
    std::vector<std::vector<IssuedCollective>> members =
        issued(p, p.backward(), GroupKind::kEp, 0, "layer 2 ");
    const auto lower = issued(p, p.backward(), GroupKind::kEp, 0, "layer 1 ");
    for (std::size_t m = 0; m < members.size(); ++m) {
      members[m].insert(members[m].end(), lower[m].begin(), lower[m].end());
      if (members[m].size() == 4 && p.computed_rows[m] == 0) {
        members[m].erase(members[m].begin() + 3);
        members[m].erase(members[m].begin() + 1);
      }
    }
    const auto mismatch = match_positions(members);
    return mismatch ? std::optional(mismatch->text) : std::nullopt;
  }

  // bincount reads minimum and maximum back (two hidden syncs), then the list itself is copied.
  static void count(ProgramBuilder& b, std::string_view name, const std::vector<std::int64_t>& keys,
                    std::int64_t bins) {
    b.kernel(name, Category::permute, KernelClass::kReduce, b.scaled(keys, 16), b.uniform(16), 2);
    b.host_sync("minimum of bincount", Category::host_sync, b.uniform(8));
    b.host_sync("maximum of bincount", Category::host_sync, b.uniform(8));
    b.kernel(name, Category::permute, KernelClass::kHistogram, b.scaled(keys, 8), b.uniform(bins * 8));
    b.host_sync(name, Category::host_sync, b.uniform(bins * 8));
  }

  void run_experts(ProgramBuilder& b, const LayerSizes& f, const ExpertBlock& block) const {
    if (experts_ == 1)  // per expert: a mask over all rows, any(), masked gather and write, each read back
      for (int e = 0; e < f.E_l; ++e) {
        b.kernel("mask of an expert", Category::expert, KernelClass::kSelect, b.scaled(f.computed, 8 + 3),
                 b.scaled(f.computed, 1), 3);
        for (const std::string_view what : {"any row", "masked gather", "masked write"})
          b.host_sync(what, Category::host_sync, b.uniform(8));
      }
    experts_forward(b, block);
    // SwiGLU keeps silu(gate) beside gate, up and their product.
    if (f.gated) b.save("silu output", b.scaled(block.rows, f.F * f.b));
  }

  // The older grouped path: a batch of E_l times the largest count.
  static void pad_to_largest(ProgramBuilder& b, const LayerSizes& f, ExpertBlock& block) {
    std::vector<std::int64_t> padded(f.experts.size());
    for (int r = 0; r < f.R; ++r) {
      const auto first = f.experts.begin() + std::ptrdiff_t(r) * f.E_l;
      std::fill_n(padded.begin() + std::ptrdiff_t(r) * f.E_l, f.E_l, *std::max_element(first, first + f.E_l));
    }
    block.rows = sums_per_rank(padded, f.E_l);
    block.table = b.table(f.E_l, padded);
    block.backend = GemmBackend::kBatched;
  }

  // Rule Z: parameters without a row are read, and their gradient is zero. Packed weights need it only when
  // no row arrived at all.
  void zero_contribution(ProgramBuilder& b, const MoeLayer& layer, const LayerSizes& f) const {
    const std::int64_t expert = (f.gated ? 3 : 2) * f.H * f.F * bytes_of(layer.weight);
    std::vector<std::int64_t> unused(f.R);
    bool any = false;
    for (int r = 0; r < f.R; ++r) {
      std::int64_t empty = 0;
      for (int e = 0; e < f.E_l; ++e) empty += f.experts[std::size_t(r) * f.E_l + e] == 0;
      if (packed_ && empty < f.E_l) empty = 0;
      unused[r] = empty * expert;
      any = any || empty > 0;
    }
    if (any)
      b.kernel("zero contribution", Category::expert, KernelClass::kReduce, b.per_rank(unused), b.uniform(4),
               2);
  }

  static void scale_gradients(ProgramBuilder& b, const LayerSizes& f) {
    count(b, "rows per expert again", f.computed, f.E_l);
    for (int e = 0; e < f.E_l; ++e) {
      b.host_sync("rows of an expert", Category::host_sync, b.uniform(8));
      b.kernel("scale an expert's rows", Category::unpermute, KernelClass::kSelect,
               b.scaled(f.computed, f.w / f.E_l + 8), b.scaled(f.computed, f.w / f.E_l), 2);
      b.host_sync("masked read", Category::host_sync, b.uniform(8));
      b.host_sync("masked write", Category::host_sync, b.uniform(8));
    }
  }

  // Excess assignments get weight 0; their rows are still sent and computed.
  std::int64_t rows_over_capacity(const LayerSizes& f) const {
    std::int64_t over = 0;
    for (int r = 0; r < f.R; ++r) {
      const std::int64_t C = std::max<std::int64_t>(1, capacity(f.tokens[r], f.K, f.E, capacity_factor_));
      for (int e = 0; e < f.E; ++e) over += std::max<std::int64_t>(0, f.routing->count(r, e) - C);
    }
    return over;
  }

  std::size_t replicated_, experts_;
  bool packed_, gradient_scale_, graph_edge_;
  double capacity_factor_;
};

}  // namespace

DispatcherEntry kempnerforge() {
  return {"kempnerforge",
          "KempnerForge: counts, rows and float32 expert ids; tokens replicated over the EP group",
          make_dispatcher_of<KempnerForge>};
}

}  // namespace moesim::models
