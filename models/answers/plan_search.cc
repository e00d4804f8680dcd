#include "models/answers/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/helper_threads.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/answers/plan_space.h"
#include "models/answers/priced_draws.h"
#include "models/answers/shares.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/step/step_forecast.h"
#include "models/workload/fields.h"

namespace moesim::models {

namespace {

enum class Fate : std::uint8_t { kOpen, kIllegal, kTooLarge, kForecast };

struct Outcome {
  Fate fate = Fate::kOpen;
  double per_token = 0;  // seconds of the step
  std::string rule;
};

double tokens_of(const Parallel& p) {
  return static_cast<double>(p.dp * p.microbatches * p.micro_batch) * static_cast<double>(p.seq);
}

// Nominal prices of a cluster by the recipe that they are for; for several threads.
class Pricers {
 public:
  const ProgramPricer& of(const Scenario& s) {
    const Recipe recipe = Recipe::of(s.training, s.parallel.world());
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [known, pricer] : all_)
      if (known == recipe) return *pricer;
    all_.emplace_back(recipe, std::make_unique<const ProgramPricer>(*s.cluster, recipe));
    return *all_.back().second;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<Recipe, std::unique_ptr<const ProgramPricer>>> all_;
};

// Whether the host waits inside of a graph of the whole iteration. HybridEP and NCCL EP stash rows beyond
// their static budgets there (Megatron-Bridge 26.06), the others need the counts on the host.
bool waits_in_a_graph(const Scenario& s, const MoeProgram& moe) {
  const std::string& name = s.dispatchers.front().name;
  return s.training.launch == LaunchMode::kGraphs && name != "flex-hybridep" && name != "nccl-ep" &&
         moe.program.host_syncs(moe.program.forward()) + moe.program.host_syncs(moe.program.backward()) > 0;
}

class Search {
 public:
  Search(const PlanSpace& space, const PlanSearchOptions& options) : space_(space), o_(options) {}

  Scenario scenario_of(const PlanChoice& choice) const {
    Scenario s = space_.scenario(choice);
    s.resolve();
    if (s.dispatchers.size() > 1) s.dispatchers.resize(1);
    return s;
  }

  Outcome attempt(const PlanChoice& choice) const {
    Outcome outcome;
    try {
      Scenario s = scenario_of(choice);
      if (o_.under_memory && surely_too_large(s)) {
        outcome.fate = Fate::kTooLarge;
        return outcome;
      }
      // One routing for all layers ranks plans well enough; the best are answered with their own.
      s.routing.shared = true;
      const StepForecaster forecaster(s, s.dispatchers.front());
      if (o_.under_memory && forecaster.memory().fits_probability < Decision::kSure) {
        outcome.fate = Fate::kTooLarge;
        return outcome;
      }
      if (waits_in_a_graph(s, *forecaster.programs().first())) {
        outcome.fate = Fate::kIllegal;
        outcome.rule = fmt::format(
            "launch graphs: {} waits for the host in every layer, which a graph of the whole "
            "iteration cannot",
            s.dispatchers.front().name);
        return outcome;
      }
      outcome.per_token = forecaster.seconds(pricers_.of(s)) / tokens_of(s.parallel);
      outcome.fate = Fate::kForecast;
    } catch (const InputError& error) {
      outcome.fate = Fate::kIllegal;
      outcome.rule = error.what();
    }
    return outcome;
  }

  // Tries all choices; the same outcomes for any number of threads.
  std::vector<Outcome> attempt_all(const std::vector<PlanChoice>& choices, std::int64_t done_before,
                                   std::int64_t total) const {
    std::vector<Outcome> outcomes(choices.size());
    std::atomic<std::size_t> next{0}, done{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < choices.size(); i = next++) outcomes[i] = attempt(choices[i]), ++done;
    };
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    const std::size_t threads = o_.threads > 0 ? static_cast<std::size_t>(o_.threads) : cores;
    // Without somebody to tell, the caller works, too.
    HelperThreads helpers(std::min(threads, choices.size()) - (o_.progress || choices.empty() ? 0 : 1), work);
    if (helpers.size() == 0 || !o_.progress) work();
    while (o_.progress && done < choices.size()) {
      o_.progress(done_before + static_cast<std::int64_t>(done.load()), total);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    helpers.join();
    if (o_.progress) o_.progress(done_before + static_cast<std::int64_t>(choices.size()), total);
    return outcomes;
  }

