// KempnerForge expert parallelism (docs/spec.md 2.11): counts per rank, rows and expert ids (as float32)
// travel; all ranks of an EP group process the same tokens; zero contributions keep every gradient path
// alive.
#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "models/dispatchers/parts/capacity.h"
#include "models/dispatchers/parts/common.h"
#include "models/programs/check.h"

namespace moesim::models {

namespace {

constexpr std::array<std::string_view, 3> kReplicated{"auto", "true", "false"};
constexpr std::array<std::string_view, 4> kExperts{"auto", "grouped", "loop", "padded"};

// The branch of the expert computation. kPadded: the older grouped one, a batch of equal sizes.
enum class Branch : std::uint8_t { kGrouped, kLoop, kPadded };

bool has_grouped_product(DType type) { return type == DType::kBf16 || type == DType::kFp16; }

// Shared state of the functions below for one layer.
struct Forge {
  const MoeLayer& layer;
  const LayerSizes& f;
  ProgramBuilder& b;
  ExpertBlock block;
  Branch branch = Branch::kGrouped;
  bool packed = true;

  int matrices() const { return f.gated ? 3 : 2; }
  std::int64_t expert_bytes() const { return matrices() * f.H * f.F * bytes_of(layer.weight); }
  // Weights of all local experts of a rank.
  PerRank weights() const { return b.uniform(f.E_l * expert_bytes()); }
  PerRank received() const { return b.scaled(f.computed, f.w); }
  // Returns the rows of each rank's e-th expert.
  std::vector<std::int64_t> rows_of(int e) const {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(f.R));
    for (int r = 0; r < f.R; ++r)
      rows[static_cast<std::size_t>(r)] = f.experts[static_cast<std::size_t>(r) * f.E_l + e];
    return rows;
  }
};

bool any(const std::vector<std::int64_t>& counts) {
  return std::any_of(counts.begin(), counts.end(), [](std::int64_t n) { return n > 0; });
}

// bincount reads minimum and maximum back (two hidden syncs); `list`: also copies the counts to the host.
void count(ProgramBuilder& b, std::string_view name, const std::vector<std::int64_t>& keys, std::int64_t bins,
           bool list) {
  b.kernel(name, Category::permute, KernelClass::kReduce, b.scaled(keys, 16), b.uniform(16), 2);
  b.host_sync("minimum of bincount", Category::host_sync, b.uniform(8));
  b.host_sync("maximum of bincount", Category::host_sync, b.uniform(8));
  b.kernel(name, Category::permute, KernelClass::kHistogram, b.scaled(keys, 8), b.uniform(bins * 8));
  if (list) b.host_sync(name, Category::host_sync, b.uniform(bins * 8));
}

// An index by a mask over `all` rows: nonzero(), whose number of results the host reads.
void indices_of_mask(ProgramBuilder& b, std::string_view name, const std::vector<std::int64_t>& all,
                     const std::vector<std::int64_t>& chosen) {
  b.kernel(name, Category::expert, KernelClass::kSelect, b.scaled(all, 1), b.scaled(chosen, 8));
  b.host_sync(name, Category::host_sync, b.uniform(8));
}

// Computes ids == e over all rows; the host reads `read` of it.
void mask_of_expert(const Forge& g, std::string_view read) {
  g.b.kernel("mask of an expert", Category::expert, KernelClass::kSelect, g.b.scaled(g.f.computed, 8 + 1),
             g.b.scaled(g.f.computed, 1), 2);
  g.b.host_sync(read, Category::host_sync, g.b.uniform(8));
}

// Calls `add` for each expert that has rows, on the ranks that have them. `masks`: adds its mask and any() first.
void for_each_expert(const Forge& g, bool masks,
                     const std::function<void(const std::vector<std::int64_t>& rows)>& add) {
  for (int e = 0; e < g.f.E_l; ++e) {
    const std::vector<std::int64_t> rows = g.rows_of(e);
    if (masks) mask_of_expert(g, "any row");
    if (!any(rows)) continue;
    g.b.only_on(rows);
    add(rows);
    g.b.on_all_ranks();
  }
}

// The fallback without a grouped kernel: for each expert a mask and any(); with rows also a masked gather and
// a masked write, each read back. The products of all experts form one operation after the gathers.
void loop_forward(const Forge& g) {
  g.b.kernel("zeros for the output", Category::expert, KernelClass::kCopy, g.b.uniform(0), g.received());
  for_each_expert(g, true, [&](const auto& rows) {
    indices_of_mask(g.b, "masked gather", g.f.computed, rows);
    gather_rows(g.b, "masked gather", Category::expert, rows, g.f.w);
  });
  experts_forward(g.b, g.block);
  for_each_expert(g, false, [&](const auto& rows) {
    indices_of_mask(g.b, "masked write", g.f.computed, rows);
    g.b.kernel("masked write", Category::expert, KernelClass::kScatterRows, g.b.scaled(rows, g.f.w + 8),
               g.b.scaled(rows, g.f.w));
  });
}

// The gradients of masked writes: overwritten values get none (not needed for the zeros under the first
// write), the rows are gathered; each recomputes the index from its mask.
void masked_write_backward(const Forge& g, bool first_needs_none) {
  std::vector<std::int64_t> written(static_cast<std::size_t>(g.f.R), first_needs_none ? 0 : 1);
  for (int e = 0; e < g.f.E_l; ++e) {
    const std::vector<std::int64_t> rows = g.rows_of(e);
    std::vector<std::int64_t> cleared(rows.size());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      cleared[r] = written[r] > 0 ? rows[r] : 0;
      written[r] += rows[r];
    }
    if (any(cleared)) {
      g.b.only_on(cleared);
      indices_of_mask(g.b, "clear of masked rows", g.f.computed, cleared);
      g.b.kernel("clear of masked rows", Category::expert, KernelClass::kScatterRows,
                 combined(g.b, g.f.computed, g.f.w, cleared, 8),
                 combined(g.b, g.f.computed, g.f.w, cleared, g.f.w), 2);
      g.b.on_all_ranks();
    }
    if (!any(rows)) continue;
    g.b.only_on(rows);
    indices_of_mask(g.b, "masked write backward", g.f.computed, rows);
    gather_rows(g.b, "masked write backward", Category::expert, rows, g.f.w);
    g.b.on_all_ranks();
  }
}

