#include "replay/validate.h"

#include <array>
#include <cmath>

namespace moesim::replay {

double Validation::mean_abs_component_error() const {
  double sum = 0;
  for (const Comparison& component : components) sum += std::abs(component.error());
  return components.empty() ? 0.0 : sum / static_cast<double>(components.size());
}

Validation validate(const RunSummary& forecast, const RunSummary& measured) {
  // get_batch is left out: a fifth of a millisecond that no forecast depends on.
  static constexpr std::array kCompared{StepKind::forward,           StepKind::backward,
                                        StepKind::loss,              StepKind::optimizer,
                                        StepKind::dp_all_reduce,     StepKind::expert_all_reduce,
                                        StepKind::embedding_all_reduce};
  Validation out;
  out.iteration = {"iteration", forecast.iteration_us, measured.iteration_us};
  for (const StepKind kind : kCompared)
    if (forecast.of(kind).count > 0 && measured.of(kind).count > 0 && measured.of(kind).mean_us > 0)
      out.components.push_back({name(kind), forecast.of(kind).mean_us, measured.of(kind).mean_us});
  if (forecast.p2p_us > 0 && measured.p2p_us > 0)
    out.components.push_back({"p2p", forecast.p2p_us, measured.p2p_us});
  return out;
}

}  // namespace moesim::replay