 private:
  // Whether the weights and gradients alone do not fit, which no pipeline stage can hold less of on average.
  static bool surely_too_large(const Scenario& s) {
    const Parallel& p = s.parallel;
    const ShardingScheme scheme = s.training.sharding;
    if ((scheme != ShardingScheme::kZero1 && scheme != ShardingScheme::kDdp) || s.training.expert_sharding ||
        s.placement.given() || !s.train)
      return false;
    const Architecture& m = s.model;
    const double experts = m.experts == 0 ? 0
                                          : static_cast<double>(m.parameters_per_expert()) *
                                                static_cast<double>(m.experts * m.moe_layers());
    const double rest = static_cast<double>(m.parameters()) - experts;
    const double held =
        experts / static_cast<double>(p.etp * p.ep * p.pp) + rest / static_cast<double>(p.tp * p.pp);
    // Of weights, the fewest bytes that any precision keeps; the gradients as they are accumulated; the
    // optimizer's state in as many parts as there are GPUs.
    const double state = offloads_optimizer(s.training.offload) ? 0 : s.training.optimizer.bytes();
    return held * (1.0 + s.training.gradient_bytes) +
               static_cast<double>(m.parameters()) * state / static_cast<double>(p.world()) >
           s.cluster->profile.device().memory_bytes;
  }

  const PlanSpace& space_;
  const PlanSearchOptions& o_;
  mutable Pricers pricers_;
};

// What was tried, each choice once.
class Trials {
 public:
  Trials(const Search& search, std::int64_t most) : search_(search), most_(most) {}

  // Tries those that were not; as many as there is room for.
  void run(const std::vector<PlanChoice>& choices, std::int64_t total) {
    std::vector<PlanChoice> fresh;
    for (const PlanChoice& choice : choices) {
      if (static_cast<std::int64_t>(tried_.size()) >= most_) break;
      if (tried_.try_emplace(choice).second) fresh.push_back(choice);
    }
    const std::vector<Outcome> found =
        search_.attempt_all(fresh, static_cast<std::int64_t>(tried_.size() - fresh.size()), total);
    for (std::size_t i = 0; i < fresh.size(); ++i) tried_[fresh[i]] = found[i];
  }

  bool full() const { return static_cast<std::int64_t>(tried_.size()) >= most_; }
  const std::map<PlanChoice, Outcome>& tried() const { return tried_; }
  // Infinite for what is illegal, too large or was not tried.
  double per_token(const PlanChoice& choice) const {
    const auto found = tried_.find(choice);
    return found == tried_.end() || found->second.fate != Fate::kForecast
               ? std::numeric_limits<double>::infinity()
               : found->second.per_token;
  }

  bool too_large(const PlanChoice& choice) const {
    const auto found = tried_.find(choice);
    return found != tried_.end() && found->second.fate == Fate::kTooLarge;
  }

  // The forecast ones, fastest first.
  std::vector<PlanChoice> fastest() const {
    std::vector<PlanChoice> order;
    for (const auto& [choice, outcome] : tried_)
      if (outcome.fate == Fate::kForecast) order.push_back(choice);
    std::stable_sort(order.begin(), order.end(),
                     [&](const PlanChoice& a, const PlanChoice& b) { return per_token(a) < per_token(b); });
    return order;
  }

