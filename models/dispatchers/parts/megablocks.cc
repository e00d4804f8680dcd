#include "models/dispatchers/parts/megablocks.h"

#include <algorithm>
#include <numeric>

namespace moesim::models {

MegablocksOptions::MegablocksOptions(DispatcherOptions& options)
    : memory_optimized(options.flag("memory_optimized", false)) {}

std::optional<std::string> MegablocksOptions::illegal(const MoeLayer& layer) const {
  if (layer.etp > 1)
    return "MegaBlocks splits experts over the ep group itself (hidden sharding), not over etp";
  if (layer.ep > layer.experts() && layer.expert_ffn % (layer.ep / layer.experts()) != 0)
    return "the experts' inner size must be a multiple of the hidden sharding degree ep / experts";
  if (memory_optimized && layer.gated) return "memory_optimized needs experts without a gate";
  return std::nullopt;
}

MegablocksFigures::MegablocksFigures(const MoeLayer& layer)
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
  const std::vector<std::int64_t> S = layer.routing->split_matrix(esd);
  const std::vector<std::int64_t> N = layer.routing->expert_totals();
  for (int r = 0; r < W; ++r) {
    tokens[r] = layer.routing->tokens(r);
    for (int d = 0; d < W; ++d) splits[std::size_t(r) * W + d] = S[std::size_t(r) * esd + d % esd];
    for (int e = 0; e < esd; ++e) sent[r] += S[std::size_t(r) * esd + e];
    for (int e = 0; e < E_pr; ++e) {
      experts[std::size_t(r) * E_pr + e] = N[std::size_t(r % esd) * E_pr + e];
      computed[r] += N[std::size_t(r % esd) * E_pr + e];
    }
  }
}

namespace {

void add_topology(ProgramBuilder& b, const MegablocksFigures& f, const ExpertBlock& block,
                  std::int64_t width) {
  // One int16 column index per block of the sparse output, its transpose (a sort), and a histogram.
  std::vector<std::int64_t> blocks(f.W);
  for (int r = 0; r < f.W; ++r) blocks[r] = block.rows[r] / width * ceil_div(f.F_pr, width);
  b.kernel("block topology", Category::permute, KernelClass::kSort, b.scaled(blocks, 2 * 2 + 8),
           b.scaled(blocks, 2 * 2 + 8), 6);
}

}  // namespace

