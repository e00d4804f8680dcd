#include "tools/moesim/show/layer_operations.h"

#include <cstddef>
#include <cstdint>

namespace moesim::tools {

std::string_view kind_of(const models::Op& op) {
  switch (op.kind) {
    case models::OpKind::kCollective:
      return models::name_of(op.comm);
    case models::OpKind::kKernel:
      return models::name_of(op.kernel);
    case models::OpKind::kGemm:
      return "gemm";
    case models::OpKind::kAttention:
      return "attention";
    case models::OpKind::kCopyToHost:
      return "copy_to_host";
    case models::OpKind::kHostWait:
      return "host_sync";
    case models::OpKind::kHost:
      return "host";
    case models::OpKind::kAllocate:
      return "allocate";
    case models::OpKind::kFree:
      return "free";
  }
  return "";
}

std::vector<LayerOperation> operations_of(const replay::DispatcherForecast& f) {
  std::vector<LayerOperation> rows;
  for (std::size_t s = 0; s < f.trace.size(); ++s) {
    const bool dense = s == 0 || s == 3, forward = s < 2;
    const models::Program& program = dense ? f.dense : f.program;
    const std::vector<models::Op>& pass = forward ? program.forward() : program.backward();
    const auto R = static_cast<std::size_t>(f.trace[s].ranks);
    for (std::size_t i = 0; i < pass.size(); ++i) {
      if (pass[i].kind == models::OpKind::kAllocate || pass[i].kind == models::OpKind::kFree) continue;
      const std::size_t at = i * R + static_cast<std::size_t>(f.critical_rank);
      const auto us = [](std::int64_t ps) { return static_cast<double>(ps) * 1e-6; };
      rows.push_back({forward, dense, &pass[i], us(f.trace[s].start[at]),
                      us(f.trace[s].begin[at] - f.trace[s].start[at]),
                      us(f.trace[s].end[at] - f.trace[s].begin[at])});
    }
  }
  return rows;
}

}  // namespace moesim::tools
