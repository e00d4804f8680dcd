#include "models/answers/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "base/helper_threads.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/step/step_forecast.h"

namespace moesim::models {

namespace {

struct Candidate {
  Parallel parallel;
  std::string dispatcher;
  std::string recompute;
};

enum class Fate : std::uint8_t { kOpen, kIllegal, kTooLarge, kForecast };

struct Outcome {
  Fate fate = Fate::kOpen;
  double seconds = 0;
  std::string rule;
};

std::vector<std::int64_t> divisors(std::int64_t n, std::int64_t most) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

std::vector<std::int64_t> powers_of_two(std::int64_t most) {
  std::vector<std::int64_t> all;
  for (std::int64_t p = 1; p <= most; p *= 2) all.push_back(p);
  return all;
}

// Every combination of parallel sizes that uses all GPUs and keeps the global batch.
std::vector<Parallel> parallel_plans(const Scenario& s) {
  const Parallel& base = s.parallel;
  const std::int64_t gpus = s.cluster->ranks(), batch = base.dp * base.microbatches * base.micro_batch;
  const std::int64_t layers = s.model.layers + s.model.mtp_layers;
  std::vector<Parallel> all;
  for (const std::int64_t tp : powers_of_two(std::min<std::int64_t>(s.cluster->nvlink.domain, 8))) {
    if (s.model.attention.heads % tp != 0) continue;
    // A sequence is split where a rank's share would otherwise be longer than 16k tokens.
    for (const std::int64_t cp : powers_of_two(std::max<std::int64_t>(1, base.seq / 8192))) {
      if (gpus % (tp * cp) != 0) continue;
      for (const std::int64_t pp : divisors(gpus / (tp * cp), std::min<std::int64_t>(layers, 64))) {
        const std::int64_t dp = gpus / (tp * cp * pp);
        if (batch % dp != 0) continue;
        for (const std::int64_t ep : divisors(std::max<std::int64_t>(1, s.model.experts), gpus / pp)) {
          if ((tp * cp * dp) % ep != 0) continue;
          for (const std::int64_t etp : tp > 1 ? std::vector{std::int64_t{1}, tp} : std::vector{tp}) {
            if ((tp * cp * dp) % (etp * ep) != 0 || s.model.expert_ffn % etp != 0) continue;
            for (const std::int64_t micro : {1, 2, 4, 8}) {
              if ((batch / dp) % micro != 0) continue;
              for (const std::int64_t vpp : {1, 2, 4, 8}) {
                if (vpp > 1 && (pp == 1 || pp * vpp > layers)) continue;
                Parallel p = base;
                p.tp = tp, p.cp = cp, p.pp = pp, p.dp = dp, p.ep = ep, p.etp = etp, p.vpp = vpp;
                p.micro_batch = micro;
                p.microbatches = batch / dp / micro;
                if (vpp > 1 && p.microbatches % pp != 0) continue;
                all.push_back(p);
              }
            }
          }
        }
      }
    }
  }
  return all;
}

class Search {
 public:
  Search(const Scenario& scenario, const PlanSearchOptions& options) : s_(scenario), o_(options) {}

  Scenario scenario_of(const Candidate& c) const {
    Scenario s = s_;
    s.parallel = c.parallel;
    s.give("parallel.dp");
    if (!c.dispatcher.empty()) s.set_dispatchers(c.dispatcher);
    if (o_.recompute) s.training.recompute = StepRecompute::parse(c.recompute);
    s.resolve();
    return s;
  }

  Outcome attempt(const Candidate& c) const {
    Outcome outcome;
    try {
      Scenario s = scenario_of(c);
      // One routing for all layers ranks plans well enough; the best are answered with their own.
      s.routing.shared = true;
      const StepForecaster forecaster(s, s.dispatchers.front());
      if (o_.under_memory && forecaster.memory().fits_probability < Decision::kSure) {
        outcome.fate = Fate::kTooLarge;
        return outcome;
      }
      outcome.seconds = forecaster.seconds(*s.cluster);
      outcome.fate = Fate::kForecast;
    } catch (const InputError& error) {
      outcome.fate = Fate::kIllegal;
      outcome.rule = error.what();
    }
    return outcome;
  }

