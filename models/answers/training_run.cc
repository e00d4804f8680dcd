#include "models/answers/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/statistics.h"
#include "base/units.h"
#include "models/answers/decision.h"
#include "models/answers/doubt.h"
#include "models/answers/plan_search.h"
#include "models/hardware/gpu_family.h"
#include "models/hardware/hardware.h"
#include "models/hardware/network.h"
#include "models/hardware/rental_list.h"

namespace moesim::models {

namespace {

constexpr double kDay = 86400;

// Returns the probability that a value with a log-normal factor of `sigma` on each draw is at most `most`,
// with one uninformative draw added.
double probability_below(double most, const std::vector<double>& draws, double value, double sigma) {
  const auto below = [&](double one) { return normal_below(std::log(most / one) / sigma); };
  if (draws.empty()) return below(value);
  double sum = 0.5;
  for (const double one : draws) sum += below(one);
  return sum / static_cast<double>(draws.size() + 1);
}

constexpr double kUnknownPower = 1e9;  // ratio to the limit of a machine whose power is not known

// Scales an estimate.
Estimate scaled(const Estimate& e, double factor) {
  return {e.value * factor, e.low * factor, e.high * factor};
}

std::string machine_name(const Cluster& cluster, std::int64_t gpus) {
  return gpus > 0 ? fmt::format("{} GPUs of {}", gpus, cluster.name) : cluster.name;
}

PlanSearchOptions options_of(const RunQuestion& q) {
  PlanSearchOptions o;
  o.schedule = o.overlap = o.launch = true;
  o.keep_given = true;
  o.measured = !q.scenario.gave("dispatcher");
  o.refused = q.refused;
  o.top = 1;
  o.draws = q.draws;
  o.anchor = q.anchor;
  o.threads = q.threads;
  o.most = q.most;
  return o;
}

Scenario on(const RunQuestion& q, const std::shared_ptr<const Cluster>& cluster, std::int64_t gpus) {
  Scenario s = q.scenario;
  s.cluster = cluster;
  s.gpus = gpus;
  s.give("cluster");
  if (gpus > 0) s.give("gpus");
  return s;
}

// The search over machines.
class Run {
 public:
  explicit Run(const RunQuestion& question) : q_(question), machines_(question.machines) {
    std::ranges::stable_sort(machines_, {}, [](const RunMachine& m) { return m.cluster->name; });
    for (RunMachine& m : machines_) std::ranges::sort(m.gpus);
  }

  RunAnswer answer() {
    std::int64_t searches = 0;
    for (const RunMachine& machine : machines_)
      searches += std::max<std::int64_t>(1, static_cast<std::int64_t>(machine.gpus.size()));
    const bool lower = q_.lower_precision && !q_.scenario.gave("training.precision");
    todo_ = q_.most * (searches * (lower ? 2 : 1) + (q_.upgrades ? kUpgrades : 0));
    for (const RunMachine& machine : machines_) search(machine);
    if (a_.plans.empty()) {
      const auto of_machine = [](const RunAnswer::LeftOut& one) { return one.machine; };
      const RunAnswer::LeftOut& first = *std::ranges::find_if(a_.left_out, of_machine);
      const auto others = std::ranges::count_if(a_.left_out, of_machine) - 1;
      throw InputError(fmt::format("plan: found no plan of {} on {}{}, expected one: {}",
                                   q_.scenario.model.name, first.what,
                                   others > 0 ? fmt::format(" (nor on {} more)", others) : "", first.why));
    }
    rank();
    find_frontier();
    if (q_.upgrades) find_upgrades();
    if (q_.progress) q_.progress(todo_, todo_);
    return std::move(a_);
  }

 private:
  static constexpr std::int64_t kUpgrades = 4;

  // The best plan on a machine, which depends on nothing but the question and this machine.
  struct Found {
    RankedPlan best;
    bool shown = false;  // has a row
  };

