#include "models/dispatchers/parts/deduplicated.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "models/dispatchers/parts/capacity.h"

namespace moesim::models {

namespace {

// Returns the copies of rank r's tokens for rank d, rows[r][d], in domains of `per_domain` ranks.
StagedRows staged(const Routing& routing, const std::vector<std::int64_t>& rows, std::size_t ranks,
                  std::size_t per_domain) {
  const std::size_t domains = ranks / per_domain;
  const std::vector<std::int64_t> per_target = routing.dedup_matrix(static_cast<int>(domains));
  StagedRows sent{std::vector<std::int64_t>(ranks), std::vector<std::int64_t>(ranks)}, received = sent;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t m = 0; m < domains; ++m) {
      if (m == r / per_domain) continue;
      sent.network[r] += per_target[r * domains + m];
      received.network[m * per_domain + r % per_domain] += per_target[r * domains + m];
    }
    for (std::size_t d = 0; d < ranks; ++d) {
      const std::size_t from = d / per_domain * per_domain + r % per_domain;
      if (from == d) continue;
      sent.nvlink[from] += rows[r * ranks + d];
      received.nvlink[d] += rows[r * ranks + d];
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    sent.network[r] = std::max(sent.network[r], received.network[r]);
    sent.nvlink[r] = std::max(sent.nvlink[r], received.nvlink[r]);
  }
  return sent;
}

}  // namespace

std::optional<std::string> DeduplicatedExchange::illegal(const MoeLayer& layer) {
  const int R = layer.ranks(), per_node = layer.ranks_per_node;
  // DeepEP's maintainers: "for normal mode, NVLink is a must" (deepseek-ai/DeepEP issue 216).
  if (!layer.own_links)
    return "its kernels write into the GPUs of a node over NVLink, which these reach by PCIe alone";
  if (layer.straddles)
    return fmt::format(
        "a dispatch group of {} ranks straddles nodes unevenly: its rows are handed on inside a node by the "
        "GPU with the same local index",
        R);
  if (R <= per_node) return std::nullopt;
  if (R % per_node != 0 || per_node % layer.etp != 0)
    return fmt::format(
        "a dispatch group of {} ranks on nodes of {} must fill whole nodes: rows are handed on inside a "
        "node by the GPU with the same local index",
        R, per_node);
  return std::nullopt;
}

DeduplicatedExchange::DeduplicatedExchange(ProgramBuilder& builder, const MoeLayer& layer,
                                           const LayerSizes& f, ExchangeLibrary library, int sms)
    : b_(builder), library_(library), sms_(sms), received_(f.R) {
  const auto R = static_cast<std::size_t>(f.R);
  const std::vector<std::int64_t> D = f.routing->dedup_matrix(f.ep);
  const auto copies = [&](std::size_t r, std::size_t d) { return D[r * f.ep + d / f.etp]; };
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t d = 0; d < R; ++d) received_[d] += copies(r, d);
  const std::size_t per_node =
      f.R <= layer.ranks_per_node ? R : static_cast<std::size_t>(layer.ranks_per_node);
  nodes_ = static_cast<int>(R / per_node);
  std::vector<std::int64_t> local(R * R, 0);
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t d = 0; d < R; ++d)
      local[(d / per_node * per_node + r % per_node) * R + d] += copies(r, d);
  local_ = builder.matrix(GroupKind::kTpEp, local);
  std::vector<std::int64_t> all(R * R);
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t d = 0; d < R; ++d) all[r * R + d] = copies(r, d);
  const auto etp = static_cast<std::size_t>(f.etp);
  if (const auto host = static_cast<std::size_t>(layer.ranks_per_host); host > 0) {
    for (std::size_t size = host; size < per_node; size += host)
      if (per_node % size == 0 && size % etp == 0) builder.smaller_domain(staged(*f.routing, all, R, size));
  } else if (nodes_ == 1) {
    for (std::size_t size = R; size % 2 == 0 && size / 2 % etp == 0;) {
      size /= 2;
      StagedRows rows = staged(*f.routing, all, R, size);
      rows.in_host = true;
      builder.smaller_domain(std::move(rows));
    }
  }
  if (nodes_ == 1) return;
  const std::vector<std::int64_t> per_target = f.routing->dedup_matrix(nodes_);
  std::vector<std::int64_t> network(R * R, 0);
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t m = 0; m < static_cast<std::size_t>(nodes_); ++m)
      if (m != r / per_node) network[r * R + m * per_node + r % per_node] = per_target[r * nodes_ + m];
  network_ = builder.matrix(GroupKind::kTpEp, network);
}

void DeduplicatedExchange::exchange(std::string_view name, Category category, DType dtype, bool back,
                                    std::int64_t row_bytes, std::string_view extra,
                                    std::int64_t extra_bytes) const {
  bool first = true;
  for (const int matrix : {network_, local_}) {
    if (matrix < 0) continue;
    if (b_.all_to_all_v(name, category, dtype, matrix, back, row_bytes) < 0) continue;
    b_.mark_kernel(matrix == network_, !first, library_, sms_);
    first = false;
    if (extra_bytes == 0) continue;
    b_.all_to_all_v(extra, category, DType::kFp32, matrix, back, extra_bytes);
    b_.mark_kernel(matrix == network_, true, library_, sms_);
  }
}

