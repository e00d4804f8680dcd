#include "replay/run/validate.h"

#include <array>
#include <cmath>

#include "replay/run/uncertainty.h"

namespace moesim::replay {

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
