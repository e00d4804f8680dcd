#include "models/costs/expert_ffn.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace moesim::models {

ExpertFfnModel::ExpertFfnModel(const Profile& profile, const std::string& key, DType dtype)
    : gemm_(profile, Clocks::kBurst, key), dtype_(dtype) {
  const ParameterSet& set = profile.at(key);
  overhead_ = set.get("overhead", 20e-6) * set.factor;
  row_pass_ = set.get("row_pass", 1) * set.factor;
  token_pass_ = set.get("token_pass", 1) * set.factor;
  slot_pass_ = set.get("slot_pass", 0) * set.factor;
  remote_share_ = set.get("remote_share", 0);
  memory_ = 1 / (profile.device().hbm_bandwidth * profile.device().hbm_efficiency);
}

double ExpertFfnModel::seconds(const FfnShape& shape, std::span<const std::int64_t> local_rows) const {
  // Rows of other ranks are spread like the own ones.
  std::vector<std::int64_t> spread;
  std::span<const std::int64_t> rows = local_rows;
  const double local = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  if (remote_share_ > 0 && shape.remote_rows > 0 && local > 0) {
    const double growth = 1 + remote_share_ * shape.remote_rows / local;
    for (const std::int64_t m : rows) spread.push_back(std::llround(static_cast<double>(m) * growth));
    rows = spread;
  }
  const double total = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  const double hidden = static_cast<double>(shape.hidden), inter = static_cast<double>(shape.inter);
  constexpr double kActivation = 2;  // bytes: rows are bf16 between the kernels
  const double row_bytes = total * kActivation * (3 * hidden + 3 * inter);
  const double slot_bytes =
      static_cast<double>(shape.tokens) * shape.topk * kActivation * (2 * hidden + 3 * inter);
  const double token_bytes = static_cast<double>(shape.tokens) * kActivation * 2 * hidden;
  return overhead_ + gemm_.grouped_seconds(rows, 2 * shape.inter, shape.hidden, dtype_) +
         gemm_.grouped_seconds(rows, shape.hidden, shape.inter, dtype_) +
         memory_ * (row_pass_ * row_bytes + token_pass_ * token_bytes + slot_pass_ * slot_bytes);
}

}  // namespace moesim::models