  // Searches each number of GPUs. Between two of which only one meets deadline and budget, halves the step
  // twice: the first numbers tried are powers of two.
  void search(const RunMachine& machine) {
    constexpr int kHalvings = 2;
    std::map<std::int64_t, bool> meets;  // by the number of GPUs
    const auto look = [&](std::int64_t gpus) {
      if (const std::optional<PricedTraining> plan = search(machine.cluster, gpus))
        meets[plan->gpus] = plan->meets;
    };
    if (machine.gpus.empty()) look(0);
    for (const std::int64_t gpus : machine.gpus) look(gpus);
    for (int i = 0; machine.gpus.size() > 1 && i < kHalvings; ++i) {
      std::int64_t between = 0;
      for (auto at = meets.begin(); at != meets.end() && std::next(at) != meets.end(); ++at) {
        const auto& [few, fewer] = *at;
        const auto& [many, more] = *std::next(at);
        if (fewer == more) continue;
        const std::int64_t node = machine.cluster->gpus_per_node;
        between = (few + many) / 2 / node * node;
        if (between <= few) between = 0;
      }
      if (between == 0) return;
      look(between);
    }
  }

  // Returns the best plan on a machine, and adds it with that of a lower precision to the answer once.
  std::optional<PricedTraining> search(const std::shared_ptr<const Cluster>& cluster, std::int64_t gpus) {
    try {
      if (!has_price(q_.prices, q_.ownership, *cluster))
        throw InputError(
            fmt::format("no price of it is known; --prices {}=2.50 says one", cluster->profile.name()));
      Found& found = find(on(q_, cluster, gpus), true);
      PricedTraining plan = judge_run(q_, found.best.scenario, found.best.answer);
      if (std::exchange(found.shown, true)) return plan;
      a_.plans.push_back(plan);
      if (q_.lower_precision && !q_.scenario.gave("training.precision"))
        search_lower(*found.best.scenario, on(q_, cluster, gpus));
      return plan;
    } catch (const InputError& error) {
      a_.left_out.push_back({machine_name(*cluster, gpus), error.what(), true});
      return std::nullopt;
    }
  }

  // Searches a machine that was not searched yet. `counts`: the answer counts its plans.
  Found& find(Scenario s, bool counts) {
    if (q_.take_recipe && !s.recipe.empty()) q_.take_recipe(s, s.recipe);
    Scenario machine = s;
    machine.batch = {};
    machine.resolve();
    const std::string key = fmt::format("{} {} {} {}", machine.job_gpus(), machine.training.precision,
                                        machine.recipe, machine.cluster->to_json().dump());
    if (const auto known = found_.find(key); known != found_.end()) return known->second;
    // A search counts with its budget of forecasts in the progress, however many it makes.
    PlanSearchOptions o = options_of(q_);
    if (q_.progress)
      o.progress = [this](std::int64_t done, std::int64_t total) {
        q_.progress(std::min(todo_, done_ + (total > 0 ? q_.most * std::min(done, total) / total : 0)),
                    todo_);
      };
    const PlanSearchResult r = search_plans(s, o);
    const RankedPlan& best = r.fastest();
    done_ = std::min(todo_, done_ + q_.most);
    if (counts) count(r, s.cluster->profile.name());
    return found_.emplace(key, Found{best}).first->second;
  }

  void count(const PlanSearchResult& r, const std::string& profile) {
    a_.candidates += r.candidates;
    a_.tried += r.candidates - r.skipped;
    ++a_.searches;
    a_.exhaustive = a_.exhaustive && r.skipped == 0;
    a_.gap = std::max(a_.gap, r.gap);
    if (a_.method.empty() || r.skipped > 0) a_.method = r.method;
    if (a_.space.empty()) a_.space = r.space;
    for (const std::string& name : r.unmeasured) {
      const std::string what = fmt::format("{} on {} with an EP at which nobody measured it", name, profile);
      if (std::ranges::find(a_.left_out, what, &RunAnswer::LeftOut::what) == a_.left_out.end())
        a_.left_out.push_back({what, "--dispatcher takes them", false});
    }
  }

