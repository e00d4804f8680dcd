#include "replay/run/run_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "replay/run/forecast.h"

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

double Validation::mean_abs_component_error() const {
  double sum = 0;
  for (const Comparison& component : components) sum += std::abs(component.error());
  return components.empty() ? 0.0 : sum / static_cast<double>(components.size());
}

Validation validate(const RunSummary& forecast, const RunSummary& measured,
                    std::span<const RunSummary> drawn) {
  // get_batch is left out: a fifth of a millisecond that no forecast depends on.
  static constexpr std::array kCompared{StepKind::forward,
                                        StepKind::backward,
                                        StepKind::loss,
                                        StepKind::optimizer,
                                        StepKind::dp_all_reduce,
                                        StepKind::expert_all_reduce,
                                        StepKind::embedding_all_reduce};
  const auto compare = [&](std::string_view name, const auto& value_of) {
    const double value = value_of(forecast);
    std::vector<double> values;
    for (const RunSummary& one : drawn) values.push_back(value_of(one));
    const models::Estimate estimate = interval(value, values);
    return Comparison{name, value, value_of(measured), estimate.low, estimate.high};
  };
  Validation out;
  out.iteration = compare("iteration", [](const RunSummary& run) { return run.iteration_us; });
  for (const StepKind kind : kCompared)
    if (forecast.of(kind).count > 0 && measured.of(kind).count > 0 && measured.of(kind).mean_us > 0)
      out.components.push_back(
          compare(name(kind), [&](const RunSummary& run) { return run.of(kind).mean_us; }));
  if (forecast.p2p_us > 0 && measured.p2p_us > 0)
    out.components.push_back(compare("p2p", [](const RunSummary& run) { return run.p2p_us; }));
  return out;
}

}  // namespace moesim::replay