 private:
  const Search& search_;
  std::int64_t most_;
  std::map<PlanChoice, Outcome> tried_;
};

// The fastest coarse plans of different shapes, and what other searches found.
std::vector<PlanChoice> starts(const PlanSpace& space, const Trials& trials, const PlanSearchOptions& o,
                               const std::vector<PlanChoice>& seeds) {
  std::vector<PlanChoice> chosen = seeds;
  for (const PlanChoice& choice : trials.fastest()) {
    if (chosen.size() >= seeds.size() + static_cast<std::size_t>(std::max(1, o.starts))) break;
    const Parallel& p = space.parallel(choice);
    const bool alike = std::any_of(chosen.begin(), chosen.end(), [&](const PlanChoice& other) {
      const Parallel& q = space.parallel(other);
      return q.tp == p.tp && q.pp == p.pp;
    });
    if (!alike) chosen.push_back(choice);
  }
  return chosen;
}

// Coarse plans first; from the fastest of them and from the seeds, the change of one thing that saves most,
// until none saves anything.
std::string try_by_descent(Trials& trials, const PlanSpace& space, const PlanSearchOptions& o) {
  std::vector<PlanChoice> seeds;
  for (const std::shared_ptr<const Scenario>& seed : o.seeds) seeds.push_back(space.nearest(*seed));
  std::vector<PlanChoice> coarse = space.coarse();
  // With seeds the coarse plans are looked at again only here and there.
  const std::size_t room = static_cast<std::size_t>(std::max<std::int64_t>(1, o.most / 2));
  const std::size_t step = std::max<std::size_t>(1, (coarse.size() + room - 1) / room);
  std::vector<PlanChoice> first = seeds;
  for (std::size_t i = 0; i < coarse.size(); i += step) first.push_back(coarse[i]);
  trials.run(first, o.most);
  // Computing again costs time: it is for what does not fit without.
  if (space.recomputes()) {
    std::vector<PlanChoice> again;
    for (const PlanChoice& choice : first)
      if (trials.too_large(choice)) again.push_back(space.recomputed(choice));
    trials.run(again, o.most);
  }
  std::vector<PlanChoice> at = starts(space, trials, o, seeds);
  const std::size_t from = at.size();
  std::vector<bool> moving(at.size(), true);
  while (!trials.full() && std::find(moving.begin(), moving.end(), true) != moving.end()) {
    std::vector<PlanChoice> around;
    for (std::size_t i = 0; i < at.size(); ++i)
      if (moving[i])
        for (PlanChoice& next : space.neighbours(at[i])) around.push_back(std::move(next));
    trials.run(around, o.most);
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (!moving[i]) continue;
      PlanChoice best = at[i];
      for (const PlanChoice& next : space.neighbours(at[i]))
        if (trials.per_token(next) < trials.per_token(best)) best = next;
      moving[i] = best != at[i];
      at[i] = std::move(best);
      // Where two ways meet, one goes on.
      for (std::size_t j = 0; j < i; ++j)
        if (at[j] == at[i]) moving[i] = false;
    }
  }
  return fmt::format(
      "not exhaustive: {} coarse plans ({}powers of two, no virtual stages), then from {} of them one change "
      "at a "
      "time until none saved time{}",
      first.size(), step > 1 ? fmt::format("one of {}, ", step) : "", from,
      trials.full() ? fmt::format("; it ended after {} plans", o.most) : "");
}

void count_outcomes(const Trials& trials, PlanSearchResult& result) {
  for (const auto& [choice, outcome] : trials.tried()) switch (outcome.fate) {
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
  result.skipped = result.candidates - static_cast<std::int64_t>(trials.tried().size());
}

// The fastest `top`, answered with a routing of their own for every layer: more are asked than are kept,
// because the order may change then.
std::vector<RankedPlan> answer_best(const Search& search, const Trials& trials, const PlanSearchOptions& o) {
  const std::vector<PlanChoice> order = trials.fastest();
  std::size_t asked = std::min(order.size(), static_cast<std::size_t>(2 * o.top));
  std::vector<RankedPlan> best;
  PriceCache prices;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (k >= asked && static_cast<int>(best.size()) >= o.top) break;
    AnswerOptions options;
    options.draws = o.draws;
    options.anchor = o.anchor;
    Scenario s = search.scenario_of(order[k]);
    // Where all layers route alike anyhow, they have been forecast so.
    if (k == 0 && s.routing.kind == RoutingSpec::Kind::kBalanced)
      asked = std::min(asked, static_cast<std::size_t>(o.top));
    options.prices = &prices;
    Comparison c = answer(std::move(s), options);
    // With a routing of its own for every layer a plan may hold more than with one for all.
    if (o.under_memory && c.answers.front().memory.fits_probability < Decision::kSure) continue;
    best.push_back({c.scenario, std::move(c.answers.front()), 1, 0});
  }
  const auto per_token = [](const RankedPlan& p) { return p.answer.time_us.value / p.answer.tokens; };
  std::stable_sort(best.begin(), best.end(),
                   [&](const RankedPlan& a, const RankedPlan& b) { return per_token(a) < per_token(b); });
  if (static_cast<int>(best.size()) > o.top) best.resize(static_cast<std::size_t>(o.top));
  return best;
}

// How sure the order is, by the draws that all plans were answered with.
void judge(std::vector<RankedPlan>& best) {
  if (best.empty()) return;
  std::vector<double> values;
  std::vector<std::vector<double>> times;
  for (const RankedPlan& plan : best) {
    values.push_back(plan.answer.time_us.value / plan.answer.tokens);
    times.push_back(plan.answer.draws_us);
    for (double& t : times.back()) t /= plan.answer.tokens;
  }
  const std::vector<int> groups = tie_groups(values, times, Decision::kSure);
  const std::vector<double> shares = times.front().empty() ? std::vector<double>{} : smallest_shares(times);
  for (std::size_t i = 0; i < best.size(); ++i) {
    best[i].tie_group = groups[i];
    best[i].probability = shares.empty() ? (i == 0 ? 1 : 0) : shares[i];
  }
}

// Resolved but for its batch, which another plan than the scenario's own may have to divide.
Scenario resolved_but_for_batch(Scenario s, bool parallel) {
  const GlobalBatch batch = s.batch;
  if (parallel) s.batch = {};
  s.resolve();
  s.batch = batch;
  return s;
}

}  // namespace