void DeduplicatedExchange::dispatch(std::string_view name, Category category, DType dtype,
                                    std::int64_t row_bytes, std::string_view extra,
                                    std::int64_t extra_bytes) const {
  exchange(name, category, dtype, false, row_bytes, extra, extra_bytes);
}

void DeduplicatedExchange::combine(std::string_view name, Category category, DType dtype,
                                   std::int64_t row_bytes, std::string_view extra,
                                   std::int64_t extra_bytes) const {
  exchange(name, category, dtype, true, row_bytes, extra, extra_bytes);
}

namespace {

constexpr std::array<std::string_view, 3> kModes{"dynamic", "static", "pad"};
// Ranks of unequal length agree on a multiple of it; NCCL EP sizes everything in such chunks.
constexpr std::int64_t kChunk = 64;

// Drops rows above the budget, the last experts first: they come last in the buffer.
void drop_above(ProgramBuilder& b, const LayerSizes& f, std::vector<std::int64_t>& per_expert,
                std::int64_t budget) {
  for (int r = 0; r < f.R; ++r) {
    std::int64_t left = budget;
    for (int e = 0; e < f.E_l; ++e) {
      std::int64_t& rows = per_expert[std::size_t(r) * f.E_l + e];
      const std::int64_t kept = std::min(rows, left);
      if (r % f.etp == 0)
        b.program().dropped_rows += std::max<std::int64_t>(0, f.experts[std::size_t(r) * f.E_l + e] - kept);
      rows = kept;
      left -= kept;
    }
  }
  if (b.program().dropped_rows > 0)
    b.program().warnings.push_back(fmt::format(
        "{} rows above the static budget of {} rows per rank are dropped", b.program().dropped_rows, budget));
}

// The permutation is fused into the exchange: only rows beyond the first copy of a token are written again, all of them
// where one rank exchanges nothing.
void copy_locally(ProgramBuilder& b, std::string_view name, Category category, const LayerSizes& f,
                  const std::vector<std::int64_t>& unique, const ExpertBlock& block) {
  std::vector<std::int64_t> more(f.R);
  for (int r = 0; r < f.R; ++r)
    more[r] = std::max<std::int64_t>(0, block.rows[r] - (f.R > 1 ? unique[r] : 0));
  b.kernel(name, category, KernelClass::kGatherRows, b.scaled(more, f.w), b.scaled(more, f.w));
}

}  // namespace

FlexHybrid::FlexHybrid(DispatcherOptions& options, ExchangeLibrary library)
    : library_(library),
      mode_(options.choice(
          "mode", kDynamic,
          library == ExchangeLibrary::kNcclEp ? std::span(kModes).first(2) : std::span(kModes))),
      rank_factor_(options.number("rank_capacity_factor", 1.0, 1e-6, 1e6)),
      align_(options.integer("align", 1, 1, 1 << 20)),
      sms_(static_cast<int>(options.integer("sms", 16, 2, 256))),
      batch_overlap_(options.flag("batch_overlap", false)),
      paged_(options.flag("paged", false)) {
  for (const char* option : {"rank_capacity_factor", "paged"})
    if (options.given(option) && mode_ != kStatic)
      options.fail(fmt::format("found {}, expected mode=static: only a static budget has one", option));
  if (library == ExchangeLibrary::kNcclEp) return;
  capacity_factor_ = options.number("capacity_factor", 1.0, 1e-6, 1e6);
  if (options.given("capacity_factor") && mode_ != kDropAndPad)
    options.fail("found capacity_factor, expected mode=pad: only drop-and-pad has a capacity per expert");
}

std::int64_t FlexHybrid::beside(const LayerSizes& sizes, std::int64_t per_node) const {
  return library_ == ExchangeLibrary::kNcclEp ? std::int64_t{sizes.K} * (8 + 4) : sizes.E_l * per_node * 4;
}

std::int64_t FlexHybrid::counted(std::int64_t tokens) const {
  return library_ == ExchangeLibrary::kNcclEp ? round_up(tokens, kChunk) : tokens;
}

std::optional<std::string> FlexHybrid::illegal(const MoeLayer& layer) const {
  if (layer.ranks() == 1 && library_ == ExchangeLibrary::kNcclEp)  // HybridEP copies at home
    return fmt::format("it needs more than one rank: {} exchanges rows between ranks", name_of(library_));
  if (mode_ == kDropAndPad && !layer.routing->equal_tokens())
    return "mode=pad needs the same number of tokens on every rank: all must agree on the capacity";
  if (batch_overlap_)
    if (auto rule = rule_against_batch_overlap(layer, false)) return rule;
  return DeduplicatedExchange::illegal(layer);
}