// The gradients of masked gathers: zeros for all rows, filled with those of the mask, added up.
void masked_gather_backward(const Forge& g) {
  for_each_expert(g, false, [&](const auto& rows) {
    indices_of_mask(g.b, "masked gather backward", g.f.computed, rows);
    g.b.kernel("masked gather backward", Category::expert, KernelClass::kScatterAdd,
               combined(g.b, g.f.computed, 2 * g.f.w, rows, 2 * g.f.w + 8),
               combined(g.b, g.f.computed, 2 * g.f.w, rows, g.f.w), 3);
  });
}

// Rule Z: adds 0 * sum(p) for parameters without a row, so that their gradients, zeros, are written. Packed
// weights need it only where no row arrived at all; a list of modules for each expert without a row.
void zero_contribution(const Forge& g, bool backward) {
  const LayerSizes& f = g.f;
  std::vector<std::int64_t> empty(static_cast<std::size_t>(f.R));
  for (int r = 0; r < f.R; ++r) {
    const auto first = f.experts.begin() + std::ptrdiff_t{r} * f.E_l;
    empty[static_cast<std::size_t>(r)] = std::count(first, first + f.E_l, 0);
    if (g.packed) empty[static_cast<std::size_t>(r)] /= f.E_l;  // over all local experts: 1 or 0
  }
  const std::int64_t bytes = g.packed ? f.E_l * g.expert_bytes() : g.expert_bytes();
  // The grouped branch adds each parameter's zero to the whole output, the loop adds the sum of all.
  const bool each_added = !g.packed && g.branch != Branch::kLoop;
  for (std::int64_t k = 0; k < *std::max_element(empty.begin(), empty.end()); ++k) {
    std::vector<std::int64_t> with(empty.size()), added(empty.size());
    for (std::size_t r = 0; r < empty.size(); ++r) {
      with[r] = empty[r] > k ? 1 : 0;
      added[r] = each_added ? g.matrices() * f.computed[r] * f.w : k == 0 ? f.computed[r] * f.w : 0;
    }
    g.b.only_on(with);
    if (backward)
      g.b.kernel("zero gradients", Category::expert, KernelClass::kCopy, g.b.uniform(0), g.b.uniform(bytes),
                 g.matrices());
    else
      g.b.kernel("zero contribution", Category::expert, KernelClass::kReduce,
                 combined(g.b, with, bytes, added, 1), g.b.per_rank(added), 3 * g.matrices());
    g.b.on_all_ranks();
  }
}