  // Searches again with the GPU's precision below bf16 in which the best plan is the fastest. `s`: the
  // question on its machine.
  void search_lower(const Scenario& plan, Scenario s) {
    std::string_view fastest;
    double least = 0;
    PriceCache prices;
    for (const std::string_view name : kPrecisions) {
      // nvfp4 has no known measurement.
      if (name == "bf16" || name == "nvfp4" || !plan.cluster->profile.device().has_precision(name)) continue;
      Scenario lower = plan;
      lower.training.set_precision(name);
      lower.give("training.precision");
      const PlanTrial trial = time_plan(std::move(lower), false, prices);
      if (trial.fate != PlanTrial::Fate::kForecast) continue;
      if (fastest.empty() || trial.per_token < least) fastest = name, least = trial.per_token;
    }
    if (fastest.empty()) return;
    try {
      s.training.set_precision(fastest);
      s.give("training.precision");
      const Found& found = find(s, true);
      a_.plans.push_back(judge_run(q_, found.best.scenario, found.best.answer));
      a_.plans.back().other = true;
    } catch (const InputError&) {  // it does not fit
    }
  }

  // A plan that misses what was asked for is ranked by how much it misses: the nearest is the best.
  double metric(const PricedTraining& p) const {
    if (!p.meets) {
      double missed = 0;
      if (p.deadline_probability < Decision::kSure) missed = p.days.value / q_.deadline_days;
      if (p.budget_probability < Decision::kSure) missed = std::max(missed, p.cost.value / q_.budget);
      if (q_.power_watts > 0)
        missed = std::max(missed, p.energy ? p.energy->peak_watts / q_.power_watts : kUnknownPower);
      return missed;
    }
    return q_.by == RunQuestion::By::kTime ? p.days.value : p.cost.value;
  }

  void rank() {
    std::stable_sort(a_.plans.begin(), a_.plans.end(), [&](const PricedTraining& x, const PricedTraining& y) {
      if (x.other != y.other) return y.other;
      if (x.meets != y.meets) return x.meets;
      return metric(x) < metric(y);
    });
    // Plans compete within a group: the same precision, and whether they meet the limits.
    int group = -1;
    for (std::size_t from = 0; from < a_.plans.size();) {
      std::size_t to = from;
      std::vector<double> values;
      std::vector<std::vector<double>> draws;
      for (; to < a_.plans.size() && a_.plans[to].other == a_.plans[from].other &&
             a_.plans[to].meets == a_.plans[from].meets;
           ++to) {
        PricedTraining& p = a_.plans[to];
        values.push_back(metric(p));
        draws.push_back(p.days_draws);
        for (double& d : draws.back()) d *= values.back() / p.days.value;
      }
      const std::vector<int> groups = tie_groups(values, draws, Decision::kSure);
      for (std::size_t i = from; i < to; ++i) a_.plans[i].tie_group = group + 1 + groups[i - from];
      group += 1 + groups.back();
      from = to;
    }
  }

  // Marks the plans that no other one beats in both time and cost.
  void find_frontier() {
    for (PricedTraining& p : a_.plans)
      p.on_frontier =
          !p.other && std::none_of(a_.plans.begin(), a_.plans.end(), [&](const PricedTraining& other) {
            return !other.other && other.days.value <= p.days.value && other.cost.value <= p.cost.value &&
                   (other.days.value < p.days.value || other.cost.value < p.cost.value);
          });
  }

