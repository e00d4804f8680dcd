#include "models/step/forecast.h"

#include <algorithm>
#include <numeric>

namespace moesim::models {

LayerTrace::Span LayerTrace::span(const Pass& pass, std::size_t op, std::size_t rank) const {
  const sim::TaskId task = pass.tasks[op * ranks + rank];
  const std::int64_t start = timeline.start(task).ps(), end = timeline.end(task).ps();
  if (graph.kind(task) != sim::TaskKind::member) return {start, start, end};
  return {start, timeline.begin(graph.collective(task)).ps(), end};
}

double dropped_share(const Program& program) {
  const auto rows = static_cast<double>(
      std::accumulate(program.balanced_rows.begin(), program.balanced_rows.end(), std::int64_t{0}));
  return rows > 0 ? std::min(1.0, static_cast<double>(program.dropped_rows) / rows) : 0;
}

}  // namespace moesim::models
