#include "models/answers/anchor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/random.h"
#include "base/statistics.h"
#include "base/text.h"
#include "models/answers/answer.h"
#include "models/answers/doubt.h"
#include "models/answers/priced_draws.h"
#include "models/answers/sentences.h"
#include "models/hardware/cluster.h"
#include "models/hardware/network.h"
#include "models/workload/fields.h"

namespace moesim::models {

namespace {

constexpr std::size_t kKept = 256;  // draws of an anchored answer
constexpr double kRunSigma =
    0.01;  // between runs of one job: repeats in the data set's sources agree as well
constexpr double kLayerSigma = 0.1;  // for a layer alone, common to all dispatchers; a step has step_sigma()
// Standard deviation of one dispatcher's own factor beyond its draws, which contain most of it (doubt.h).
constexpr double kOwnSigma = 0.03;
constexpr double kExplained = 3;  // standard deviations within which a run counts as explained

struct Sigmas {
  double shared = 0, own = 0;
};

Sigmas sigmas_of(const Scenario& s) {
  return {s.is_step() ? step_sigma(s) : kLayerSigma, std::hypot(kOwnSigma, kRunSigma)};
}

struct Spread {
  double mean = 0, deviation = 0;
};

Spread spread_of(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double v : values) sum += v, squares += v * v;
  const auto n = static_cast<double>(values.size());
  const double mean = sum / n;
  return {mean, std::sqrt(std::max(0.0, squares / n - mean * mean))};
}

// The posterior of the common factor under one draw, and the draw's log likelihood. Without measurements the
// factor is as uncertain as before.
struct Posterior {
  double log_weight = 0, mean = 0, sigma = 0;
};

// `residuals`: log(measured / forecast) of each measured dispatcher.
Posterior posterior_of(const std::vector<double>& residuals, const Sigmas& by) {
  const auto n = static_cast<double>(residuals.size());
  const double own = by.own * by.own, shared = by.shared * by.shared, all = own + n * shared;
  double sum = 0, squares = 0;
  for (const double r : residuals) sum += r, squares += r * r;
  return {-0.5 * (squares / own - shared / (own * all) * sum * sum), shared * sum / all,
          by.shared * by.own / std::sqrt(all)};
}

// Returns positions by weight with low variance (Kitagawa 1996, systematic resampling).
std::vector<std::size_t> resampled(const std::vector<double>& weights, std::size_t count) {
  std::vector<std::size_t> taken;
  double sum = weights.front();
  std::size_t at = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const double here = (static_cast<double>(k) + 0.5) / static_cast<double>(count);
    while (sum < here && at + 1 < weights.size()) sum += weights[++at];
    taken.push_back(at);
  }
  return taken;
}

// Log factors of a quantity in a forecast's draws, under a name for people.
struct Latent {
  std::string name;
  std::vector<double> log_factors;  // of each draw
};

std::vector<Latent> latents_of(const Comparison& c, std::size_t draws) {
  const Scenario& s = *c.scenario;
  const bool step = s.is_step();
  std::vector<Latent> all;
  Latent launch{"what the host takes to launch a kernel", {}},
      network{"exchanges across nodes in a step", {}};
  const ParameterSet* in_step = s.cluster->profile.find(kExchangeInStep);
  for (std::size_t d = 0; d < draws; ++d) {
    const Profile drawn = drawn_profile(*s.cluster, s.seed, static_cast<int>(d));
    launch.log_factors.push_back(std::log(drawn.launch().kernel / s.cluster->profile.launch().kernel));
    if (in_step)
      network.log_factors.push_back(
          std::log(drawn.find(kExchangeInStep)->get("factor", 1) / in_step->get("factor", 1)));
  }
  all.push_back(std::move(launch));
  if (in_step && s.parallel.dispatch_ranks() > s.cluster->nvlink.domain) all.push_back(std::move(network));
  const auto drawn_by = [&](const std::string& part, const auto& factor_of) {
    if (std::ranges::find(all, part, &Latent::name) != all.end()) return;
    Latent latent{part, {}};
    for (std::size_t d = 0; d < draws; ++d) latent.log_factors.push_back(std::log(factor_of(d)));
    all.push_back(std::move(latent));
  };
  const auto doubted = [&](const std::string& part, double sigma) {
    drawn_by(part, [&](std::size_t d) { return unmeasured_factor(part, d, sigma); });
  };
  for (const Answer& a : c.answers) {
    if (!a.ok()) continue;
    doubted(launches_of(a.dispatcher), launch_sigma(step));
    doubted(exchanges_of(a.dispatcher), kExchangeSigma);
    if (std::ranges::any_of(a.unmeasured, &DomainReport::Unmeasured::exchange))
      drawn_by(unpublished_kernels_of(a.dispatcher),
               [&](std::size_t d) { return unpublished_kernel_factor(a.dispatcher, d); });
    for (const DomainReport::Unmeasured& part : a.unmeasured)
      if (!part.drawn) doubted(part.part, kUnmeasuredSigma);
  }
  return all;
}

