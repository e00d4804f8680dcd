#include "models/answers/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

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
        for (const std::int64_t ep : divisors(s.model.experts, gpus / pp)) {
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

// One option that lowers memory; false: it does not apply to the scenario.
struct Relief {
  std::string options;
  std::function<bool(Scenario&)> apply;
};

std::vector<Relief> reliefs_of(const Scenario& given) {
  std::vector<Relief> all;
  const auto add = [&](std::string options, std::function<bool(Scenario&)> apply) {
    all.push_back({std::move(options), std::move(apply)});
  };
  for (const char* name : {"layernorm", "moe_act", "layernorm+moe_act", "mla_up_proj",
                           "layernorm+moe_act+mla_up_proj", "layernorm+moe_act+moe", "full"})
    add(fmt::format("--recompute {}", name), [name](Scenario& s) {
      const StepRecompute again = StepRecompute::parse(name);
      if (again == s.training.recompute) return false;
      if (again.latent && s.model.attention.kind != Attention::Kind::kLatent) return false;
      s.training.recompute = again;
      return true;
    });
  add("--optimizer-dtypes fp32,bf16,bf16", [](Scenario& s) {
    const OptimizerTypes types = OptimizerTypes::parse("fp32,bf16,bf16");
    if (types.bytes() >= s.training.optimizer.bytes()) return false;
    s.training.optimizer = types;
    return true;
  });
  if (given.scope == Scenario::Scope::kStep)
    add("--gradient-bytes 2", [](Scenario& s) {
      if (s.training.gradient_bytes == 2) return false;
      s.training.gradient_bytes = 2;
      return true;
    });
  for (const char* name : {"zero1", "fsdp"})
    add(fmt::format("--sharding {}", name), [name](Scenario& s) {
      const ShardingScheme was = s.training.sharding;
      s.training.set_sharding(name);
      return was == ShardingScheme::kDdp ||
             (was == ShardingScheme::kZero1 && s.training.sharding == ShardingScheme::kFsdp);
    });
  for (const std::int64_t times : {2, 4, 8}) {
    const std::int64_t ep = given.parallel.ep * times;
    if (ep <= given.model.experts)
      add(fmt::format("--ep {}", ep), [ep](Scenario& s) {
        s.parallel.ep = ep;
        return true;
      });
  }
  for (std::int64_t micro = given.parallel.micro_batch / 2; micro >= 1; micro /= 2)
    if (given.parallel.micro_batch % micro == 0)
      add(fmt::format("--micro-batch {} --microbatches {}", micro,
                      given.parallel.microbatches * (given.parallel.micro_batch / micro)),
          [micro](Scenario& s) {
            s.parallel.microbatches *= s.parallel.micro_batch / micro;
            s.parallel.micro_batch = micro;
            return true;
          });
  for (const char* name : {"fp8", "mxfp8"})
    add(fmt::format("--precision {}", name), [name](Scenario& s) {
      if (s.training.gemm != DType::kBf16) return false;
      s.training.set_precision(name);
      return s.cluster->profile.device().peak_flops[static_cast<std::size_t>(s.training.gemm)] > 0;
    });
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
      if (o_.under_memory && !forecaster.memory().fits) {
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
    std::vector<std::jthread> pool;
    for (unsigned t = 0; t < threads; ++t) pool.emplace_back(work);
    while (o_.progress && done < candidates.size()) {
      o_.progress(done_before + static_cast<std::int64_t>(done.load()), total);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    pool.clear();
    if (o_.progress) o_.progress(done_before + static_cast<std::int64_t>(candidates.size()), total);
    return outcomes;
  }

 private:
  const Scenario& s_;
  const PlanSearchOptions& o_;
};

}  // namespace

FittingChange cheapest_fitting_change(const Scenario& scenario, const DispatcherSpec& dispatcher) {
  const std::vector<Relief> reliefs = reliefs_of(scenario);
  FittingChange best;
  const auto attempt = [&](const Relief& first, const Relief* second) {
    try {
      Scenario s = scenario;
      s.give("parallel.dp");
      s.routing.shared = true;  // ranks changes well enough
      if (!first.apply(s) || (second && !second->apply(s))) return;
      s.resolve();
      ++best.tried;
      const StepForecaster forecaster(s, dispatcher);
      if (!forecaster.memory().fits) return;
      ++best.fitting;
      const double seconds = forecaster.seconds(*s.cluster);
      if (!best.options.empty() && seconds >= best.seconds) return;
      best.options = second ? first.options + " " + second->options : first.options;
      best.seconds = seconds;
    } catch (const InputError&) {  // the plan or the dispatcher forbids it
    }
  };
  for (const Relief& relief : reliefs) attempt(relief, nullptr);
  if (best.fitting > 0) return best;
  const auto word = [](const Relief& r) { return r.options.substr(0, r.options.find(' ')); };
  for (std::size_t i = 0; i < reliefs.size(); ++i)
    for (std::size_t j = i + 1; j < reliefs.size(); ++j)
      if (word(reliefs[i]) != word(reliefs[j])) attempt(reliefs[i], &reliefs[j]);
  return best;
}

PlanSearchResult search_plans(const Scenario& given, const PlanSearchOptions& o) {
  Scenario scenario = given;
  scenario.resolve();
  name_dispatchers(scenario);
  const std::vector<Parallel> plans =
      o.parallel ? parallel_plans(scenario) : std::vector<Parallel>{scenario.parallel};
  std::vector<std::string> dispatchers{""};
  if (o.dispatcher) dispatchers = {"alltoall", "allgather", "flex-deepep", "flex-hybridep"};
  std::vector<std::string> recomputes{scenario.training.recompute.text()};
  if (o.recompute) recomputes = {"none", "layernorm+moe_act", "core_attn+layernorm+moe", "full"};

  PlanSearchResult result;
  if (o.parallel)
    result.space =
        "TP powers of two up to 8 inside a node, CP powers of two up to seq / 8192, PP divisors up to 64, "
        "VPP 1, 2, 4, "
        "8, EP divisors of the experts, ETP 1 or TP, microbatches of 1, 2, 4, 8 sequences, DP what is left; ";
  if (o.dispatcher)
    result.space += "dispatchers " + join(dispatchers, ", ");
  else
    result.space += fmt::format("dispatcher {}, {}", scenario.dispatchers.front().text(),
                                scenario.dispatchers.size() > 1 ? "the scenario's first" : "as given");
  result.space += "; recomputation " + (o.recompute ? join(recomputes, ", ") : recomputes.front());
  result.space += "; schedule, sharding, precision and overlap as given";
  result.candidates = static_cast<std::int64_t>(plans.size() * dispatchers.size() * recomputes.size());
  const Search search(scenario, o);
  std::vector<Candidate> candidates;
  std::vector<Outcome> outcomes;
  const auto run = [&](std::vector<Candidate> more, std::int64_t total) {
    std::vector<Outcome> found =
        search.attempt_all(more, static_cast<std::int64_t>(candidates.size()), total);
    candidates.insert(candidates.end(), more.begin(), more.end());
    outcomes.insert(outcomes.end(), found.begin(), found.end());
  };
  if (result.candidates <= o.most) {
    std::vector<Candidate> all;
    for (const Parallel& p : plans)
      for (const std::string& d : dispatchers)
        for (const std::string& r : recomputes) all.push_back({p, d, r});
    run(std::move(all), result.candidates);
    result.method = "exhaustive: every combination was tried";
  } else {
    // First every parallel plan with one dispatcher and the recomputation that needs least memory and least
    // time; then every dispatcher and recomputation for the plans nearest to the best.
    const std::size_t bound = std::min<std::size_t>(plans.size(), static_cast<std::size_t>(o.most / 2));
    std::vector<Candidate> first;
    const std::size_t step = std::max<std::size_t>(1, (plans.size() + bound - 1) / bound);
    for (std::size_t i = 0; i < plans.size(); i += step) {
      first.push_back({plans[i], dispatchers.front(), recomputes.front()});
      if (recomputes.size() > 1) first.push_back({plans[i], dispatchers.front(), recomputes.back()});
    }
    run(std::move(first), o.most);
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < outcomes.size(); ++i)
      if (outcomes[i].fate == Fate::kForecast) order.emplace_back(outcomes[i].seconds, i);
    std::sort(order.begin(), order.end());
    std::vector<Candidate> second;
    std::vector<Parallel> refined;
    const auto room =
        static_cast<std::size_t>(o.most) - std::min(static_cast<std::size_t>(o.most), candidates.size());
    for (const auto& [seconds, i] : order) {
      const Parallel& p = candidates[i].parallel;
      const auto same = [&](const Parallel& q) {
        return q.tp == p.tp && q.cp == p.cp && q.pp == p.pp && q.ep == p.ep && q.etp == p.etp &&
               q.vpp == p.vpp && q.micro_batch == p.micro_batch;
      };
      if (std::any_of(refined.begin(), refined.end(), same)) continue;
      if (second.size() + dispatchers.size() * recomputes.size() > room) break;
      refined.push_back(p);
      for (std::size_t d = 0; d < dispatchers.size(); ++d)
        for (std::size_t r = 0; r < recomputes.size(); ++r)
          if (d > 0 || (r > 0 && r + 1 < recomputes.size()))
            second.push_back({p, dispatchers[d], recomputes[r]});
    }
    run(std::move(second), o.most);
    result.method = fmt::format(
        "not exhaustive: {} of {} parallel plans were tried with {} and the least and the most "
        "recomputation, the {} "
        "fastest of them with every dispatcher and recomputation",
        (plans.size() + step - 1) / step, plans.size(),
        dispatchers.front().empty() ? "the dispatcher" : dispatchers.front(), refined.size());
  }
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < outcomes.size(); ++i) switch (outcomes[i].fate) {
      case Fate::kForecast:
        ++result.forecast;
        order.emplace_back(outcomes[i].seconds, i);
        break;
      case Fate::kTooLarge:
        ++result.does_not_fit;
        break;
      default:
        ++result.illegal;
        ++result.rules[outcomes[i].rule];
    }
  result.skipped = result.candidates - static_cast<std::int64_t>(outcomes.size());
  const auto none_left = [&] {
    return InputError(fmt::format("plan search: found no legal plan{} among {}, expected at least one{}",
                                  o.under_memory ? " that fits the memory" : "", result.candidates,
                                  result.rules.empty() ? "" : "; " + result.rules.begin()->first));
  };
  if (order.empty()) throw none_left();
  std::sort(order.begin(), order.end());
  const std::size_t answered = std::min(order.size(), static_cast<std::size_t>(2 * o.top));
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (k >= answered && static_cast<int>(result.best.size()) >= o.top) break;
    AnswerOptions options;
    options.draws = o.draws;
    Comparison c = answer(search.scenario_of(candidates[order[k].second]), options);
    result.best.push_back({c.scenario, std::move(c.answers.front())});
  }
  std::stable_sort(result.best.begin(), result.best.end(), [](const RankedPlan& a, const RankedPlan& b) {
    return a.answer.time_us.value < b.answer.time_us.value;
  });
  if (static_cast<int>(result.best.size()) > o.top) result.best.resize(static_cast<std::size_t>(o.top));
  if (result.best.empty()) throw none_left();
  return result;
}

}  // namespace moesim::models
