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
    case models::OpKind::kScan:
      return "scan";
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

std::vector<LayerOperation> operations_of(const models::Answer& f) {
  std::vector<LayerOperation> rows;
  const auto us = [](std::int64_t ps) { return static_cast<double>(ps) * 1e-6; };
  for (const models::PassTrace& part : f.layer) {
    const std::vector<models::Op>& pass = part.pass();
    const auto rank = static_cast<std::size_t>(f.critical_rank);
    if (part.trace.ranks <= rank) continue;
    for (std::size_t i = 0; i < pass.size(); ++i) {
      if (pass[i].kind == models::OpKind::kAllocate || pass[i].kind == models::OpKind::kFree) continue;
      const std::size_t at = i * part.trace.ranks + rank;
      rows.push_back({part.forward, !part.dispatcher, &pass[i], us(part.trace.start[at]),
                      us(part.trace.begin[at] - part.trace.start[at]),
                      us(part.trace.end[at] - part.trace.begin[at])});
    }
  }
  return rows;
}

}  // namespace moesim::tools
