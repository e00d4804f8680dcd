#include "models/expert_ffn.h"

#include <algorithm>
#include <numeric>

namespace moesim::models {

ExpertFfnModel::ExpertFfnModel(const Profile& profile, const std::string& key, DType dtype)
    : gemm_(profile, Clocks::kBurst, key), dtype_(dtype) {
  const ParameterSet& set = profile.at(key);
  overhead_ = set.get("overhead", 20e-6) * set.factor;
  row_pass_ = set.get("row_pass", 1) * set.factor;
  token_pass_ = set.get("token_pass", 1) * set.factor;
  memory_ = 1 / (profile.device().hbm_bandwidth * profile.device().hbm_efficiency);
}

double ExpertFfnModel::seconds(const FfnShape& shape, std::span<const std::int64_t> rows) const {
  const double total = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  const double hidden = static_cast<double>(shape.hidden), inter = static_cast<double>(shape.inter);
  constexpr double kActivation = 2;  // bytes: rows travel as bf16 between the kernels
  const double row_bytes = total * kActivation * (3 * hidden + 3 * inter);
  const double token_bytes = static_cast<double>(shape.tokens) * kActivation * 2 * hidden;
  return overhead_ + gemm_.grouped_seconds(rows, 2 * shape.inter, shape.hidden, dtype_) +
         gemm_.grouped_seconds(rows, shape.hidden, shape.inter, dtype_) +
         memory_ * (row_pass_ * row_bytes + token_pass_ * token_bytes);
}

}  // namespace moesim::models