Program megablocks_program(const MoeLayer& layer, const MegablocksOptions& o, const MegablocksFigures& f,
                           const MegablocksCompute& compute) {
  ProgramBuilder b(layer.ep, layer.etp, layer.tp);
  const int matrix = b.matrix(GroupKind::kEp, f.splits);
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
  block.recompute_activation = layer.recompute == Recompute::kActivation || o.memory_optimized;

  std::vector<std::int64_t> repeated(f.W);
  for (int r = 0; r < f.W; ++r) repeated[r] = f.sent[r] * f.hsd;
  const PerRank sent = b.scaled(f.sent, f.w), copies = b.scaled(repeated, f.w),
                received = b.scaled(f.computed, f.w);
  const PerRank input = b.scaled(block.rows, f.w), output = b.scaled(f.tokens, f.w);
  const int bits = bits_for(f.E);

  b.begin(ProgramBuilder::Pass::kForward);
  b.save("layer input", output);
  b.save("scores for the balance loss", b.scaled(f.tokens, f.E * 4));
  b.save("indices and weights", b.scaled(f.sent, 12));
  sort_keys(b, "sort ids", Category::permute, f.sent, 4, 4, bits);
  b.kernel("histogram and bins", Category::permute, KernelClass::kHistogram, b.scaled(f.sent, 4),
           b.uniform(f.E * 8), 2);
  int counts = -1;
  if (f.W > 1) {
    counts = b.all_to_all(GroupKind::kEp, "counts", Category::dispatch, DType::kInt32,
                          std::int64_t{f.E} * f.hsd * 4);
    b.detach();
  }
  b.allocate("gathered rows", sent);
  gather_rows(b, "gather rows", Category::permute, f.sent, f.w);
  if (f.W > 1) {
    b.join(counts);
    b.host_sync("counts sent", Category::host_sync, b.uniform(std::int64_t{f.E} * f.hsd * 4));
    b.host_sync("counts received", Category::host_sync, b.uniform(std::int64_t{f.E} * f.hsd * 4));
  }
  if (f.hsd > 1) {
    b.allocate("repeated rows", copies);
    b.kernel("repeat rows", Category::permute, KernelClass::kCopy, sent, copies);
  }
  b.allocate("received rows", received);
  const int exchange = b.all_to_all_v("tokens", Category::dispatch, layer.activation, matrix, false, f.w);
  if (f.W > 1) {
    b.detach();
    b.kernel("bins of received rows", Category::permute, KernelClass::kSort, b.scaled(f.computed, 12),
             b.scaled(f.computed, 12), 4);
  }
  if (compute.sync_capacity) b.host_sync("largest count", Category::host_sync, b.uniform(4));
  if (compute.sync_padded) b.host_sync("padded total", Category::host_sync, b.uniform(8));
  if (compute.topology) add_topology(b, f, block, compute.block);
  b.join(exchange);
  b.save("expert input", input);
  b.kernel("gather into bins", Category::permute, KernelClass::kGatherRows, b.scaled(f.computed, f.w + 8),
           input);
  experts_forward(b, block);
  if (f.gated && !block.recompute_activation) b.save("gate activation", b.scaled(block.rows, f.F_pr * f.b));
  b.kernel("scatter out of bins", Category::unpermute, KernelClass::kScatterRows,
           b.scaled(f.computed, f.w + 8), received);
  if (f.hsd == 1) b.allocate("returned rows", copies);
  b.all_to_all_v("tokens", Category::combine, layer.activation, matrix, true, f.w);
  if (f.hsd > 1)
    b.kernel("sum of hidden slices", Category::unpermute, KernelClass::kElementwise, copies, sent);
  b.save("rows for the gradient of the weights", sent);
  b.allocate("output", output);
  b.kernel("scatter with weights", Category::unpermute, KernelClass::kScatterAdd,
           b.scaled(f.sent, f.w + 8 + f.b_p), output, 1);
  b.free("output", output);
  if (f.hsd == 1) b.free("returned rows", copies);
  if (f.hsd > 1) b.free("repeated rows", copies);
  b.free("received rows", received);
  b.free("gathered rows", sent);
  free_expert_output(b, block);

  if (layer.train) {
    b.begin(ProgramBuilder::Pass::kBackward);
    b.allocate("gradient of returned rows", copies);
    b.kernel("scatter backward", Category::unpermute, KernelClass::kGatherRows,
             b.scaled(f.sent, 2 * f.w + 8 + f.b_p), b.scaled(f.sent, f.w + f.b_p), 2);
    if (f.hsd > 1) b.kernel("repeat gradient rows", Category::unpermute, KernelClass::kCopy, sent, copies);
    b.allocate("received gradient", received);
    b.all_to_all_v("output gradient", Category::combine, layer.activation, matrix, false, f.w);
    b.allocate("incoming gradient", input);
    b.kernel("scatter out of bins backward", Category::unpermute, KernelClass::kGatherRows,
             b.scaled(f.computed, f.w + 8), input);
    experts_backward(b, block);
    b.kernel("gather into bins backward", Category::permute, KernelClass::kScatterRows,
             b.scaled(f.computed, f.w + 8), received);
    b.all_to_all_v("hidden gradient", Category::dispatch, layer.activation, matrix, true, f.w);
    if (f.hsd > 1)
      b.kernel("sum of gradient copies", Category::permute, KernelClass::kElementwise, copies, sent);
    b.allocate("gradient of the input", output);
    scatter_add(b, "gather rows backward", Category::permute, f.sent, f.tokens, f.w);
    b.free("gradient of the input", output);
    b.free("incoming gradient", input);
    b.free("received gradient", received);
    b.free("gradient of returned rows", copies);
  }
  Program& p = b.program();
  p.dropped_rows = compute.dropped;
  p.tokens = f.tokens;
  p.computed_rows = block.rows;
  // Blocks of 128 rows, and bins of a capacity, are filled up with zeros, which are no tokens.
  p.dispatched_rows = block.rows;
  for (int r = 0; r < f.W; ++r) p.dispatched_rows[r] = std::min(p.dispatched_rows[r], f.computed[r]);
  p.balanced_rows.resize(f.W);
  for (int r = 0; r < f.W; ++r) p.balanced_rows[r] = f.tokens[r] * f.K;
  if (layer.train && layer.recompute == Recompute::kFull) b.recompute_all(output);
  return b.finish();
}

}  // namespace moesim::models
