#include "models/programs/memory.h"

#include <algorithm>

namespace moesim::models {

std::vector<MemoryPoint> memory_of_layer(const Program& program, int rank, const RankMemory& whole,
                                         bool train) {
  const double saved = train ? static_cast<double>(program.saved_bytes[static_cast<std::size_t>(rank)]) : 0;
  double level = whole.total() - whole.transient - saved;
  std::vector<MemoryPoint> points;
  const auto walk = [&](const std::vector<Op>& pass, bool forward) {
    for (std::size_t i = 0; i < pass.size(); ++i) {
      const Op& op = pass[i];
      if (op.kind != OpKind::kAllocate && op.kind != OpKind::kFree) continue;
      const auto bytes = static_cast<double>(program.value(op.bytes, rank));
      level += op.kind == OpKind::kAllocate ? bytes : -bytes;
      points.push_back({forward, static_cast<std::int32_t>(i), op.name, level});
    }
  };
  points.push_back({true, -1, "everything but this layer", level});
  walk(program.forward(), true);
  if (!train) return points;
  walk(program.backward(), false);
  points.push_back(
      {false, static_cast<std::int32_t>(program.backward().size()), "saved by forward", level - saved});
  return points;
}

}  // namespace moesim::models
