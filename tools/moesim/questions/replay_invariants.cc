#include "tools/moesim/questions/replay_invariants.h"

#include <fmt/format.h>

#include <cmath>

#include "models/answers/invariants.h"

namespace moesim::tools {

namespace {

using models::adds_up;

bool amount(double value) { return value >= 0 && std::isfinite(value); }

std::string impossible_iteration(const replay::Iteration& iteration) {
  const double total = iteration.us();
  for (std::size_t r = 0; r < iteration.timeline.rank_count(); ++r) {
    double sum = 0;
    for (const sim::Time part : iteration.timeline.ranks()[r].breakdown) {
      if (part.us() < 0) return fmt::format("a part of {} us of rank {}", part.us(), r);
      sum += part.us();
    }
    if (!adds_up(sum, total))
      return fmt::format("parts of {} us of rank {} in an iteration of {} us", sum, r, total);
  }
  return "";
}

std::string impossible_attribution(const replay::Attribution& attribution, double total) {
  double sum = 0;
  for (const replay::TimeShare& share : attribution.shares) sum += share.us;
  if (!attribution.shares.empty() && !adds_up(sum, total))
    return fmt::format("causes of {} us of an iteration of {} us", sum, total);
  for (const auto* waits : {&attribution.ranks, &attribution.layers})
    for (const replay::Waiting& wait : *waits)
      if (!amount(wait.us)) return fmt::format("a wait of {} us", wait.us);
  return "";
}

std::string impossible_summary(const replay::RunSummary& summary) {
  if (!amount(summary.iteration_us)) return fmt::format("an iteration of {} us", summary.iteration_us);
  for (const replay::StepMean& step : summary.steps)
    if (!amount(step.mean_us)) return fmt::format("an operation of {} us", step.mean_us);
  return amount(summary.p2p_us) ? "" : fmt::format("sends and receives of {} us", summary.p2p_us);
}

}  // namespace

std::string impossible(const replay::RecordingForecast& f) {
  if (std::string part = models::impossible(f); !part.empty()) return part;
  if (!adds_up(f.summary.iteration_us, f.time_us.value))
    return fmt::format("an iteration of {} us and of {} us", f.summary.iteration_us, f.time_us.value);
  if (f.measured_us && !(*f.measured_us > 0 && std::isfinite(*f.measured_us)))
    return fmt::format("a measured time of {} us", *f.measured_us);
  if (std::string part = impossible_iteration(f.iteration); !part.empty()) return part;
  if (f.as_recorded) {
    if (std::string part = models::impossible(*f.as_recorded); !part.empty()) return part;
    if (std::string part = impossible_iteration(f.as_recorded->iteration); !part.empty()) return part;
  }
  if (std::string part = impossible_attribution(f.attribution, f.iteration.us()); !part.empty()) return part;
  if (std::string part = impossible_summary(f.summary); !part.empty()) return part;
  for (const replay::RunSummary& drawn : f.drawn)
    if (std::string part = impossible_summary(drawn); !part.empty()) return part;
  if (f.overload)
    for (const models::Overload& o : f.overload->stages)
      if (!(amount(o.avg) && amount(o.max) && amount(o.max_cum)))
        return fmt::format("an overload of {}, {} and {}", o.avg, o.max, o.max_cum);
  return "";
}

std::string impossible(const replay::Validation& validation) {
  const auto of = [](const replay::Comparison& c) -> std::string {
    if (!(c.measured_us > 0 && std::isfinite(c.measured_us)))
      return fmt::format("a measured {} of {} us", c.name, c.measured_us);
    return models::impossible(models::Estimate{c.forecast_us, c.low_us, c.high_us});
  };
  if (std::string what = of(validation.iteration); !what.empty()) return what;
  for (const replay::Comparison& component : validation.components)
    if (std::string what = of(component); !what.empty()) return what;
  return "";
}

}  // namespace moesim::tools