  // Tries all candidates; the same outcomes for any number of threads.
  std::vector<Outcome> attempt_all(const std::vector<Candidate>& candidates, std::int64_t done_before,
                                   std::int64_t total) const {
    std::vector<Outcome> outcomes(candidates.size());
    std::atomic<std::size_t> next{0}, done{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < candidates.size(); i = next++)
        outcomes[i] = attempt(candidates[i]), ++done;
    };
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    const unsigned threads = o_.threads > 0 ? static_cast<unsigned>(o_.threads) : cores;
    HelperThreads helpers(threads, work);
    if (helpers.size() == 0) work();
    while (o_.progress && done < candidates.size()) {
      o_.progress(done_before + static_cast<std::int64_t>(done.load()), total);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    helpers.join();
    if (o_.progress) o_.progress(done_before + static_cast<std::int64_t>(candidates.size()), total);
    return outcomes;
  }

 private:
  const Scenario& s_;
  const PlanSearchOptions& o_;
};

// What was tried, in the order in which it was.
class Trials {
 public:
  explicit Trials(const Search& search) : search_(search) {}

  void run(std::vector<Candidate> more, std::int64_t total) {
    std::vector<Outcome> found =
        search_.attempt_all(more, static_cast<std::int64_t>(candidates_.size()), total);
    candidates_.insert(candidates_.end(), more.begin(), more.end());
    outcomes_.insert(outcomes_.end(), found.begin(), found.end());
  }

  std::size_t size() const { return candidates_.size(); }
  const Candidate& candidate(std::size_t i) const { return candidates_[i]; }
  const std::vector<Outcome>& outcomes() const { return outcomes_; }

  // The forecast ones, fastest first.
  std::vector<std::size_t> fastest() const {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < outcomes_.size(); ++i)
      if (outcomes_[i].fate == Fate::kForecast) order.emplace_back(outcomes_[i].seconds, i);
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> all;
    all.reserve(order.size());
    for (const auto& [seconds, i] : order) all.push_back(i);
    return all;
  }

 private:
  const Search& search_;
  std::vector<Candidate> candidates_;
  std::vector<Outcome> outcomes_;
};

struct Axes {
  std::vector<Parallel> plans;
  std::vector<std::string> dispatchers, recomputes;

  Axes(const Scenario& s, const PlanSearchOptions& o)
      : plans(o.parallel ? parallel_plans(s) : std::vector<Parallel>{s.parallel}),
        dispatchers{""},
        recomputes{s.training.recompute.text()} {
    if (o.dispatcher) dispatchers = {"alltoall", "allgather", "flex-deepep", "flex-hybridep"};
    if (o.recompute) recomputes = {"none", "layernorm+moe_act", "core_attn+layernorm+moe", "full"};
  }

