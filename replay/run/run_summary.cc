#include "replay/run/run_summary.h"

#include <algorithm>
#include <limits>
#include <map>

namespace moesim::replay {

namespace {

class Summary {
 public:
  void add(StepKind kind, double duration_us, bool second_of_pair) {
    StepMean& mean = summary_.steps[static_cast<std::size_t>(kind)];
    ++mean.count;
    mean.mean_us += duration_us;  // a sum until finish()
    if (is_p2p(kind) && !second_of_pair) summary_.p2p_us += duration_us;
  }
  RunSummary finish(double iteration_us, std::size_t ranks) {
    for (StepMean& mean : summary_.steps)
      if (mean.count > 0) mean.mean_us /= static_cast<double>(mean.count);
    if (ranks > 0) summary_.p2p_us /= static_cast<double>(ranks);
    summary_.iteration_us = iteration_us;
    return summary_;
  }

 private:
  RunSummary summary_;
};

}  // namespace

RunSummary summarize(const RecordedJob& measured, int gpus_per_node) {
  struct Span {
    double first = std::numeric_limits<double>::max();
    double last = 0;
  };
  std::map<int, Span> nodes;
  Summary summary;
  for (const RankSteps& rank : measured.ranks) {
    bool second_of_pair = false;
    for (const Step& step : rank.steps) {
      summary.add(step.kind, step.duration_us, second_of_pair);
      second_of_pair = step.fused_with_next;
      if (step.start_us <= 0) continue;
      Span& span = nodes[rank.rank / gpus_per_node];
      span.first = std::min(span.first, step.start_us);
      span.last = std::max(span.last, step.end_us());
    }
  }
  double iteration = 0;
  for (const auto& [node, span] : nodes) iteration = std::max(iteration, span.last - span.first);
  return summary.finish(iteration, measured.ranks.size());
}

RunSummary summarize(const Iteration& simulated) {
  Summary summary;
  for (std::size_t i = 0; i < simulated.spans.size(); ++i) {
    const StepSpan& span = simulated.spans[i];
    // Both halves of a fused call start together and end together, as the recorder writes them.
    const bool second =
        i > 0 && simulated.spans[i - 1].fused_with_next && simulated.spans[i - 1].rank == span.rank;
    double start = span.start_us;
    double end = span.end_us;
    if (span.fused_with_next && i + 1 < simulated.spans.size())
      end = std::max(end, simulated.spans[i + 1].end_us);
    if (second) {
      start = simulated.spans[i - 1].start_us;
      end = std::max(end, simulated.spans[i - 1].end_us);
    }
    summary.add(span.kind, end - start, second);
  }
  return summary.finish(simulated.us(), simulated.topology.world());
}

}  // namespace moesim::replay
