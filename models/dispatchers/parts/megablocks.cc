#include "models/dispatchers/parts/megablocks.h"

#include <algorithm>
#include <numeric>
#include <string_view>

namespace moesim::models {

MegablocksOptions::MegablocksOptions(DispatcherOptions& options)
    : memory_optimized(options.flag("memory_optimized", false)),
      remat_act_fn(options.flag("remat_act_fn", true)),
      z_loss(options.flag("z_loss", false)),
      jitter_eps(options.number("jitter_eps", 0, 0, 1)),
      uniform(options.flag("uniform_expert_assignment", false)),
      normalize(options.number("normalize_expert_weights", 0, 0, 1e3)),
      z_loss_fp32(options.flag("zloss_in_fp32", false)),
      balance_loss_fp32(options.flag("lbl_in_fp32", false)),
      bias(options.flag("bias", false)),
      shared_expert_sum(options.flag("shared_expert_weighted_sum", false)) {
  if (z_loss_fp32 && !z_loss)
    options.fail("found zloss_in_fp32 without z_loss, expected both: it is of that loss");
  if (options.given("remat_act_fn") && !memory_optimized)
    options.fail("found remat_act_fn without memory_optimized, expected both: it is of that MLP");
}

std::optional<std::string> MegablocksOptions::illegal(const MoeLayer& layer) const {
  if (layer.etp > 1)
    return "MegaBlocks splits experts over the ep group itself (hidden sharding), not over etp";
  if (layer.ep > layer.experts() && layer.expert_ffn % (layer.ep / layer.experts()) != 0)
    return "the experts' inner size must be a multiple of the hidden sharding degree ep / experts";
  if (memory_optimized && layer.gated) return "memory_optimized needs experts without a gate";
  if ((z_loss || jitter_eps > 0 || balance_loss_fp32) && !layer.train)
    return "z_loss, jitter_eps and lbl_in_fp32 are of training: the router leaves them out without it";
  if (shared_expert_sum && layer.shared_ffn == 0)
    return "shared_expert_weighted_sum needs a model with a shared expert";
  if (uniform && !layer.routing->equal_tokens())
    return "uniform_expert_assignment is computed here for the same number of tokens on every rank";
  return std::nullopt;
}

namespace {

Routing uniform_routing(const MoeLayer& layer) {
  RoutingSpec spec;
  spec.kind = RoutingSpec::Kind::kRoundRobin;
  return make_routing(spec, layer.ranks(), layer.routing->tokens(0), layer.experts(), layer.topk(), 0);
}

}  // namespace

MegablocksFigures::MegablocksFigures(const MoeLayer& layer, const MegablocksOptions& options)
    : W(layer.ep),
      esd(std::min(layer.ep, layer.experts())),
      hsd(W / esd),
      E(layer.experts()),
      E_pr(E / esd),
      K(layer.topk()),
      H(layer.hidden),
      w(layer.hidden * bytes_of(layer.activation)),
      b(bytes_of(layer.activation)),
      b_p(bytes_of(layer.router)),
      F_pr(layer.expert_ffn / hsd),
      gated(layer.gated),
      tokens(W),
      sent(W),
      computed(W),
      experts(std::size_t(W) * E_pr),
      splits(std::size_t(W) * W) {
  const Routing uniform = options.uniform ? uniform_routing(layer) : Routing();
  const Routing& routing = options.uniform ? uniform : *layer.routing;
  const std::vector<std::int64_t> S = routing.split_matrix(esd);
  const std::vector<std::int64_t> N = routing.expert_totals();
  for (int r = 0; r < W; ++r) {
    tokens[r] = routing.tokens(r);
    for (int d = 0; d < W; ++d) splits[std::size_t(r) * W + d] = S[std::size_t(r) * esd + d % esd];
    for (int e = 0; e < esd; ++e) sent[r] += S[std::size_t(r) * esd + e];
    for (int e = 0; e < E_pr; ++e) {
      experts[std::size_t(r) * E_pr + e] = N[std::size_t(r % esd) * E_pr + e];
      computed[r] += N[std::size_t(r % esd) * E_pr + e];
    }
  }
}

namespace {

// Shared state of the functions below for one layer.
struct Blocks {
  const MoeLayer& layer;
  const MegablocksOptions& o;
  const MegablocksFigures& f;
  const MegablocksCompute& compute;
  ProgramBuilder& b;
  ExpertBlock block;
  int matrix = -1;