  std::size_t size() const { return plans.size() * dispatchers.size() * recomputes.size(); }
};

std::string space_of(const Axes& axes, const Scenario& s, const PlanSearchOptions& o) {
  std::string text;
  if (o.parallel)
    text =
        "TP powers of two up to 8 inside a node, CP powers of two up to seq / 8192, PP divisors up to 64, "
        "VPP 1, 2, 4, 8, EP divisors of the experts, ETP 1 or TP, microbatches of 1, 2, 4, 8 sequences, DP "
        "what is left; ";
  text += o.dispatcher ? "dispatchers " + join(axes.dispatchers, ", ")
                       : fmt::format("dispatcher {}, {}", s.dispatchers.front().text(),
                                     s.dispatchers.size() > 1 ? "the scenario's first" : "as given");
  return text + "; recomputation " + join(axes.recomputes, ", ") +
         "; schedule, sharding, precision and overlap as given";
}

std::string try_every_combination(Trials& trials, const Axes& axes) {
  std::vector<Candidate> all;
  for (const Parallel& p : axes.plans)
    for (const std::string& d : axes.dispatchers)
      for (const std::string& r : axes.recomputes) all.push_back({p, d, r});
  trials.run(std::move(all), static_cast<std::int64_t>(axes.size()));
  return "exhaustive: every combination was tried";
}

bool same_shape(const Parallel& q, const Parallel& p) {
  return q.tp == p.tp && q.cp == p.cp && q.pp == p.pp && q.ep == p.ep && q.etp == p.etp && q.vpp == p.vpp &&
         q.micro_batch == p.micro_batch;
}

// First every parallel plan with one dispatcher and the recomputation that needs least memory and least time;
// then every dispatcher and recomputation for the plans nearest to the best.
std::string try_in_two_rounds(Trials& trials, const Axes& axes, std::int64_t most) {
  const auto& [plans, dispatchers, recomputes] = axes;
  const std::size_t bound =
      std::clamp<std::size_t>(static_cast<std::size_t>(most / 2), 1, std::max<std::size_t>(1, plans.size()));
  std::vector<Candidate> first;
  const std::size_t step = std::max<std::size_t>(1, (plans.size() + bound - 1) / bound);
  for (std::size_t i = 0; i < plans.size(); i += step) {
    first.push_back({plans[i], dispatchers.front(), recomputes.front()});
    if (recomputes.size() > 1) first.push_back({plans[i], dispatchers.front(), recomputes.back()});
  }
  trials.run(std::move(first), most);
  std::vector<Candidate> second;
  std::vector<Parallel> refined;
  const auto room = static_cast<std::size_t>(most) - std::min(static_cast<std::size_t>(most), trials.size());
  for (const std::size_t i : trials.fastest()) {
    const Parallel& p = trials.candidate(i).parallel;
    if (std::any_of(refined.begin(), refined.end(), [&](const Parallel& q) { return same_shape(q, p); }))
      continue;
    if (second.size() + dispatchers.size() * recomputes.size() > room) break;
    refined.push_back(p);
    for (std::size_t d = 0; d < dispatchers.size(); ++d)
      for (std::size_t r = 0; r < recomputes.size(); ++r)
        if (d > 0 || (r > 0 && r + 1 < recomputes.size()))
          second.push_back({p, dispatchers[d], recomputes[r]});
  }
  trials.run(std::move(second), most);
  return fmt::format(
      "not exhaustive: {} of {} parallel plans were tried with {} and the least and the most recomputation, "
      "the {} fastest of them with every dispatcher and recomputation",
      (plans.size() + step - 1) / step, plans.size(),
      dispatchers.front().empty() ? "the dispatcher" : dispatchers.front(), refined.size());
}

void count_outcomes(const std::vector<Outcome>& outcomes, PlanSearchResult& result) {
  for (const Outcome& outcome : outcomes) switch (outcome.fate) {
      case Fate::kForecast:
        ++result.forecast;
        break;
      case Fate::kTooLarge:
        ++result.does_not_fit;
        break;
      default:
        ++result.illegal;
        ++result.rules[outcome.rule];
    }
  result.skipped = result.candidates - static_cast<std::int64_t>(outcomes.size());
}

// The fastest `top`, answered with a routing of their own for every layer: more are asked than are kept,
// because the order may change then.
std::vector<RankedPlan> answer_best(const Search& search, const Trials& trials, const PlanSearchOptions& o) {
  const std::vector<std::size_t> order = trials.fastest();
  const std::size_t asked = std::min(order.size(), static_cast<std::size_t>(2 * o.top));
  std::vector<RankedPlan> best;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (k >= asked && static_cast<int>(best.size()) >= o.top) break;
    AnswerOptions options;
    options.draws = o.draws;
    Comparison c = answer(search.scenario_of(trials.candidate(order[k])), options);
    // With a routing of its own for every layer a plan may hold more than with one for all.
    if (o.under_memory && c.answers.front().memory.fits_probability < Decision::kSure) continue;
    best.push_back({c.scenario, std::move(c.answers.front())});
  }
  std::stable_sort(best.begin(), best.end(), [](const RankedPlan& a, const RankedPlan& b) {
    return a.answer.time_us.value < b.answer.time_us.value;
  });
  if (static_cast<int>(best.size()) > o.top) best.resize(static_cast<std::size_t>(o.top));
  return best;
}

}  // namespace

PlanSearchResult search_plans(const Scenario& given, const PlanSearchOptions& o) {
  Scenario scenario = given;
  scenario.resolve();
  name_dispatchers(scenario);
  const Axes axes(scenario, o);
  PlanSearchResult result;
  result.space = space_of(axes, scenario, o);
  result.candidates = static_cast<std::int64_t>(axes.size());
  const Search search(scenario, o);
  Trials trials(search);
  result.method = result.candidates <= o.most ? try_every_combination(trials, axes)
                                              : try_in_two_rounds(trials, axes, o.most);
  count_outcomes(trials.outcomes(), result);
  result.best = answer_best(search, trials, o);
  if (result.best.empty())
    throw InputError(fmt::format("plan search: found no legal plan{} among {}, expected at least one{}",
                                 o.under_memory ? " that surely fits the memory" : "", result.candidates,
                                 result.rules.empty() ? "" : "; " + result.rules.begin()->first));
  return result;
}

}  // namespace moesim::models