// Multiplies the time of a forecast, all its parts and its spans.
void scale(Answer& a, double factor) {
  a.time_us.value *= factor;
  a.healthy_us *= factor;
  a.exposed_comm_us *= factor;
  a.network.calibrated_us *= factor;
  for (double& part : a.breakdown_us) part *= factor;
  const auto scale_ps = [factor](std::int64_t& ps) { ps = std::llround(static_cast<double>(ps) * factor); };
  if (a.layer) {
    auto layer = std::make_shared<LayerTrace>(*a.layer);
    layer->timeline.scale(factor);
    a.layer = std::move(layer);
  }
  for (SlotTrace& slot : a.slots) scale_ps(slot.from), scale_ps(slot.to);
  std::ranges::for_each(a.stage_end, scale_ps);
  for (Answer::MemorySample& sample : a.memory_over_time) sample.time_us *= factor;
}

// Returns the MoE layer of a step's scenario: settings of whole steps are as if they had not been given.
Scenario layer_of(const Scenario& step) {
  Scenario layer = step;
  const Scenario plain;
  layer.scope = Scenario::Scope::kLayer;
  while (const Field* unused = unused_field(layer)) {
    if (unused->take) unused->take(layer, plain);
    layer.given.reset(index_of(*unused));
  }
  layer.training.recompute.dense = false;
  return layer;
}

// Measured times of one scope beside forecasts of it.
struct Evidence {
  const Comparison* forecast = nullptr;
  Sigmas by;
  std::vector<std::size_t> measured, answers;  // positions in the anchor and in the forecast

  // Throws InputError for a dispatcher that the forecast lacks.
  void add(Anchor& anchor, std::size_t k) {
    Measured& one = anchor.measured[k];
    measured.push_back(k);
    if (one.dispatcher.empty()) {
      const auto own = own_dispatcher(*forecast);
      if (!own)
        throw InputError(
            fmt::format("--measured: found a time without its dispatcher beside {} that are compared, "
                        "expected DISPATCHER=TIME",
                        forecast->answers.size()));
      one.dispatcher = *own;
    }
    answers.push_back(answer_named(*forecast, one.dispatcher, "--measured"));
    const Answer& a = forecast->answers[answers.back()];
    one.dispatcher = a.dispatcher;
    anchor.before[k] = a.time_us;
    std::vector<double> logs = a.draws_us;
    for (double& draw : logs) draw = std::log(draw);
    const Spread draws = spread_of(logs);
    if (std::abs(std::log(one.us) - draws.mean) > kExplained * std::hypot(draws.deviation, by.shared, by.own))
      anchor.explained = false;
  }
  // `us`: the time of each run in the anchor.
  Posterior posterior(const std::vector<double>& us, std::size_t draw) const {
    std::vector<double> residuals;
    residuals.reserve(answers.size());
    for (std::size_t k = 0; k < answers.size(); ++k)
      residuals.push_back(std::log(us[measured[k]] / forecast->answers[answers[k]].draws_us[draw]));
    return posterior_of(residuals, by);
  }
};

// Returns the latents that moved by more than half of their uncertainty, or lost half of it.
std::vector<Anchor::Moved> moved_of(const Comparison& c, const Anchor& anchor, const Evidence& own) {
  std::vector<Anchor::Moved> moved;
  const auto factor = [](std::vector<double> logs) {
    for (double& log : logs) log = std::exp(log);
    return Estimate::from_samples(quantile_of(logs, 0.5), logs);
  };
  if (!own.measured.empty())
    moved.push_back({"all that frameworks and versions differ in", Estimate::log_normal(1, own.by.shared),
                     factor(anchor.measurement.shared)});
  for (const Latent& latent : latents_of(c, static_cast<std::size_t>(anchor.drawn))) {
    std::vector<double> after;
    after.reserve(anchor.measurement.draws.size());
    for (const std::size_t d : anchor.measurement.draws) after.push_back(latent.log_factors[d]);
    const Spread was = spread_of(latent.log_factors), is = spread_of(after);
    const double half = 0.5 * was.deviation;
    if (was.deviation > 0.02 && (std::abs(is.mean - was.mean) > half || is.deviation < half))
      moved.push_back({latent.name, factor(latent.log_factors), factor(after)});
  }
  return moved;
}

}  // namespace

