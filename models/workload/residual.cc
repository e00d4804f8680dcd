#include "models/workload/residual.h"

#include <algorithm>
#include <cmath>

namespace moesim::models {

namespace {

// Weights per token: n to read the streams, n to write them, n^2 to mix them.
std::int64_t mixing(std::int64_t streams) { return (2 + streams) * streams; }

// The embedding, half of the groups on average, and the sum of the present one.
std::int64_t sources(const Architecture& model) {
  return 2 + (model.layers + model.residual.group - 1) / model.residual.group / 2;
}

}  // namespace

ResidualWork residual_work(const Architecture& model) {
  const std::int64_t h = model.hidden, n = model.residual.streams;
  ResidualWork work;
  work.read_after = 2 * h;
  work.written_after = h;
  switch (model.residual.kind) {
    case Residual::Kind::kPlain:
      break;
    case Residual::Kind::kHyper:
      work.mixed = n * h;
      work.mixing = mixing(n);
      work.read_before = 2 * n * h;
      work.written_before = h;
      work.read_after = (n + 1) * h;
      work.written_after = n * h;
      work.kept = (n + 1) * h;  // the streams and the block's output
      break;
    case Residual::Kind::kGroups:
      work.read_before = 2 * sources(model) * h;  // for the scores and for the sum
      work.written_before = h;
      work.kept = h;  // the sum of the present group
      break;
  }
  return work;
}

std::int64_t rows_between_stages(const Architecture& model) {
  return model.residual.kind == Residual::Kind::kGroups ? sources(model) : model.residual.streams;
}

std::int64_t recomputed_blocks(const Architecture& model, std::int64_t blocks) {
  const auto n = static_cast<double>(model.residual.streams);
  return std::max<std::int64_t>(1, std::llround(std::sqrt(n * static_cast<double>(blocks) / (n + 2))));
}

std::int64_t residual_parameters(const Architecture& model) {
  const ResidualWork work = residual_work(model);
  if (model.residual.kind == Residual::Kind::kPlain) return 0;
  // A bias for each weight and three scales; or a norm and a query.
  return model.residual.kind == Residual::Kind::kHyper ? work.mixed * work.mixing + work.mixing + 3
                                                       : 2 * model.hidden;
}

std::int64_t residual_head_parameters(const Architecture& model) {
  const std::int64_t n = model.residual.streams;
  if (model.residual.kind == Residual::Kind::kPlain) return 0;
  return model.residual.kind == Residual::Kind::kHyper ? n * n * model.hidden + n + 1 : 2 * model.hidden;
}

}  // namespace moesim::models