  void find_upgrades() {
    const PricedTraining best = a_.plans.front();
    const Cluster& now = *best.scenario->cluster;
    const auto changed = [&](const std::function<void(Cluster&)>& change) {
      auto cluster = std::make_shared<Cluster>(now);
      change(*cluster);
      return on(q_, cluster, best.scenario->gpus);
    };
    const PublishedRun* run = best_published(*best.scenario);
    if (run != nullptr && !run->recipe.empty() && q_.scenario.recipe.empty() && q_.take_recipe) {
      Scenario s = on(q_, best.scenario->cluster, best.scenario->gpus);
      s.recipe = run->recipe;
      add_upgrade(best, "settings of --recipe " + run->recipe, std::move(s), false);
      std::erase_if(a_.upgrades, [](const Upgrade& u) { return u.saved_days.value <= 0; });
    }
    constexpr double kTwice = 2;
    if (now.nodes > 1)
      add_upgrade(best,
                  fmt::format("network port {} -> {}", format_bandwidth(now.nic.bandwidth),
                              format_bandwidth(kTwice * now.nic.bandwidth)),
                  changed([&](Cluster& c) { find_hardware_number("nic.bandwidth")->scale(c, kTwice); }),
                  false);
    // The domain of today's racks, or two of them; a job of one domain has nothing of a larger one, and PCIe
    // ends in its node.
    const GpuFamily* gpu = gpu_family(now.profile.name());
    const int domain = now.nvlink.domain < 64 ? 64 : 2 * now.nvlink.domain;
    if (now.nvlink.domain < best.answer.gpus && !by_pcie(now.profile.name()))
      add_upgrade(best, fmt::format("NVLink domain {} -> {} GPUs", now.nvlink.domain, domain),
                  changed([&](Cluster& c) { c.nvlink.domain = domain; }), false);
    if (gpu != nullptr && !gpu->next.empty()) {
      auto cluster = std::make_shared<const Cluster>(Cluster::load(gpu->next));
      add_upgrade(best, fmt::format("GPU {} -> {}", now.profile.name(), cluster->name),
                  on(q_, cluster, best.gpus), true);
    }
  }

  // `sold`: a machine that has a price of its own.
  void add_upgrade(const PricedTraining& best, std::string change, Scenario s, bool sold) {
    try {
      if (best.other) {
        s.training.set_precision(best.scenario->training.precision);
        s.give("training.precision");
      }
      const RankedPlan& found = find(s, false).best;
      // The time does not depend on the price, which may be unknown.
      RunQuestion free = q_;
      free.prices = PriceTable::gpu_hours();
      free.ownership = {};
      const PricedTraining run = judge_run(free, found.scenario, found.answer);
      Upgrade u;
      u.change = std::move(change);
      u.cluster = found.scenario->cluster->name;
      u.days = run.days;
      std::vector<double> saved(run.days_draws.size());
      for (std::size_t d = 0; d < saved.size(); ++d) saved[d] = best.days_draws[d] - run.days_draws[d];
      const double value = best.days.value - run.days.value;
      u.saved_days = saved.empty() ? Estimate::exact(value) : Estimate::from_samples(value, saved);
      if (value > 0) {
        u.worth = best.cost.value * value / best.days.value;
        u.most_gpu_hour = best.cost.value / (run.days.value * 24 * static_cast<double>(run.gpus));
      }
      if (sold && has_price(q_.prices, q_.ownership, *run.scenario->cluster) && !q_.prices.counts_gpu_hours())
        u.listed_gpu_hour = hour_cost(q_.prices, q_.ownership, *run.scenario->cluster, run.gpus).total() /
                            static_cast<double>(run.gpus);
      a_.upgrades.push_back(std::move(u));
    } catch (const InputError&) {  // the plan does not run there
    }
  }