Anchor anchor_of(const Comparison& c, std::vector<Measured> measured, bool told) {
  Anchor anchor;
  Evidence own{&c, sigmas_of(*c.scenario), {}, {}}, layers;
  anchor.measured = std::move(measured);
  anchor.before.resize(anchor.measured.size());
  for (const Answer& a : c.answers) {
    anchor.forecasts.push_back(a.time_us);
    if (a.ok()) anchor.drawn = static_cast<int>(a.draws_us.size());
  }
  std::optional<Comparison> layer;
  for (std::size_t k = 0; k < anchor.measured.size(); ++k) {
    if (!anchor.measured[k].layer) {
      own.add(anchor, k);
      continue;
    }
    if (!layer) {
      AnswerOptions options;
      options.draws = anchor.drawn;
      options.each = true;
      layer = answer(layer_of(*c.scenario), options);
      layers = {&*layer, sigmas_of(*layer->scenario), {}, {}};
    }
    layers.add(anchor, k);
  }
  // Sets anchor.effective_draws, too.
  const auto resampled_by = [&](const std::vector<double>& us) {
    std::vector<Posterior> posteriors;
    double most = -INFINITY;
    for (std::size_t d = 0; d < static_cast<std::size_t>(anchor.drawn); ++d) {
      posteriors.push_back(own.posterior(us, d));
      if (layer) posteriors.back().log_weight += layers.posterior(us, d).log_weight;
      most = std::max(most, posteriors.back().log_weight);
    }
    std::vector<double> weights;
    double sum = 0, squares = 0;
    for (const Posterior& one : posteriors)
      weights.push_back(std::exp(one.log_weight - most)), sum += weights.back();
    for (double& w : weights) w /= sum, squares += w * w;
    anchor.effective_draws = 1 / squares;
    Anchor::Resampled taken{resampled(weights, kKept), {}};
    for (std::size_t k = 0; k < taken.draws.size(); ++k) {
      const Posterior& at = posteriors[taken.draws[k]];
      taken.shared.push_back(at.mean + at.sigma * Random::for_item(c.scenario->seed, k).normal());
    }
    return taken;
  };
  std::vector<double> forecast_us, measured_us;
  for (std::size_t k = 0; k < anchor.measured.size(); ++k) {
    forecast_us.push_back(anchor.before[k].value);
    measured_us.push_back(anchor.measured[k].us);
  }
  anchor.expectation = resampled_by(forecast_us);
  anchor.measurement = resampled_by(measured_us);
  if (!told) return anchor;
  anchor.moved = moved_of(c, anchor, own);
  if (!anchor.explained)
    anchor.suspects =
        suspects_of(anchor.measured.front().layer ? *layer->scenario : *c.scenario, anchor.measured.front());
  return anchor;
}

int Anchor::known(const std::string& dispatcher) const {
  const auto at = std::ranges::find_if(
      measured, [&](const Measured& one) { return !one.layer && one.dispatcher == dispatcher; });
  return at == measured.end() ? -1 : static_cast<int>(at - measured.begin());
}

void anchor_answer(Answer& a, const Anchor& anchor, int index) {
  if (!a.ok() || a.draws_us.empty()) return;
  const auto drawn = [&](const Anchor::Resampled& by) {
    std::vector<double> draws;
    draws.reserve(by.draws.size());
    for (std::size_t k = 0; k < by.draws.size(); ++k)
      draws.push_back(a.draws_us[by.draws[k]] * std::exp(by.shared[k]));
    return draws;
  };
  std::vector<double> draws = drawn(anchor.measurement);
  double value = 0;
  if (index >= 0) {
    value = anchor.measured[static_cast<std::size_t>(index)].us;
    for (std::size_t k = 0; k < draws.size(); ++k)
      draws[k] =
          value * std::exp(kRunSigma * Random::for_item(static_cast<std::uint64_t>(index), k).normal());
  } else {
    const double middle = quantile_of(draws, 0.5);
    value = a.time_us.value * middle / quantile_of(drawn(anchor.expectation), 0.5);
    for (double& draw : draws) draw *= value / middle;
  }
  scale(a, value / a.time_us.value);
  a.draws_us = std::move(draws);
  a.time_us = Estimate::from_samples(value, a.draws_us);
  a.hosts.reset();  // the measurement tells which
}

std::vector<Anchor::Suspect> suspects_of(const Scenario& scenario, const Measured& measured) {
  // Settings that a job's files often omit and that move its time most.
  static constexpr std::pair<const char*, const char*> kOthers[] = {
      {"training.launch", "graphs"},
      {"training.launch", "eager"},
      {"training.recompute", "full"},
      {"training.recompute", "none"},
      {"training.precision", "bf16"},
      {"training.precision", "fp8"},
      {"training.fused_kernels", "true"},
      {"training.fused_kernels", "false"},
      {"routing", "zipf:1"},
      {"routing", "balanced"},
      {"training.overlap.expert_communication", "true"},
      {"training.overlap.expert_communication", "false"}};
  std::vector<Anchor::Suspect> found;
  for (const auto& [path, text] : kOthers) {
    const Field* field = find_field(path);
    if (!field) continue;
    try {
      Scenario s = scenario;
      const nlohmann::ordered_json before = field->write(s);
      set_field(*field, s, text);
      if (field->write(s) == before) continue;
      s.dispatchers = {DispatcherSpec::parse(measured.dispatcher)};
      s.all_dispatchers = false;
      AnswerOptions options;
      options.draws = 0;
      options.breakdown = false;
      const double us = answer(std::move(s), options).answers.front().time_us.value;
      found.push_back({path, text, us});
    } catch (const InputError&) {  // the job cannot run with this value
    }
  }
  const auto away = [&](const Anchor::Suspect& one) { return std::abs(std::log(one.us / measured.us)); };
  const double sigma = step_sigma(scenario);
  std::erase_if(found, [&](const Anchor::Suspect& one) { return away(one) > 2 * sigma; });
  std::ranges::stable_sort(found, {}, away);
  return found;
}

}  // namespace moesim::models