PlanSearchResult search_plans(const Scenario& given, const PlanSearchOptions& o) {
  Scenario scenario = resolved_but_for_batch(given, o.parallel);
  name_dispatchers(scenario);
  const PlanSpace space(scenario, o);
  PlanSearchResult result;
  result.space = space.text();
  result.candidates = space.size();
  const Search search(space, o);
  Trials trials(search, o.most);
  if (result.candidates <= o.most) {
    trials.run(space.all(), result.candidates);
    result.method = "exhaustive: every combination was tried";
  } else {
    result.method = try_by_descent(trials, space, o);
  }
  count_outcomes(trials, result);
  result.best = answer_best(search, trials, o);
  judge(result.best);
  if (result.best.empty())
    throw InputError(fmt::format("plan search: found no legal plan{} among {}, expected at least one{}",
                                 o.under_memory ? " that surely fits the memory" : "", result.candidates,
                                 result.rules.empty() ? "" : "; " + result.rules.begin()->first));
  return result;
}

std::string plan_options(const Scenario& s) {
  std::vector<std::string> words;
  for (const char* path :
       {"parallel.tp", "parallel.cp", "parallel.pp", "parallel.vpp", "parallel.ep", "parallel.etp",
        "parallel.micro_batch", "parallel.global_batch", "training.recompute"}) {
    const Field& field = *find_field(path);
    const nlohmann::ordered_json value = field.write(s);
    if (value.is_null()) continue;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    // What is as if nobody had said it says nothing, but the sizes that all plans have.
    const bool always =
        field.path == "parallel.tp" || field.path == "parallel.pp" || field.path == "parallel.ep";
    if (text == field.fallback && !always) continue;
    if (field.path == "parallel.ep" && s.model.experts == 0) continue;
    words.push_back(fmt::format("{} {}", field.flag, text));
  }
  return join(words, " ");
}

}  // namespace moesim::models
