#include "tools/moesim/questions/whatif_evaluate.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/input_error.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/step/step_forecast.h"
#include "replay/run/layer_comparison.h"

namespace moesim::tools {

struct CostCache::Entry {
  std::shared_ptr<const models::Cluster> cluster;  // held, so that no other one gets its address
  std::uint64_t seed = 0;
  int draws = 0;
  replay::ComparisonCosts costs;
};

CostCache::CostCache() = default;
CostCache::~CostCache() = default;

const replay::ComparisonCosts& CostCache::of(const std::shared_ptr<const models::Cluster>& cluster,
                                             std::uint64_t seed, int draws) {
  constexpr std::size_t kMost = 2048;  // prices of clusters and of their draws
  if (draws == 0) seed = 0;            // draws nothing
  for (std::size_t i = entries_.size(); i-- > 0;)
    if (entries_[i].cluster == cluster && entries_[i].seed == seed && entries_[i].draws == draws)
      return entries_[i].costs;
  const std::size_t each = static_cast<std::size_t>(draws) + 1;
  if ((entries_.size() + 1) * each > kMost) entries_.clear();
  entries_.push_back({cluster, seed, draws, replay::ComparisonCosts(*cluster, seed, draws)});
  return entries_.back().costs;
}

namespace {

using models::Scenario;

void price(const Scenario& s, Answer& answer) {
  if (!s.prices.given() || !answer.ok()) return;
  const double hours = answer.time_us.value * 1e-6 / 3600;
  answer.cost = hours * s.prices.per_hour(s.cluster->profile.name(), answer.gpus, s.cluster->gpus_per_node);
}

Answer layer_answer(const Scenario& s, const replay::LayerComparison& c,
                    const replay::DispatcherForecast& f) {
  Answer a;
  a.dispatcher = f.dispatcher;
  a.time_us = f.time_us;
  a.draws_us = f.draws_us;
  a.breakdown_us = f.breakdown_us;
  a.gpus = s.parallel.dispatch_ranks();
  for (int r = 0; r < c.routing.ranks(); ++r) a.tokens += static_cast<double>(c.routing.tokens(r));
  a.tx_mean_bytes =
      std::accumulate(f.tx_bytes.begin(), f.tx_bytes.end(), 0.0) / static_cast<double>(f.tx_bytes.size());
  a.tx_max_bytes = static_cast<double>(*std::max_element(f.tx_bytes.begin(), f.tx_bytes.end()));
  a.overload = f.overload;
  a.outside_domain = f.outside_domain;
  a.memory_bytes = f.memory.max_bytes;
  a.fits = f.memory.fits;
  a.not_ranked = f.not_ranked;
  return a;
}

void evaluate_layer(const Scenario& s, const EvaluationOptions& options, Evaluation& e) {
  const replay::ComparisonCosts* costs =
      options.costs && s.cluster ? &options.costs->of(s.cluster, s.seed, options.draws) : nullptr;
  replay::LayerComparison c = replay::compare_layer(s, {.draws = options.draws,
                                                        .breakdown = options.breakdown,
                                                        .trace = false,
                                                        .costs = costs,
                                                        .routings = options.routings});
  for (const replay::DispatcherForecast& f : c.forecasts) e.answers.push_back(layer_answer(c.scenario, c, f));
  for (const replay::ExcludedDispatcher& x : c.excluded) {
    Answer& a = e.answers.emplace_back();
    a.dispatcher = x.dispatcher;
    a.error = x.rule;
  }
  add_new(e.warnings, c.warnings);
  e.scenario = std::move(c.scenario);
}

void evaluate_step(const Scenario& s, const EvaluationOptions& options, Evaluation& e) {
  Scenario resolved = s;
  resolved.resolve();
  for (const models::DispatcherSpec& spec : resolved.dispatchers) {
    const models::StepForecast f = models::StepForecaster(resolved, spec).forecast(options.draws);
    Answer& a = e.answers.emplace_back();
    a.dispatcher = spec.text();
    a.time_us = f.time_us;
    a.draws_us = f.draws_us;
    a.breakdown_us = f.breakdown_us;
    a.tokens = f.tokens;
    a.gpus = f.gpus;
    a.mfu = f.mfu;
    a.outside_domain = f.outside_domain;
    a.memory_bytes = f.memory.max_bytes;
    a.fits = f.memory.fits;
    add_new(e.warnings, f.warnings);
  }
  e.scenario = std::move(resolved);
}

void evaluate_as_asked(const Scenario& s, const EvaluationOptions& options, Evaluation& e) {
  if (s.scope == Scenario::Scope::kLayer)
    evaluate_layer(s, options, e);
  else
    evaluate_step(s, options, e);
}

// Every dispatcher by itself: one that is illegal does not take the others with it.
Evaluation evaluate_each(const Scenario& s, const EvaluationOptions& options) {
  Evaluation e;
  std::string first;
  for (const models::DispatcherSpec& spec : s.dispatchers) {
    Scenario alone = s;
    alone.dispatchers = {spec};
    try {
      evaluate_as_asked(alone, options, e);
    } catch (const InputError& error) {
      if (first.empty()) first = error.what();
      Answer& a = e.answers.emplace_back();
      a.dispatcher = spec.text();
      a.error = error.what();
    }
  }
  if (std::none_of(e.answers.begin(), e.answers.end(), [](const Answer& a) { return a.ok(); }))
    throw InputError(first);
  e.scenario.dispatchers = s.dispatchers;
  return e;
}

// The fastest, and how often it is: several that take the same time share the win.
void decide(Evaluation& e) {
  const bool any = std::any_of(e.answers.begin(), e.answers.end(),
                               [](const Answer& a) { return a.ok() && a.not_ranked.empty(); });
  const auto ranked = [&](const Answer& a) { return a.ok() && (!any || a.not_ranked.empty()); };
  for (std::size_t i = 0; i < e.answers.size(); ++i)
    if (ranked(e.answers[i]) && (e.best < 0 || e.answers[i].time_us.value <
                                                   e.answers[static_cast<std::size_t>(e.best)].time_us.value))
      e.best = static_cast<int>(i);
  if (e.best < 0) return;
  const Answer& w = *e.fastest();
  double wins = 0;
  for (std::size_t d = 0; d < w.draws_us.size(); ++d) {
    int as_fast = 0;
    bool fastest = true;
    for (const Answer& a : e.answers) {
      if (!ranked(a) || a.draws_us.size() != w.draws_us.size()) continue;
      fastest = fastest && a.draws_us[d] >= w.draws_us[d];
      as_fast += a.draws_us[d] == w.draws_us[d] ? 1 : 0;
    }
    if (fastest) wins += 1.0 / as_fast;
  }
  if (!w.draws_us.empty()) e.probability = wins / static_cast<double>(w.draws_us.size());
}

}  // namespace

Evaluation evaluate(Scenario scenario, const EvaluationOptions& options) {
  Evaluation e;
  if (scenario.all_dispatchers) models::name_dispatchers(scenario);
  try {
    evaluate_as_asked(scenario, options, e);
  } catch (const InputError&) {
    if (scenario.dispatchers.size() < 2) throw;
    e = evaluate_each(scenario, options);
  }
  for (Answer& a : e.answers) price(e.scenario, a);
  decide(e);
  return e;
}

void add_new(std::vector<std::string>& warnings, const std::vector<std::string>& more) {
  for (const std::string& one : more)
    if (std::find(warnings.begin(), warnings.end(), one) == warnings.end()) warnings.push_back(one);
}

models::Estimate difference_us(const Answer& a, const Answer& b) {
  const double value = b.time_us.value - a.time_us.value;
  if (a.draws_us.empty() || a.draws_us.size() != b.draws_us.size()) return models::Estimate::exact(value);
  std::vector<double> each(a.draws_us.size());
  for (std::size_t d = 0; d < each.size(); ++d) each[d] = b.draws_us[d] - a.draws_us[d];
  return models::Estimate::from_samples(value, each);
}

models::Estimate ratio(const Answer& a, const Answer& b) {
  const double value = b.time_us.value / a.time_us.value;
  if (a.draws_us.empty() || a.draws_us.size() != b.draws_us.size()) return models::Estimate::exact(value);
  std::vector<double> each(a.draws_us.size());
  for (std::size_t d = 0; d < each.size(); ++d) each[d] = b.draws_us[d] / a.draws_us[d];
  return models::Estimate::from_samples(value, each);
}

}  // namespace moesim::tools
