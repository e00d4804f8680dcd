#include "models/dispatchers/parts/common.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"

namespace moesim::models {

LayerSizes::LayerSizes(const MoeLayer& layer, const Routing& n)
    : R(layer.ranks()),
      ep(layer.ep),
      etp(layer.etp),
      E(n.experts()),
      E_l(n.experts() / layer.ep),
      K(n.topk()),
      H(layer.hidden),
      w(layer.hidden * bytes_of(layer.activation)),
      b(bytes_of(layer.activation)),
      b_p(bytes_of(layer.router)),
      F(layer.expert_ffn / layer.etp),
      F_up((layer.gated ? 2 : 1) * F),
      gated(layer.gated),
      routing(&n),
      tokens(R),
      sent(R),
      arrived(R),
      computed(R),
      experts(std::size_t(R) * E_l),
      splits(std::size_t(R) * ep) {
  check(n.ranks() == R, "a routing has a row per rank of the dispatch group");
  const std::vector<std::int64_t> S = n.split_matrix(ep);
  const std::vector<std::int64_t> totals = n.expert_totals();
  for (int r = 0; r < R; ++r) {
    const int t = r % etp, j = r / etp;
    tokens[r] = n.tokens(r);
    for (int d = 0; d < ep; ++d) {
      const std::int64_t rows = S[std::size_t(r) * ep + d];
      splits[(std::size_t(t) * ep + j) * ep + d] = rows;
      sent[r] += rows;
      arrived[t + etp * d] += rows;
    }
    for (int e = 0; e < E_l; ++e) {
      experts[std::size_t(r) * E_l + e] = totals[std::size_t(j) * E_l + e];
      computed[r] += totals[std::size_t(j) * E_l + e];
    }
  }
}

std::vector<std::int64_t> sums_per_rank(const std::vector<std::int64_t>& per_expert, int experts) {
  std::vector<std::int64_t> sums(per_expert.size() / experts);
  for (std::size_t i = 0; i < per_expert.size(); ++i) sums[i / experts] += per_expert[i];
  return sums;
}

std::vector<std::int64_t> round_up_each(std::vector<std::int64_t> rows, std::int64_t multiple) {
  for (std::int64_t& r : rows) r = round_up(r, multiple);
  return rows;
}

int bits_for(std::int64_t n) { return n <= 2 ? 1 : std::bit_width(static_cast<std::uint64_t>(n - 1)); }

std::optional<std::string> rule_against_batch_overlap(const MoeLayer& layer, bool shared_overlap) {
  if (!layer.train) return "batch_overlap interleaves a backward with a forward: it needs training";
  if (shared_overlap) return "batch_overlap excludes shared_overlap: both fill the time of the exchange";
  if (layer.recompute == Recompute::kFull) return "batch_overlap excludes full recompute of the layer";
  return std::nullopt;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return ceil_div(a, multiple) * multiple; }

PerRank combined(ProgramBuilder& builder, const std::vector<std::int64_t>& x, std::int64_t a,
                 const std::vector<std::int64_t>& y, std::int64_t b, std::int64_t offset) {
  std::vector<std::int64_t> sum(x.size());
  for (std::size_t r = 0; r < x.size(); ++r) sum[r] = a * x[r] + b * y[r] + offset;
  return builder.per_rank(sum);
}

ExpertBlock expert_block(const MoeLayer& layer, const LayerSizes& f, ProgramBuilder& builder) {
  ExpertBlock block;
  block.table = builder.table(f.E_l, f.experts);
  block.rows = f.computed;
  block.H = f.H;
  block.F = f.F;
  block.b = f.b;
  block.b_p = f.b_p;
  block.experts = f.E_l;
  block.gated = f.gated;
  block.recompute_products = layer.recompute == Recompute::kProducts;
  block.recompute_activation = block.recompute_products || layer.recompute == Recompute::kActivation;
  block.dtype = layer.activation;
  block.lora_rank = layer.lora_rank;
  const std::int64_t weights = f.H * (f.F_up + f.F);
  block.expert_bytes = weights * bytes_of(layer.weight);
  block.copied_gradient = ceil_div(weights * layer.gradient_bytes, layer.microbatches);
  const auto any = [](const std::vector<std::int64_t>& copies) {
    return std::any_of(copies.begin(), copies.end(), [](std::int64_t n) { return n > 0; });
  };
  if (layer.moves && any(layer.moves->copies)) {
    block.moves = layer.moves;
    block.copies = builder.matrix(GroupKind::kEp, layer.moves->copies);
  }
  return block;
}

namespace {

// Fetches the weights of the experts that a rank computes for others, before its products.
void fetch_weights(ProgramBuilder& b, const ExpertBlock& block) {
  if (!block.moves || !block.moves->every_pass) return;
  b.save("weights of others' experts", b.scaled(block.moves->foreign, block.expert_bytes));
  b.all_to_all_v("weights of moved experts", Category::dispatch, block.dtype, block.copies, false,
                 block.expert_bytes);
}

// Returns gradients of copies to their owner; those of permanent copies come back as their sum.
void return_gradients(ProgramBuilder& b, const ExpertBlock& block) {
  if (!block.moves) return;
  const bool home = block.moves->every_pass;
  const std::int64_t bytes = home ? block.expert_bytes : block.copied_gradient;
  const PerRank held = b.scaled(block.moves->foreign, home ? bytes : 0);
  b.allocate("gradients of others' experts", held);
  b.all_to_all_v("gradients of copies", Category::combine, home ? block.dtype : DType::kFp32, block.copies,
                 true, bytes);
  b.free("gradients of others' experts", held);
  if (!home) b.all_to_all_v("summed gradients", Category::combine, DType::kFp32, block.copies, false, bytes);
}

PerRank activation_bytes(ProgramBuilder& builder, const ExpertBlock& block, std::int64_t columns) {
  return builder.scaled(block.rows, columns * block.b + (block.probability ? block.b_p : 0));
}

// Adds the adapter of a product of n x k, and the sum of both outputs or of both gradients of the input. The
// side that expert tensor parallelism does not divide is whole on every rank.
void adapter(ProgramBuilder& b, const ExpertBlock& block, GemmPass pass, std::int64_t n, std::int64_t k,
             int repeat = 1) {
  if (block.lora_rank == 0) return;
  const std::int64_t r = block.lora_rank;
  const bool forward = pass == GemmPass::kForward;
  if (forward) b.save("rows between adapters", b.scaled(block.rows, repeat * r * block.b));
  const auto product = [&](std::string_view name, std::int64_t columns, std::int64_t depth) {
    const int id = b.gemm(name, block.category, pass, block.backend, block.dtype, block.table, columns, depth,
                          repeat, repeat * block.launches());
    b.ops()[static_cast<std::size_t>(id)].plain = true;
  };
  if (forward) product(kLoraDown, r, k);
  product(kLoraUp, n, r);
  if (!forward) product(kLoraDown, r, k);
  if (pass == GemmPass::kWgrad) return;
  const std::int64_t columns = (forward ? repeat * n : k) * block.b;
  b.kernel("LoRA sum", block.category, KernelClass::kElementwise, b.scaled(block.rows, 2 * columns),
           b.scaled(block.rows, columns));
}

// The gradient of a weight, or of its adapter where it is frozen.
bool is_frozen(const ExpertBlock& block, GemmPass pass) {
  return block.lora_rank > 0 && pass == GemmPass::kWgrad;
}

void up_gemms(ProgramBuilder& b, const ExpertBlock& block, std::string_view name, GemmPass pass) {
  const bool two = block.gated && block.split_gate;
  const std::int64_t columns = two ? block.F : block.F_up();
  if (!is_frozen(block, pass))
    b.gemm(name, block.category, pass, block.backend, block.dtype, block.table, columns, block.H, two ? 2 : 1,
           (two ? 2 : 1) * block.launches());
  adapter(b, block, pass, columns, block.H, two ? 2 : 1);
}

void down_gemm(ProgramBuilder& b, const ExpertBlock& block, std::string_view name, GemmPass pass) {
  if (!is_frozen(block, pass))
    b.gemm(name, block.category, pass, block.backend, block.dtype, block.table, block.H, block.F, 1,
           block.launches());
  adapter(b, block, pass, block.H, block.F);
}

}  // namespace

void experts_forward(ProgramBuilder& b, const ExpertBlock& block) {
  fetch_weights(b, block);
  const PerRank up = b.scaled(block.rows, block.F_up() * block.b);
  if (block.recompute_products)
    b.allocate("fc1 output", up);
  else
    b.save("fc1 output", up);
  up_gemms(b, block, "fc1", GemmPass::kForward);
  const PerRank hidden = b.scaled(block.rows, block.F * block.b);
  if (block.recompute_activation) {
    b.allocate("fc2 input", hidden);
  } else {
    b.save("fc2 input", hidden);
  }
  b.kernel("activation", block.category, KernelClass::kElementwise, activation_bytes(b, block, block.F_up()),
           hidden);
  if (block.recompute_products) b.free("fc1 output", up);
  b.allocate("expert output", b.scaled(block.rows, block.H * block.b));
  down_gemm(b, block, "fc2", GemmPass::kForward);
  if (block.recompute_activation) b.free("fc2 input", hidden);
}

void free_expert_output(ProgramBuilder& b, const ExpertBlock& block) {
  b.free("expert output", b.scaled(block.rows, block.H * block.b));
}

void experts_backward(ProgramBuilder& b, const ExpertBlock& block) {
  const PerRank hidden = b.scaled(block.rows, block.F * block.b);
  const PerRank up = b.scaled(block.rows, block.F_up() * block.b);
  const PerRank rows = b.scaled(block.rows, block.H * block.b);
  if (block.recompute_products) {
    b.allocate("fc1 output again", up);
    up_gemms(b, block, "fc1 again", GemmPass::kForward);
  }
  if (block.recompute_activation) {
    b.allocate("fc2 input again", hidden);
    b.kernel("activation again", block.category, KernelClass::kElementwise,
             activation_bytes(b, block, block.F_up()), hidden);
  }
  b.allocate("gradient of fc2 input", hidden);
  down_gemm(b, block, "fc2 dgrad", GemmPass::kDgrad);
  down_gemm(b, block, "fc2 wgrad", GemmPass::kWgrad);
  b.allocate("gradient of fc1 output", up);
  b.kernel("activation backward", block.category, KernelClass::kElementwise,
           activation_bytes(b, block, block.F_up() + block.F), activation_bytes(b, block, block.F_up()));
  b.allocate("outgoing gradient", rows);
  up_gemms(b, block, "fc1 dgrad", GemmPass::kDgrad);
  up_gemms(b, block, "fc1 wgrad", GemmPass::kWgrad);
  b.free("gradient of fc1 output", up);
  b.free("gradient of fc2 input", hidden);
  if (block.recompute_activation) b.free("fc2 input again", hidden);
  if (block.recompute_products) b.free("fc1 output again", up);
  b.free("outgoing gradient", rows);
  return_gradients(b, block);
}

void gather_rows(ProgramBuilder& b, std::string_view name, Category category,
                 const std::vector<std::int64_t>& rows, std::int64_t row) {
  b.kernel(name, category, KernelClass::kGatherRows, b.scaled(rows, row + 8), b.scaled(rows, row));
}

void scatter_add(ProgramBuilder& b, std::string_view name, Category category,
                 const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& targets,
                 std::int64_t row) {
  b.kernel(name, category, KernelClass::kScatterAdd, b.scaled(rows, 2 * row + 8),
           combined(b, rows, row, targets, row), 2);
}

void sort_keys(ProgramBuilder& b, std::string_view name, Category category,
               const std::vector<std::int64_t>& keys, std::int64_t key_bytes, std::int64_t value_bytes,
               int bits) {
  const int passes = (bits + 7) / 8;
  const PerRank bytes = b.scaled(keys, passes * (key_bytes + value_bytes));
  b.kernel(name, category, KernelClass::kSort, bytes, bytes, passes);
}

Program finish(ProgramBuilder& b, const MoeLayer& layer, const LayerSizes& f,
               const std::vector<std::int64_t>& computed_rows) {
  if (layer.train && layer.recompute == Recompute::kFull) b.recompute_all(b.scaled(f.tokens, f.w));
  Program& p = b.program();
  p.tokens = f.tokens;
  p.computed_rows = computed_rows;
  // Rows that only fill up the products' tiles are not tokens; those of a capacity are in f.computed.
  p.dispatched_rows = computed_rows;
  for (int r = 0; r < f.R; ++r) p.dispatched_rows[r] = std::min(p.dispatched_rows[r], f.computed[r]);
  p.balanced_rows.resize(f.R);
  for (int r = 0; r < f.R; ++r) p.balanced_rows[r] = f.tokens[r] * f.K;
  return b.finish();
}

}  // namespace moesim::models
