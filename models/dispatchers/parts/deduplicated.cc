#include "models/dispatchers/parts/deduplicated.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

}  // namespace moesim::models