  const RunQuestion& q_;
  std::vector<RunMachine> machines_;
  RunAnswer a_;
  std::int64_t done_ = 0, todo_ = 0;    // forecasts
  std::map<std::string, Found> found_;  // by machine, precision and recipe
};

}  // namespace

Faults usual_failures() {
  Faults f;
  f.gpu_mtbf_hours = std::round(16384 * 54 * 24 / 419.0);
  f.checkpoint_s = Faults::kCheckpointSeconds;
  f.restart_s = Faults::kRestartSeconds;
  return f;
}

void take_usual_failures(Scenario& s) {
  if (s.faults.gpu_mtbf_hours > 0) return;
  const Faults usual = usual_failures();
  s.faults.gpu_mtbf_hours = usual.gpu_mtbf_hours;
  if (s.faults.checkpoint_s == 0) s.faults.checkpoint_s = usual.checkpoint_s;
  if (s.faults.restart_s == 0) s.faults.restart_s = usual.restart_s;
}

std::vector<std::int64_t> usual_gpus(const Architecture& model, const Cluster& cluster, double tokens,
                                     double deadline_days, bool limited) {
  // Estimates, not measurements: share of the peak, and days of a typical training (docs/whatif.md).
  constexpr double kShare = 0.33, kShortest = 7, kLongest = 120;
  // A plan that surely keeps a deadline takes less, and may reach half of that share only.
  const double shortest = limited             ? 1
                          : deadline_days > 0 ? std::min(kShortest, deadline_days / 4)
                                              : kShortest;
  const double longest = std::max(kLongest, deadline_days);
  const double peak = cluster.profile.device().peak_flops[static_cast<std::size_t>(DType::kBf16)];
  const double gpu_days =
      6 * static_cast<double>(model.active_parameters()) * tokens / (kShare * peak) / kDay;
  std::vector<std::int64_t> counts;
  for (std::int64_t gpus = cluster.gpus_per_node; gpus <= (std::int64_t{1} << 20); gpus *= 2) {
    const double days = gpu_days / static_cast<double>(gpus);
    if (days >= shortest && days <= longest) counts.push_back(gpus);
  }
  if (counts.empty()) counts.push_back(cluster.gpus_per_node);
  return counts;
}

PricedTraining judge_run(const RunQuestion& q, std::shared_ptr<const Scenario> scenario, Answer answer) {
  const Cluster& cluster = *scenario->cluster;
  PricedTraining run;
  run.gpus = cluster.ranks();
  run.idle_gpus = run.gpus - answer.gpus;
  if (!(answer.goodput.share > 0))
    throw InputError(
        fmt::format("plan: found {} GPUs that fail before a checkpoint is done, expected fewer failures "
                    "(--faults)",
                    run.gpus));
  // Days of the training from its steps; lost work, checkpoints and restarts extend them.
  const double steps = q.tokens / answer.tokens;
  const double days = steps / answer.goodput.share * 1e-6 / kDay;
  const double sigma = std::hypot(step_sigma(*scenario), q.spread.sigma);
  for (const double us : answer.draws_us) run.days_draws.push_back(us * days * std::exp(q.spread.mean));
  run.days = q.spread.sigma > 0 && !run.days_draws.empty()
                 ? widened(answer.time_us.value * days, run.days_draws, sigma)
                 : scaled(answer.time_us, days);
  constexpr double kHours = 24;
  run.energy = energy_of(*scenario, answer);
  run.hour = hour_cost(q.prices, q.ownership, cluster, run.gpus);
  const double per_day = kHours * run.hour.total();
  run.cost = scaled(run.days, per_day);
  if (q.deadline_days > 0)
    run.deadline_probability = probability_below(q.deadline_days, run.days_draws, run.days.value, sigma);
  if (q.budget > 0)
    run.budget_probability = probability_below(q.budget / per_day, run.days_draws, run.days.value, sigma);
  run.meets = run.deadline_probability >= Decision::kSure && run.budget_probability >= Decision::kSure &&
              (q.power_watts == 0 || (run.energy && run.energy->peak_watts <= q.power_watts));
  run.scenario = std::move(scenario);
  run.answer = std::move(answer);
  return run;
}

double PricedTraining::mwh() const {
  constexpr double kHoursOfDay = 24;
  if (!energy) return 0;
  const double nodes = static_cast<double>(answer.gpus) / scenario->cluster->gpus_per_node;
  return energy->node_watts.value * nodes * days.value * kHoursOfDay * 1e-6;
}

RunChoices choices_of(const RunAnswer& answer) {
  RunChoices best;
  const auto take = [](const PricedTraining*& kept, const PricedTraining& p, auto&& value) {
    if (!kept || value(p) < value(*kept)) kept = &p;
  };
  for (const PricedTraining& p : answer.plans) {
    if (!p.meets || p.other) continue;
    take(best.cheapest, p, [](const PricedTraining& one) { return one.cost.value; });
    take(best.fewest_gpus, p, [](const PricedTraining& one) { return one.gpus; });
    take(best.shortest, p, [](const PricedTraining& one) { return one.days.value; });
  }
  return best;
}

RunAnswer plan_run(const RunQuestion& question) { return Run(question).answer(); }

}  // namespace moesim::models