  bool parallel() const { return f.W > 1; }
  std::vector<std::int64_t> repeated() const {
    std::vector<std::int64_t> rows(f.sent);
    for (std::int64_t& r : rows) r *= f.hsd;
    return rows;
  }
  PerRank sent() const { return b.scaled(f.sent, f.w); }
  PerRank copies() const { return b.scaled(repeated(), f.w); }
  PerRank received() const { return b.scaled(f.computed, f.w); }
  PerRank input() const { return b.scaled(block.rows, f.w); }  // of the experts, padded
  PerRank output() const { return b.scaled(f.tokens, f.w); }
};

ExpertBlock block_of(const MoeLayer& layer, const MegablocksOptions& o, const MegablocksFigures& f,
                     const MegablocksCompute& compute, ProgramBuilder& b) {
  ExpertBlock block;
  block.rows = sums_per_rank(compute.rows, f.E_pr);
  block.table = b.table(f.E_pr, compute.rows);
  block.H = f.H;
  block.F = f.F_pr;
  block.b = f.b;
  block.b_p = f.b_p;
  block.experts = f.E_pr;
  block.gated = f.gated;
  block.split_gate = true;
  block.dtype = layer.activation;
  block.backend = compute.backend;
  block.recompute_activation =
      layer.recompute == Recompute::kActivation || (o.memory_optimized && o.remat_act_fn);
  return block;
}

void cast(const Blocks& m, std::string_view name, std::int64_t from, std::int64_t to) {
  m.b.kernel(name, Category::router, KernelClass::kElementwise, m.b.scaled(m.f.tokens, m.f.E * from),
             m.b.scaled(m.f.tokens, m.f.E * to));
}

// Adds the operations on the layer's output: a bias, and the shared expert's share of 1 / (topk + 1).
void output_extras(const Blocks& m, bool backward) {
  ProgramBuilder& b = m.b;
  if (m.o.bias)
    b.kernel(backward ? "bias backward" : "add bias", Category::unpermute,
             backward ? KernelClass::kReduce : KernelClass::kElementwise, m.output(),
             backward ? b.uniform(m.f.w) : m.output());
  if (!m.o.shared_expert_sum) return;
  if (backward)  // of both summands
    b.kernel("shares of the sum backward", Category::unpermute, KernelClass::kElementwise,
             b.scaled(m.f.tokens, 2 * m.f.w), b.scaled(m.f.tokens, 2 * m.f.w), 2);
  else
    b.kernel("share of the shared expert", Category::unpermute, KernelClass::kElementwise, m.output(),
             m.output());
}

// Adds the router's operations besides scores and top-k: noise on its input, logits kept for the z-loss,
// weights divided by their norm, and this layer's casts of the losses, which run once a step over all layers.
void router_extras(const Blocks& m) {
  ProgramBuilder& b = m.b;
  const std::int64_t logits = m.f.E * m.f.b;
  if (m.o.jitter_eps > 0) {
    b.save("jitter", m.output());
    b.kernel("jitter", Category::router, KernelClass::kElementwise, m.output(), m.output(), 3);
    b.kernel("input with jitter", Category::router, KernelClass::kElementwise,
             b.scaled(m.f.tokens, 2 * m.f.w), m.output());
  }
  if (m.o.z_loss) {
    b.save("logits for the z-loss", b.scaled(m.f.tokens, logits));
    b.kernel("z-loss", Category::router, KernelClass::kReduce, b.scaled(m.f.tokens, logits + 2 * 4),
             b.scaled(m.f.tokens, 2 * 4), 3);
  }
  if (m.o.z_loss_fp32) {
    b.save("logits for the z-loss in fp32", b.scaled(m.f.tokens, m.f.E * 4));
    cast(m, "logits in fp32", m.f.b, 4);
  }
  if (m.o.balance_loss_fp32) cast(m, "scores in fp32", m.f.b, 4);
  if (m.o.normalize > 0) {
    const std::int64_t weights = m.f.K * m.f.b_p;
    b.save("weights and their norm", b.scaled(m.f.tokens, weights + m.f.b_p));
    b.kernel("weights by their norm", Category::router, KernelClass::kReduce,
             b.scaled(m.f.tokens, 2 * weights + m.f.b_p), b.scaled(m.f.tokens, weights + m.f.b_p), 2);
  }
}
void router_extras_backward(const Blocks& m) {
  ProgramBuilder& b = m.b;
  const std::int64_t logits = m.f.E * m.f.b;
  if (m.o.normalize > 0)  // of the quotient by both, then of the norm
    b.kernel("weights by their norm backward", Category::router, KernelClass::kReduce,
             b.scaled(m.f.tokens, 5 * m.f.K * m.f.b_p), b.scaled(m.f.tokens, 3 * m.f.K * m.f.b_p), 4);
  if (m.o.balance_loss_fp32) cast(m, "scores in fp32 backward", 4, m.f.b);
  if (m.o.z_loss_fp32) cast(m, "logits in fp32 backward", 4, m.f.b);
  if (m.o.z_loss)
    b.kernel("z-loss backward", Category::router, KernelClass::kReduce, b.scaled(m.f.tokens, 2 * logits + 4),
             b.scaled(m.f.tokens, 2 * logits), 3);
  if (m.o.jitter_eps > 0)
    b.kernel("jitter backward", Category::router, KernelClass::kElementwise, b.scaled(m.f.tokens, 2 * m.f.w),
             m.output());
}

void sort_and_count(const Blocks& m) {
  ProgramBuilder& b = m.b;
  b.save("layer input", m.output());
  b.save("scores for the balance loss", b.scaled(m.f.tokens, m.f.E * 4));
  b.save("indices and weights", b.scaled(m.f.sent, 12));
  sort_keys(b, "sort ids", Category::permute, m.f.sent, 4, 4, bits_for(m.f.E));
  b.kernel("histogram and bins", Category::permute, KernelClass::kHistogram, b.scaled(m.f.sent, 4),
           b.uniform(m.f.E * 8), 2);
}

// One int16 column index per block of the sparse output, its transpose (a sort), and a histogram.
void topology(const Blocks& m) {
  std::vector<std::int64_t> blocks(m.block.rows);
  for (std::int64_t& n : blocks) n = n / m.compute.block * ceil_div(m.f.F_pr, m.compute.block);
  m.b.kernel("block topology", Category::permute, KernelClass::kSort, m.b.scaled(blocks, 2 * 2 + 8),
             m.b.scaled(blocks, 2 * 2 + 8), 6);
}

// permute_and_compute: rows into bins (whose padded size the host reads for the output), for block-sparse
// products the topology of their result, and the experts.
void permute_and_compute(const Blocks& m, const std::vector<std::int64_t>& rows) {
  ProgramBuilder& b = m.b;
  if (m.compute.topology) {
    b.kernel("padded bins", Category::permute, KernelClass::kElementwise,
             b.uniform(std::int64_t{m.f.E_pr} * 8), b.uniform(std::int64_t{m.f.E_pr} * 8), 2);
    b.host_sync("padded total", Category::host_sync, b.uniform(8));
  }
  b.save("expert input", m.input());
  b.kernel("gather into bins", Category::permute, KernelClass::kGatherRows, b.scaled(rows, m.f.w + 8),
           m.input());
  if (m.compute.topology) topology(m);
  if (m.compute.sync_counts)
    b.host_sync("counts for the products", Category::host_sync, b.uniform(std::int64_t{m.f.E_pr} * 8));
  experts_forward(b, m.block);
  if (m.f.gated && !m.block.recompute_activation)
    b.save("gate activation", b.scaled(m.block.rows, m.f.F_pr * m.f.b));
}

void forward_parallel(const Blocks& m) {
  ProgramBuilder& b = m.b;
  const MegablocksFigures& f = m.f;
  const std::int64_t bytes_of_counts = std::int64_t{f.E} * f.hsd * 4;
  const int counts =
      b.all_to_all(GroupKind::kEp, "counts", Category::dispatch, DType::kInt32, bytes_of_counts);
  b.detach();
  b.allocate("gathered rows", m.sent());
  gather_rows(b, "gather rows", Category::permute, f.sent, f.w);
  b.join(counts);
  b.host_sync("counts sent", Category::host_sync, b.uniform(bytes_of_counts));
  b.host_sync("counts received", Category::host_sync, b.uniform(bytes_of_counts));
  if (f.hsd > 1) {
    b.allocate("repeated rows", m.copies());
    b.kernel("repeat rows", Category::permute, KernelClass::kCopy, m.sent(), m.copies());
  }
  b.allocate("received rows", m.received());
  const int exchange = b.all_to_all_v("tokens", Category::dispatch, m.layer.activation, m.matrix, false, f.w);
  b.detach();
  b.kernel("bins of received rows", Category::permute, KernelClass::kSort, b.scaled(f.computed, 12),
           b.scaled(f.computed, 12), 4);
  if (m.compute.sync_capacity) b.host_sync("largest count", Category::host_sync, b.uniform(4));
  b.join(exchange);
  permute_and_compute(m, f.computed);
  b.kernel("scatter out of bins", Category::unpermute, KernelClass::kScatterRows,
           b.scaled(f.computed, f.w + 8), m.received());
  if (f.hsd == 1) b.allocate("returned rows", m.copies());
  b.all_to_all_v("tokens", Category::combine, m.layer.activation, m.matrix, true, f.w);
  if (f.hsd > 1)
    b.kernel("sum of hidden slices", Category::unpermute, KernelClass::kElementwise, m.copies(), m.sent());
  b.save("rows for the gradient of the weights", m.sent());
  b.allocate("output", m.output());
  b.kernel("scatter with weights", Category::unpermute, KernelClass::kScatterAdd,
           b.scaled(f.sent, f.w + 8 + f.b_p), m.output(), 1);
  b.free("output", m.output());
  if (f.hsd == 1) b.free("returned rows", m.copies());
  if (f.hsd > 1) b.free("repeated rows", m.copies());
  b.free("received rows", m.received());
  b.free("gathered rows", m.sent());
}

void backward_parallel(const Blocks& m) {
  ProgramBuilder& b = m.b;
  const MegablocksFigures& f = m.f;
  b.allocate("gradient of returned rows", m.copies());
  b.kernel("scatter backward", Category::unpermute, KernelClass::kGatherRows,
           b.scaled(f.sent, 2 * f.w + 8 + f.b_p), b.scaled(f.sent, f.w + f.b_p), 2);
  if (f.hsd > 1)
    b.kernel("repeat gradient rows", Category::unpermute, KernelClass::kCopy, m.sent(), m.copies());
  b.allocate("received gradient", m.received());
  b.all_to_all_v("output gradient", Category::combine, m.layer.activation, m.matrix, false, f.w);
  b.allocate("incoming gradient", m.input());
  b.kernel("scatter out of bins backward", Category::unpermute, KernelClass::kGatherRows,
           b.scaled(f.computed, f.w + 8), m.input());
  experts_backward(b, m.block);
  b.kernel("gather into bins backward", Category::permute, KernelClass::kScatterRows,
           b.scaled(f.computed, f.w + 8), m.received());
  b.all_to_all_v("hidden gradient", Category::dispatch, m.layer.activation, m.matrix, true, f.w);
  if (f.hsd > 1)
    b.kernel("sum of gradient copies", Category::permute, KernelClass::kElementwise, m.copies(), m.sent());
  b.allocate("gradient of the input", m.output());
  scatter_add(b, "gather rows backward", Category::permute, f.sent, f.tokens, f.w);
  b.free("gradient of the input", m.output());
  b.free("incoming gradient", m.input());
  b.free("received gradient", m.received());
  b.free("gradient of returned rows", m.copies());
}

// forward_once: without expert parallelism the rows go from the tokens into the bins and back, once.
void forward_local(const Blocks& m) {
  ProgramBuilder& b = m.b;
  const MegablocksFigures& f = m.f;
  if (m.compute.sync_capacity) b.host_sync("largest count", Category::host_sync, b.uniform(4));
  permute_and_compute(m, f.sent);
  b.save("rows for the gradient of the weights", m.input());
  b.allocate("output", m.output());
  b.kernel("scatter with weights", Category::unpermute, KernelClass::kScatterAdd,
           b.scaled(f.sent, f.w + 8 + f.b_p), m.output(), 1);
  b.free("output", m.output());
}

void backward_local(const Blocks& m) {
  ProgramBuilder& b = m.b;
  const MegablocksFigures& f = m.f;
  b.allocate("incoming gradient", m.input());
  b.kernel("scatter backward", Category::unpermute, KernelClass::kGatherRows,
           b.scaled(f.sent, 2 * f.w + 8 + f.b_p), combined(b, m.block.rows, f.w, f.sent, f.b_p), 2);
  experts_backward(b, m.block);
  b.allocate("gradient of the input", m.output());
  scatter_add(b, "gather into bins backward", Category::permute, f.sent, f.tokens, f.w);
  b.free("gradient of the input", m.output());
  b.free("incoming gradient", m.input());
}

}  // namespace

Program megablocks_program(const MoeLayer& layer, const MegablocksOptions& o, const MegablocksFigures& f,
                           const MegablocksCompute& compute) {
  ProgramBuilder b(layer.ep, layer.etp, layer.tp);
  const int matrix = b.matrix(GroupKind::kEp, f.splits);
  const Blocks m{layer, o, f, compute, b, block_of(layer, o, f, compute, b), matrix};
  b.begin(ProgramBuilder::Pass::kForward);
  router_extras(m);
  sort_and_count(m);
  m.parallel() ? forward_parallel(m) : forward_local(m);
  free_expert_output(b, m.block);
  output_extras(m, false);
  if (layer.train) {
    b.begin(ProgramBuilder::Pass::kBackward);
    output_extras(m, true);
    m.parallel() ? backward_parallel(m) : backward_local(m);
    router_extras_backward(m);
  }
  Program& p = b.program();
  p.dropped_rows = compute.dropped;
  p.forces_routing = o.uniform;
  p.tokens = f.tokens;
  p.computed_rows = m.block.rows;
  // Blocks of 128 rows, and bins of a capacity, are filled up with zeros, which are not tokens.
  p.dispatched_rows = m.block.rows;
  for (int r = 0; r < f.W; ++r) p.dispatched_rows[r] = std::min(p.dispatched_rows[r], f.computed[r]);
  p.balanced_rows.resize(f.W);
  for (int r = 0; r < f.W; ++r) p.balanced_rows[r] = f.tokens[r] * f.K;
  if (layer.train && layer.recompute == Recompute::kFull) b.recompute_all(m.output());
  return b.finish();
}

}  // namespace moesim::models