Program FlexHybrid::build(const MoeLayer& given) const {
  MoeLayer layer = given;
  layer.router = DType::kFp32;
  Routing capped;
  if (mode_ == kDropAndPad) {
    capped = layer.routing->limited_to(capacities(*layer.routing, capacity_factor_));
    layer.routing = &capped;
  }
  const LayerSizes f(layer);
  ProgramBuilder b(layer.ep, layer.etp, layer.tp);
  const DeduplicatedExchange exchange(b, layer, f, library_, sms_);
  const std::vector<std::int64_t>& U = exchange.received();
  std::vector<std::int64_t> per_expert = round_up_each(f.experts, align_);
  std::int64_t budget = 0;  // rows of the output buffer; 0: as many as arrive
  if (mode_ == kStatic) {
    const std::int64_t T = given.routing->max_tokens();
    budget = round_up(
        static_cast<std::int64_t>(std::ceil(static_cast<double>(T * f.K * f.etp) * rank_factor_)), align_);
    drop_above(b, f, per_expert, budget);
  } else if (mode_ == kDropAndPad) {
    const std::int64_t C = capacity(f.T(), f.K, f.E, capacity_factor_);
    budget = C * f.R * f.E_l;
    per_expert.assign(per_expert.size(), f.R * C);
    b.program().dropped_rows = total_dropped(*given.routing, capped);
  }
  b.program().overlaps_batches = batch_overlap_;
  ExpertBlock block = expert_block(layer, f, b);
  block.probability = true;
  block.rows = sums_per_rank(per_expert, f.E_l);
  block.table = b.table(f.E_l, per_expert);
  const std::int64_t virtual_experts = std::int64_t{f.R} * f.E_l, T_max = layer.routing->max_tokens();
  const std::int64_t per_node = std::min(f.R, layer.ranks_per_node);
  const PerRank rows = budget > 0 ? b.uniform(budget * f.w) : b.scaled(block.rows, f.w);
  const PerRank probabilities = budget > 0 ? b.uniform(budget * f.b_p) : b.scaled(block.rows, f.b_p);

  b.begin(ProgramBuilder::Pass::kForward);
  b.save("router input", b.scaled(f.tokens, f.w));
  if (!layer.routing->equal_tokens()) {
    b.all_reduce(GroupKind::kTpEp, "longest rank", Category::dispatch, DType::kInt64, 8);
    b.host_sync("longest rank", Category::host_sync, b.uniform(8));
  }
  const std::int64_t T = layer.routing->equal_tokens() ? counted(f.T()) : round_up(T_max, kChunk);
  if (library_ == ExchangeLibrary::kNcclEp)
    b.kernel("routing map", Category::permute, KernelClass::kScatterRows, b.scaled(f.tokens, f.K * 8),
             b.uniform(T * virtual_experts), 2);
  b.all_gather(GroupKind::kTpEp, "routing map", Category::dispatch, DType::kBool, T * virtual_experts);
  b.save("handle: row maps", b.uniform(f.R * T * 4 + T * virtual_experts));
  b.kernel("metadata", Category::permute, KernelClass::kSelect, b.uniform(f.R * T * virtual_experts),
           b.uniform(f.R * T * (4 + f.E_l)), 3);
  if (mode_ == kDynamic) b.host_sync("row counts", Category::host_sync, b.uniform(std::int64_t{f.E_l} * 8));
  // Pages keep the rows that came, not the whole budget.
  b.save("expert-major rows", paged_ ? b.scaled(block.rows, f.w) : rows);
  b.save("expert-major probabilities", paged_ ? b.scaled(block.rows, f.b_p) : probabilities);
  exchange.dispatch("tokens", Category::dispatch, layer.activation, f.w,
                    library_ == ExchangeLibrary::kNcclEp ? "indices and weights" : "probabilities",
                    beside(f, per_node));
  copy_locally(b, "expert-major copies", Category::permute, f, U, block);
  experts_forward(b, block);
  copy_locally(b, "sum of a token's rows", Category::unpermute, f, U, block);
  exchange.combine("tokens", Category::combine, layer.activation, f.w, "", 0);
  free_expert_output(b, block);
  if (layer.train) {
    b.begin(ProgramBuilder::Pass::kBackward);
    b.allocate("incoming gradient", rows);
    exchange.dispatch("output gradient", Category::combine, layer.activation, f.w, "", 0);
    copy_locally(b, "expert-major copies of the gradient", Category::unpermute, f, U, block);
    experts_backward(b, block);
    copy_locally(b, "sum of a token's gradients", Category::permute, f, U, block);
    exchange.combine("hidden gradient", Category::dispatch, layer.activation, f.w, "probability gradients",
                     beside(f, per_node));
    b.free("incoming gradient", rows);
  }
  // Worst-case buffers, allocated once.
  const std::int64_t buffer_rows = counted(T_max) * f.R;
  b.program().persistent_bytes = buffer_rows * (f.w + beside(f, per_node)) +
                                 (exchange.nodes() - 1) * counted(T_max) * (f.w + beside(f, per_node));
  if (!f.routing->has_choices() && f.K > 1)
    b.program().warnings.push_back(
        "copies per token are their expectation: the routing has counts, not choices");
  return finish(b, layer, f, block.rows);
}

}  // namespace moesim::models