// Multiplies each expert's rows by average / its rows: a count without a list, then per expert a mask, its
// count read by the host, and a masked read and write.
void scale_gradients(const Forge& g) {
  g.b.only_on(g.f.computed);
  count(g.b, "rows per expert again", g.f.computed, g.f.E_l, false);
  g.b.on_all_ranks();
  for (int e = 0; e < g.f.E_l; ++e) {
    const std::vector<std::int64_t> rows = g.rows_of(e);
    g.b.only_on(g.f.computed);
    mask_of_expert(g, "rows of an expert");
    g.b.on_all_ranks();
    if (!any(rows)) continue;
    g.b.only_on(rows);
    indices_of_mask(g.b, "masked read", g.f.computed, rows);
    gather_rows(g.b, "masked read", Category::expert, rows, g.f.w);
    g.b.kernel("scale an expert's rows", Category::expert, KernelClass::kElementwise, g.b.scaled(rows, g.f.w),
               g.b.scaled(rows, g.f.w));
    indices_of_mask(g.b, "masked write", g.f.computed, rows);
    g.b.kernel("masked write", Category::expert, KernelClass::kScatterRows, g.b.scaled(rows, g.f.w + 8),
               g.b.scaled(rows, g.f.w));
    g.b.on_all_ranks();
  }
}
void scale_gradients_backward(const Forge& g) {
  masked_write_backward(g, false);
  g.b.kernel("scale an expert's rows backward", Category::expert, KernelClass::kElementwise, g.received(),
             g.received(), g.f.E_l);
  masked_gather_backward(g);
}

