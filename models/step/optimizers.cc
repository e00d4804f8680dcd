#include "models/step/optimizers.h"

#include <algorithm>
#include <queue>

#include "models/programs/projections.h"

namespace moesim::models {

std::vector<MuonMatrix> muon_matrices(const Architecture& a, const Parallel& p, const Chunk& chunk) {
  std::vector<MuonMatrix> all;
  const auto add = [&](std::int64_t rows, std::int64_t columns, std::int64_t count, bool experts) {
    if (rows < 1 || columns < 1) return;
    for (MuonMatrix& known : all)
      if (known.rows == rows && known.columns == columns && known.experts == experts) {
        known.count += count;
        return;
      }
    all.push_back({rows, columns, count, experts});
  };
  for (const LayerKind& kind : chunk.layers) {
    for (const Projections::Weight& w : layer_weights(a, kind, p.tp)) {
      add(w.n - w.keys - w.values, w.k, 1, false);
      add(w.keys, w.k, 1, false);
      add(w.values, w.k, 1, false);
    }
    if (kind.ffn != LayerKind::Ffn::kMoe) continue;
    const std::int64_t local = std::max<std::int64_t>(1, a.experts / p.ep), inner = a.expert_ffn / p.etp;
    add((a.gated ? 2 : 1) * inner, a.expert_width(), local, true);
    add(a.expert_width(), inner, local, true);
  }
  return all;
}

double newton_schulz_flops(std::int64_t rows, std::int64_t columns, std::int64_t steps) {
  const auto m = static_cast<double>(std::min(rows, columns)),
             n = static_cast<double>(std::max(rows, columns));
  return static_cast<double>(steps) * (4 * n * m * m + 2 * m * m * m);
}

double newton_schulz_seconds(std::int64_t rows, std::int64_t columns, std::int64_t steps,
                             const GemmModel& gemms) {
  const std::int64_t m = std::min(rows, columns), n = std::max(rows, columns);
  return static_cast<double>(steps) *
         (gemms.seconds({m, m, n}, DType::kBf16) + gemms.seconds({m, m, m}, DType::kBf16) +
          gemms.seconds({m, n, m}, DType::kBf16));
}

MuonShare largest_muon_share(std::vector<MuonMatrix> matrices, std::int64_t ranks,
                             const std::function<double(const MuonMatrix&)>& seconds_of) {
  std::ranges::stable_sort(matrices, std::ranges::greater(), &MuonMatrix::elements);
  const auto less = [](const MuonShare& a, const MuonShare& b) { return a.elements > b.elements; };
  std::priority_queue<MuonShare, std::vector<MuonShare>, decltype(less)> loads(
      less, std::vector<MuonShare>(static_cast<std::size_t>(ranks)));
  for (const MuonMatrix& m : matrices) {
    const double seconds = seconds_of(m);
    for (std::int64_t i = 0; i < m.count; ++i) {
      MuonShare least = loads.top();
      loads.pop();
      least.elements += m.elements();
      least.seconds += seconds;
      ++least.matrices;
      loads.push(least);
    }
  }
  MuonShare most;
  for (; !loads.empty(); loads.pop()) {
    most.elements = std::max(most.elements, loads.top().elements);
    most.seconds = std::max(most.seconds, loads.top().seconds);
    most.matrices = std::max(most.matrices, loads.top().matrices);
  }
  return most;
}

StageParameters elements_of(const std::vector<MuonMatrix>& matrices) {
  StageParameters n;
  for (const MuonMatrix& m : matrices)
    (m.experts ? n.experts : n.dense) += static_cast<double>(m.count) * m.elements();
  return n;
}

namespace {

// Products of block side cubed per block: two that update the factors, two that precondition the gradient.
constexpr double kFactorProducts = 2, kGradientProducts = 2;
// FLOPs of the root of a factor per side cubed: eigenvalues and vectors of a symmetric matrix (LAPACK's count
// of 9), and the product of vectors, roots and vectors.
constexpr double kRootFlops = 9 + 2;
constexpr double kFactors = 2;  // per block

std::int64_t start_of(const Shampoo& plan) { return plan.start > 0 ? plan.start : plan.frequency; }

}  // namespace

ShampooWork shampoo_work(const Shampoo& plan) {
  const double all = kFactorProducts + kGradientProducts;
  if (plan.step == 0) return {all, 1 / static_cast<double>(plan.frequency)};
  const bool preconditions = plan.step >= start_of(plan);
  const bool roots = preconditions && (plan.step - start_of(plan)) % plan.frequency == 0;
  return {preconditions ? all : kFactorProducts, roots ? 1.0 : 0.0};
}

double shampoo_seconds(double elements, std::int64_t side, const ShampooWork& work, const GemmModel& gemms,
                       double fp32_flops) {
  const auto d = static_cast<double>(side);
  const double blocks = elements / (d * d);
  const double product = gemms.seconds({side, side, side}, DType::kFp32);
  const double root = kFactors * kRootFlops * d * d * d / fp32_flops;
  return blocks * (work.products * product + work.roots * root);
}

}  // namespace moesim::models
