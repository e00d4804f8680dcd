#include "calibration/rows/grouped_rows.h"

#include <string_view>

#include "calibration/rows/variants.h"

namespace moesim::calibration {

models::GemmPass pass_of(const GroupedGemmRow& row) {
  const auto has = [&](std::string_view word) { return row.kind.find(word) != std::string::npos; };
  return has("wgrad")   ? models::GemmPass::kWgrad
         : has("dgrad") ? models::GemmPass::kDgrad
                        : models::GemmPass::kForward;
}

models::GemmBackend backend_of(const GroupedGemmRow& row) {
  return row.kind.starts_with("loop")      ? models::GemmBackend::kLoop
         : row.kind.starts_with("batched") ? models::GemmBackend::kBatched
                                           : models::GemmBackend::kGrouped;
}

std::string grouped_law_key(const GroupedGemmRow& row) {
  return (backend_of(row) == models::GemmBackend::kGrouped ? "grouped_gemm/" : "gemm/") +
         std::string(models::name_of(dtype_of(row.dtype)));
}

std::vector<std::int64_t> experts_of(const GroupedGemmRow& row) {
  const auto mean = static_cast<std::int64_t>(row.m_per_group);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(row.groups), mean);
  if (!row.kind.ends_with(" half")) return rows;
  std::int64_t left = row.groups * mean;
  for (std::int64_t& one : rows) {
    one = left / 2;
    left -= one;
  }
  rows.front() += left;
  return rows;
}

}  // namespace moesim::calibration