class KempnerForge final : public Dispatcher {
 public:
  explicit KempnerForge(DispatcherOptions& options)
      : replicated_(options.choice("replicated", 0, kReplicated)),
        experts_(options.choice("experts", 0, kExperts)),
        packed_(options.flag("packed", true)),
        gradient_scale_(options.flag("gradient_scale", false)),
        graph_edge_(options.flag("graph_edge", true)),
        capacity_factor_(options.number("capacity_factor", 0, 0, 1e6)) {}

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.etp > 1) return "KempnerForge does not split experts over etp";
    if ((experts_ == 1 || experts_ == 3) && !has_grouped_product(layer.activation))
      return "grouped products take bf16 and fp16; rows of other types go through experts=loop";
    if (gradient_scale_ && !layer.train)
      return "gradient_scale runs where gradients are asked for: it needs training";
    if (!graph_edge_ && layer.ep == 1) return "graph_edge applies to the EP exchange, and EP is 1";
    if (!graph_edge_ && layer.train) return mismatch_without_edge(layer);
    return std::nullopt;
  }

  Program build(const MoeLayer& layer) const override {
    // A given routing holds for each rank; a drawn one is shared by the group, as the data loader does.
    const bool replicate = layer.ep > 1 && (replicated_ == 1 || (replicated_ == 0 && !layer.routing_given));
    const Routing shared = replicate ? layer.routing->replicated() : Routing();
    const LayerSizes f(layer, replicate ? shared : *layer.routing);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    b.program().tokens_replicated = replicate;
    Forge g{layer, f, b, expert_block(layer, f, b), branch_of(layer), packed_};
    g.block.split_gate = true;
    g.block.backend = g.branch == Branch::kLoop ? GemmBackend::kLoop : GemmBackend::kGroupedMm;
    if (g.branch == Branch::kPadded) pad_to_largest(b, f, g.block);
    f.ep > 1 ? build_exchange(g) : build_local(g);
    if (capacity_factor_ > 0) b.program().dropped_rows = rows_over_capacity(f);
    return finish(b, layer, f, g.block.rows);
  }

 private:
  Branch branch_of(const MoeLayer& layer) const {
    if (experts_ == 0) return has_grouped_product(layer.activation) ? Branch::kGrouped : Branch::kLoop;
    return static_cast<Branch>(experts_ - 1);
  }

  // Rule P (docs/spec.md 2.11) on two such layers without the added 0 * sum(received): ranks whose experts
  // received no row have no gradient path through the dispatch and skip its backward.
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

  // Layers split over ep: exchange, compute, exchange.
  void build_exchange(const Forge& g) const {
    const LayerSizes& f = g.f;
    ProgramBuilder& b = g.b;
    const int matrix = b.matrix(GroupKind::kEp, f.splits);
    const PerRank sent = b.scaled(f.sent, f.w), output = b.scaled(f.tokens, f.w);
    b.begin(ProgramBuilder::Pass::kForward);
    b.save("layer input", output);
    b.save("ids, order, weights", b.scaled(f.sent, 3 * 8 + f.b_p));
    sort_keys(b, "sort by rank", Category::permute, f.sent, 8, 8, 64);
    b.allocate("sorted rows", sent);
    gather_rows(b, "gather rows", Category::permute, f.sent, f.w);
    count(b, "rows per rank", f.sent, f.ep, true);
    b.all_to_all(GroupKind::kEp, "counts", Category::dispatch, DType::kInt64, std::int64_t{f.ep} * 8);
    b.host_sync("received rows per rank", Category::host_sync, b.uniform(std::int64_t{f.ep} * 8));
    b.allocate("received rows", g.received());
    b.all_to_all_v("tokens", Category::dispatch, g.layer.activation, matrix, false, f.w);
    b.kernel("expert ids as float32", Category::dispatch, KernelClass::kElementwise, b.scaled(f.sent, 8),
             b.scaled(f.sent, 4));
    b.all_to_all_v("expert ids", Category::dispatch, DType::kFp32, matrix, false, 4);
    b.kernel("expert ids as integers", Category::dispatch, KernelClass::kElementwise, b.scaled(f.computed, 4),
             b.scaled(f.computed, 8));
    compute(g);
    b.allocate("returned rows", sent);
    b.all_to_all_v("tokens", Category::combine, g.layer.activation, matrix, true, f.w);
    b.save("rows for the gradient of the weights", sent);
    sort_keys(b, "invert order", Category::unpermute, f.sent, 8, 8, 64);
    gather_rows(b, "unsort returned rows", Category::unpermute, f.sent, f.w);
    b.kernel("multiply weights", Category::unpermute, KernelClass::kElementwise,
             b.scaled(f.sent, f.w + f.b_p), sent);
    b.allocate("output", output);
    scatter_add(b, "scatter_add", Category::unpermute, f.sent, f.tokens, f.w);
    b.free("output", output);
    b.free("returned rows", sent);
    b.free("received rows", g.received());
    b.free("sorted rows", sent);
    free_expert_output(b, g.block);
    if (!g.layer.train) return;
    b.begin(ProgramBuilder::Pass::kBackward);
    b.allocate("gradient of returned rows", sent);
    gather_rows(b, "scatter_add backward", Category::unpermute, f.sent, f.w);
    b.kernel("weights backward", Category::unpermute, KernelClass::kElementwise,
             b.scaled(f.sent, 2 * f.w + f.b_p), b.scaled(f.sent, f.w + f.b_p), 2);
    b.kernel("unsort returned rows backward", Category::unpermute, KernelClass::kScatterRows,
             b.scaled(f.sent, f.w + 8), sent);
    b.allocate("incoming gradient", g.received());
    b.all_to_all_v("output gradient", Category::combine, g.layer.activation, matrix, false, f.w);
    compute_backward(g);
    b.all_to_all_v("hidden gradient", Category::dispatch, g.layer.activation, matrix, true, f.w);
    b.allocate("gradient of the input", output);
    scatter_add(b, "gather rows backward", Category::permute, f.sent, f.tokens, f.w);
    b.free("gradient of the input", output);
    b.free("incoming gradient", g.received());
    b.free("gradient of returned rows", sent);
  }

  // Computes the received rows of a rank.
  void compute(const Forge& g) const {
    const LayerSizes& f = g.f;
    ProgramBuilder& b = g.b;
    b.save("expert input", g.received());
    if (g.branch == Branch::kLoop) {
      loop_forward(g);
    } else {
      sort_keys(b, "sort by expert", Category::permute, f.computed, 8, 8, 64);
      gather_rows(b, "rows by expert", Category::permute, f.computed, f.w);
      count(b, "rows per expert", f.computed, f.E_l, true);
      stack_weights(g);
      experts_forward(b, g.block);
      sort_keys(b, "invert permutation", Category::unpermute, f.computed, 8, 8, 64);
      gather_rows(b, "unsort rows", Category::unpermute, f.computed, f.w);
    }
    save_silu(g);
    zero_contribution(g, false);
    if (gradient_scale_) scale_gradients(g);
    // Adds the sum of the received rows, times 0, to the output: a read, then a read and a write.
    if (graph_edge_) {
      b.kernel("keep the graph edge", Category::unpermute, KernelClass::kReduce, g.received(), b.uniform(4),
               2);
      b.kernel("add the graph edge", Category::unpermute, KernelClass::kElementwise, g.received(),
               g.received());
    }
  }

  // The gradient of the added sum is the sum of all gradients, times 0; after the experts it is added to
  // every gradient of a received row.
  void graph_edge_backward(const Forge& g, bool behind_experts) const {
    if (!graph_edge_) return;
    if (behind_experts)
      g.b.kernel("add the graph edge backward", Category::unpermute, KernelClass::kElementwise, g.received(),
                 g.received());
    else
      g.b.kernel("keep the graph edge backward", Category::unpermute, KernelClass::kReduce, g.received(),
                 g.b.uniform(4), 2);
  }

  void compute_backward(const Forge& g) const {
    const LayerSizes& f = g.f;
    graph_edge_backward(g, false);
    if (gradient_scale_) scale_gradients_backward(g);
    zero_contribution(g, true);
    if (g.branch == Branch::kLoop) {
      masked_write_backward(g, true);
      experts_backward(g.b, g.block);
      masked_gather_backward(g);
      graph_edge_backward(g, true);
      return;
    }
    gather_rows(g.b, "unsort backward", Category::unpermute, f.computed, f.w);
    experts_backward(g.b, g.block);
    unstack_gradients(g);
    g.b.kernel("rows by expert backward", Category::permute, KernelClass::kScatterRows,
               g.b.scaled(f.computed, f.w + 8), g.received());
    graph_edge_backward(g, true);
  }

  // A list of modules is stacked for the grouped product in every forward, and its gradients are unstacked;
  // the loop uses each weight in place.
  void stack_weights(const Forge& g) const {
    if (packed_) return;
    g.b.save("stacked weights", g.weights());
    g.b.kernel("stack weights", Category::expert, KernelClass::kCopy, g.weights(), g.weights(), g.matrices());
  }
  void unstack_gradients(const Forge& g) const {
    if (packed_) return;
    g.b.allocate("stacked gradients", g.weights());
    g.b.kernel("unstack gradients", Category::expert, KernelClass::kCopy, g.weights(), g.weights(),
               g.matrices());
    g.b.free("stacked gradients", g.weights());
  }
  // SwiGLU keeps silu(gate) beside gate, up and their product.
  static void save_silu(const Forge& g) {
    if (g.f.gated) g.b.save("silu output", g.b.scaled(g.block.rows, g.f.F * g.f.b));
  }

  // ep 1: expert parallelism does nothing, and the layer computes its own tokens like a model without it: one
  // sort, no counts on the host (the products take their offsets on the GPU), no exchange, no edge.
  void build_local(const Forge& g) const {
    const LayerSizes& f = g.f;
    ProgramBuilder& b = g.b;
    const bool loop = g.branch == Branch::kLoop;
    const PerRank rows = b.scaled(f.sent, f.w), output = b.scaled(f.tokens, f.w);
    b.begin(ProgramBuilder::Pass::kForward);
    b.save("layer input", output);
    if (!loop) b.save("ids, order, weights", b.scaled(f.sent, 3 * 8 + f.b_p));
    b.save("expert input", rows);
    if (loop) {
      b.allocate("output", output);
      local_loop(g);
    } else {
      sort_keys(b, "sort by expert", Category::permute, f.sent, 8, 8, 64);
      gather_rows(b, "rows by expert", Category::permute, f.sent, f.w);
      count(b, "rows per expert", f.sent, f.E_l, false);
      stack_weights(g);
      experts_forward(b, g.block);
      if (gradient_scale_)
        b.kernel("scale by load", Category::expert, KernelClass::kElementwise, b.scaled(f.sent, f.w + 4),
                 rows, 4);
      b.save("rows for the gradient of the weights", rows);
      b.kernel("multiply weights", Category::unpermute, KernelClass::kElementwise,
               b.scaled(f.sent, f.w + f.b_p), rows);
      b.allocate("output", output);
      scatter_add(b, "scatter_add", Category::unpermute, f.sent, f.tokens, f.w);
    }
    save_silu(g);
    b.free("output", output);
    free_expert_output(b, g.block);
    if (g.layer.train) local_backward(g, rows, output);
  }

  // Per expert a mask over the ids and any(); with rows, four more indexings by the mask: its input, the
  // weights, and the output read and written.
  void local_loop(const Forge& g) const {
    for_each_expert(g, true, [&](const auto& rows) {
      indices_of_mask(g.b, "masked gather", g.f.tokens, rows);
      gather_rows(g.b, "masked gather", Category::expert, rows, g.f.w);
      if (gradient_scale_)
        g.b.kernel("scale by load", Category::expert, KernelClass::kElementwise, g.b.scaled(rows, g.f.w),
                   g.b.scaled(rows, g.f.w), 3);
      indices_of_mask(g.b, "weights of the mask", g.f.tokens, rows);
    });
    experts_forward(g.b, g.block);
    for_each_expert(g, false, [&](const auto& rows) {
      indices_of_mask(g.b, "masked read", g.f.tokens, rows);
      indices_of_mask(g.b, "masked write", g.f.tokens, rows);
      g.b.kernel("masked sum", Category::unpermute, KernelClass::kScatterRows,
                 g.b.scaled(rows, 3 * g.f.w + 8), g.b.scaled(rows, 2 * g.f.w), 3);
    });
  }

  void local_backward(const Forge& g, PerRank rows, PerRank output) const {
    const LayerSizes& f = g.f;
    ProgramBuilder& b = g.b;
    b.begin(ProgramBuilder::Pass::kBackward);
    b.allocate("incoming gradient", rows);
    if (g.branch == Branch::kLoop) {
      masked_write_backward(g, true);
      experts_backward(b, g.block);
      b.allocate("gradient of the input", output);
      masked_gather_backward(g);
    } else {
      gather_rows(b, "scatter_add backward", Category::unpermute, f.sent, f.w);
      b.kernel("weights backward", Category::unpermute, KernelClass::kElementwise,
               b.scaled(f.sent, 2 * f.w + f.b_p), b.scaled(f.sent, f.w + f.b_p), 2);
      if (gradient_scale_)
        b.kernel("scale by load backward", Category::expert, KernelClass::kElementwise,
                 b.scaled(f.sent, f.w + 4), rows, 3);
      experts_backward(b, g.block);
      unstack_gradients(g);
      b.allocate("gradient of the input", output);
      scatter_add(b, "rows by expert backward", Category::permute, f.sent, f.tokens, f.w);
    }
    b.free("gradient of the input", output);
    b.free("incoming gradient", rows);
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
