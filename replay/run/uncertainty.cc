#include "replay/run/uncertainty.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "base/statistics.h"

namespace moesim::replay {

namespace {

// Separates draws of the interval from those of the forecast itself.
constexpr std::uint64_t kIntervalStream = 0x9e3779b9;

// Scales the computing of a run by `factor`.
void scale(RunSummary& run, double factor) {
  run.iteration_us *= factor;
  run.p2p_us *= factor;
  for (const StepKind kind : {StepKind::forward, StepKind::backward, StepKind::loss})
    run.steps[static_cast<std::size_t>(kind)].mean_us *= factor;
}

}  // namespace

std::vector<RunSummary> draw_forecasts(const CleanJob& job, const traces::NamedTopology& named,
                                       const models::Cluster& cluster, const Effects& effects,
                                       const ForecastOptions& options, int draws, const JobDraw& drawn_job) {
  std::vector<RunSummary> out;
  for (int i = 0; i < draws; ++i) {
    Random random = Random::for_item(options.seed ^ kIntervalStream, static_cast<std::uint64_t>(i));
    models::Cluster drawn = cluster;
    drawn.profile = cluster.profile.draw(random);
    ForecastOptions other = options;
    other.seed = random.next();
    const Effects added = effects.draw(random);
    if (drawn_job.job) {
      const CleanJob another = drawn_job.job(drawn.profile, random.next());
      out.push_back(summarize(forecast(another, named, drawn, added, other).iteration));
    } else {
      out.push_back(summarize(forecast(job, named, drawn, added, other).iteration));
    }
    if (drawn_job.sigma > 0) scale(out.back(), std::exp(drawn_job.sigma * random.normal()));
  }
  return out;
}

models::Estimate interval(double value, const std::vector<double>& drawn) {
  if (drawn.empty()) return models::Estimate::log_normal(value, kRunToRun);
  // The spread of few draws is known better than their extremes; their mean is a better centre than one
  // jitter.
  double mean = 0;
  for (const double one : drawn) mean += std::log(one);
  mean /= static_cast<double>(drawn.size());
  double variance = 0;
  for (const double one : drawn) variance += (std::log(one) - mean) * (std::log(one) - mean);
  if (drawn.size() > 1) variance /= static_cast<double>(drawn.size() - 1);
  const double half = kZ90 * std::sqrt(variance + kRunToRun * kRunToRun);
  return {value, std::min(value, std::exp(mean - half)), std::max(value, std::exp(mean + half))};
}

}  // namespace moesim::replay
