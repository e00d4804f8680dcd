#include "models/answers/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/helper_threads.h"
#include "base/input_error.h"
#include "base/random.h"
#include "base/text.h"
#include "base/units.h"
#include "models/answers/decision.h"
#include "models/answers/plan_space.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/step/training_flops.h"
#include "models/workload/fields.h"

namespace moesim::models {

namespace {

enum class Fate : std::uint8_t { kIllegal, kTooLarge, kForecast };

struct Outcome {
  Fate fate = Fate::kIllegal;
  double per_token = std::numeric_limits<double>::infinity();  // seconds of the step, for kForecast
  std::string rule;                                            // for kIllegal
  std::string unmeasured;  // for kIllegal: the dispatcher, where that is the rule
};

// Returns whether the host waits inside of a graph of the whole iteration. HybridEP and NCCL EP store rows
// beyond their static budgets there (Megatron-Bridge 26.06), the others need the counts on the host.
bool waits_in_a_graph(const Scenario& s, const MoeProgram& moe) {
  const std::string& name = s.dispatchers.front().name;
  return s.training.launch == LaunchMode::kGraphs && name != "flex-hybridep" && name != "nccl-ep" &&
         moe.program.host_syncs(moe.program.forward()) + moe.program.host_syncs(moe.program.backward()) > 0;
}

class Search {
 public:
  Search(const PlanSpace& space, const PlanSearchOptions& options) : space_(space), o_(options) {}

  Scenario scenario_of(const PlanPoint& choice) const {
    Scenario s = space_.scenario(choice);
    s.resolve();
    if (s.dispatchers.size() > 1) s.dispatchers.resize(1);
    return s;
  }

  Outcome attempt(const PlanPoint& choice) const {
    Outcome outcome;
    try {
      const QuickAnswer answer(scenario_of(choice), prices_);
      const Scenario& s = answer.scenario();
      if (o_.measured && !answer.measured_exchanges()) {
        outcome = unmeasured(s);
      } else if (waits_in_a_graph(s, answer.moe())) {
        outcome.rule = fmt::format(
            "launch graphs: {} waits for the host in every layer, which a graph of the whole "
            "iteration cannot",
            s.dispatchers.front().name);
      } else if (o_.under_memory && answer.memory().fits_probability < Decision::kSure) {
        outcome.fate = Fate::kTooLarge;
      } else {
        outcome.per_token = answer.seconds_per_token();
        outcome.fate = Fate::kForecast;
      }
    } catch (const InputError& error) {
      outcome.rule = error.what();
    }
    return outcome;
  }

  // Returns a lower bound on the seconds per token of all choices below the node, whether they fit the memory
  // or not.
  Outcome bound(const PlanPoint& node) const {
    Outcome outcome;
    for (const PlanPoint& choice : {node, space_.slowest_launch(node)}) {
      try {
        const QuickAnswer answer(scenario_of(choice), prices_);
        if (o_.measured && !answer.measured_exchanges()) return unmeasured(answer.scenario());
        outcome.per_token = answer.seconds_per_token();
        outcome.fate = Fate::kForecast;
        return outcome;
      } catch (const InputError& error) {
        outcome.rule = error.what();
      }
    }
    return outcome;
  }

  // Time of a layer's passes per microbatch under balanced routing, which no routing without dropped rows
  // beats: of the critical stage, without what other stages, the host and the optimizer add. 0 where the plan
  // is illegal.
  struct LayerSeconds {
    double computing = 0, exchanging = 0;
    double head = 0;   // embedding and head, where the critical stage has them
    std::string rule;  // rule that forbids every plan with such layers
  };
  LayerSeconds layer_seconds(const PlanPoint& node) const {
    try {
      Scenario s = scenario_of(node);
      // A capacity drops rows of a skewed routing, so the balanced one is no bound there.
      if (!s.dispatchers.front().options.contains("capacity_factor")) s.routing = {};
      const Parallel p = s.parallel;
      const Forecast f = QuickAnswer(std::move(s), prices_).forecast();
      const std::int64_t of_stage = (space_.layers() + p.pp - 1) / p.pp;
      const double unit = kUsPerSecond * static_cast<double>(p.microbatches * of_stage);
      LayerSeconds seconds;
      for (std::size_t c = 0; c < static_cast<std::size_t>(sim::Category::host_sync); ++c) {
        const auto category = static_cast<sim::Category>(c);
        const bool exchange = category == sim::Category::dispatch || category == sim::Category::combine;
        (exchange ? seconds.exchanging : seconds.computing) += f.breakdown_us[c] / unit;
      }
      for (const sim::Category c : {sim::Category::embedding, sim::Category::loss})
        seconds.head +=
            f.breakdown_us[static_cast<std::size_t>(c)] / kUsPerSecond / static_cast<double>(p.microbatches);
      return seconds;
    } catch (const InputError& error) {
      // A dispatcher's rules concern its layer; others may concern the stages.
      const bool of_layer = std::string_view(error.what()).starts_with("--dispatcher: dispatcher ");
      return {0, 0, 0, of_layer ? error.what() : ""};
    }
  }

  // Returns the bound of bound() from layer_seconds() of a plan with the same layers: all microbatches on the
  // mean stage, plus the fill of the pipeline where its schedule has such bubbles.
  double bound(const PlanPoint& node, const LayerSeconds& layer) const {
    constexpr double kSure = 0.97;  // stages differ, and so do microbatches without overlap
    const Parallel& p = space_.parallel(node);
    const auto microbatches = static_cast<double>(p.microbatches), pp = static_cast<double>(p.pp);
    const double passes =
        microbatches + (space_.fills_pipeline(node) ? (pp - 1) / static_cast<double>(p.vpp) : 0);
    const double seconds = space_.overlaps_exchanges(node) ? std::max(layer.computing, layer.exchanging)
                                                           : layer.computing + layer.exchanging;
    const auto layers = static_cast<double>(space_.layers());
    const double stage = std::max(std::ceil(layers / pp) * seconds, (layers * seconds + layer.head) / pp);
    return kSure * stage * passes / tokens_of_step(p);
  }

  // Seconds per token that no choice of the space is faster than: its products at the peak of the GPUs'
  // matrix units. Experts whose rows a capacity may drop are left out.
  double roofline() const {
    const Scenario s = space_.scenario({0, std::vector<std::size_t>(space_.axes().size(), 0)});
    const DeviceLimits& device = s.cluster->profile.device();
    const bool drops = std::ranges::any_of(
        s.dispatchers, [](const DispatcherSpec& d) { return d.options.contains("capacity_factor"); });
    const std::int64_t topk = drops ? 0 : s.topk > 0 ? s.topk : s.model.topk;
    constexpr double kForwardShare = 1.0 / 3;
    // The sequence has one token, so that no attention core is counted.
    const double flops = training_flops_per_token(s.model, 1, topk) * (s.train ? 1 : kForwardShare);
    const double own = device.peak_flops[static_cast<std::size_t>(s.training.gemm)],
                 plain = device.peak_flops[static_cast<std::size_t>(DType::kBf16)];
    const double peak =
        o_.precision || own == 0 ? *std::ranges::max_element(device.peak_flops) : std::max(own, plain);
    return flops / (peak * static_cast<double>(s.job_gpus()));
  }

  bool too_large(const PlanPoint& node) const {
    try {
      return o_.under_memory && surely_too_large(scenario_of(node));
    } catch (const InputError&) {
      return false;
    }
  }

  // Calls `work` with every index below `count`; results are the same for any number of threads.
  void each(std::size_t count, const std::function<void(std::size_t)>& work) const {
    std::atomic<std::size_t> next{0};
    const auto all = [&] {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    };
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    const std::size_t threads =
        std::min(count, o_.threads > 0 ? static_cast<std::size_t>(o_.threads) : cores);
    HelperThreads helpers(threads > 0 ? threads - 1 : 0, all);
    all();
    helpers.join();
  }

 private:
  static Outcome unmeasured(const Scenario& s) {
    const std::string& name = s.dispatchers.front().name;
    Outcome outcome;
    outcome.rule = fmt::format("dispatcher {}: its dispatch kernel was never measured on this machine", name);
    outcome.unmeasured = name;
    return outcome;
  }

  // Returns whether weights and gradients alone do not fit, below whose mean no pipeline stage can stay.
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
    // Weights in the smallest precision; gradients as accumulated; the optimizer's state divided over all
    // GPUs.
    const double state = offloads_optimizer(s.training.offload) ? 0 : s.training.optimizer.bytes();
    return held * (1.0 + s.training.gradient_bytes) +
               static_cast<double>(m.parameters()) * state / static_cast<double>(p.world()) >
           s.cluster->profile.device().memory_bytes;
  }

  const PlanSpace& space_;
  const PlanSearchOptions& o_;
  mutable PriceCache prices_;
};

// Best first: expands the node with the lowest bound next, and ends when the best plan is below all bounds.
class BranchAndBound {
 public:
  BranchAndBound(const PlanSpace& space, const Search& search, const PlanSearchOptions& o,
                 PlanSearchResult& result)
      : space_(space), search_(search), o_(o), result_(result) {}

  void run() {
    group_nodes();
    // With too few forecasts for all groups, takes every n-th of them; more until a plan fits.
    const std::size_t room = static_cast<std::size_t>(std::max<std::int64_t>(1, o_.most / 2));
    const std::size_t step = std::max<std::size_t>(1, (groups_.size() + room - 1) / room);
    std::vector<std::size_t> order(groups_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    Random random(groups_.size());
    for (std::size_t i = order.size(); step > 1 && i > 1; --i)
      std::swap(order[i - 1], order[random.below(i)]);
    std::size_t bounded = 0;
    for (std::size_t from = 0; from < step && (from == 0 || best_.empty()); ++from) {
      std::vector<std::size_t> chosen;
      for (std::size_t g = from; g < groups_.size(); g += step) chosen.push_back(order[g]);
      bound(chosen);
      bounded += chosen.size();
      while (!open_.empty() && open_.begin()->bound < kEnough * best() && (used_ < o_.most || best_.empty()))
        round();
    }
    std::int64_t left = 0;  // nodes without a bound
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (!groups_[g].bounded) left += static_cast<std::int64_t>(groups_[g].members.size());
    const bool ended = left == 0 && (open_.empty() || open_.begin()->bound >= kEnough * best());
    if (std::isfinite(best())) {
      double fastest = open_.empty() ? best() : open_.begin()->bound;
      if (left > 0) fastest = std::min(fastest, search_.roofline());
      result_.gap = std::max(0.0, 1 - fastest / best());
    }
    (ended ? result_.slower : result_.skipped) += static_cast<std::int64_t>(space_.below() * open_.size());
    result_.skipped += static_cast<std::int64_t>(space_.below()) * left;
    result_.method = fmt::format("branch and bound over {} kinds of layers, the most promising plans first{}",
                                 bounded, ended ? "" : fmt::format("; it ended after {} forecasts", used_));
  }

  // Returns the tried choices, fastest first.
  std::vector<PlanPoint> fastest() const {
    std::vector<std::pair<double, PlanPoint>> order;
    for (const auto& [choice, outcome] : tried_)
      if (outcome.fate == Fate::kForecast) order.emplace_back(outcome.per_token, choice);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<PlanPoint> choices;
    choices.reserve(order.size());
    for (auto& [seconds, choice] : order) choices.push_back(std::move(choice));
    return choices;
  }

  // Tries every choice.
  void run_all() {
    try_all(space_.all());
    result_.gap = 0;
    result_.method = "exhaustive: every combination was tried";
  }

 private:
  static constexpr double kEnough = 0.995;  // accepted ratio of the lowest open bound to the best plan's time
  static constexpr std::size_t kRound = 32;  // nodes per round, for any number of threads

  struct Node {
    double bound;
    std::size_t index;  // in nodes_
    bool refined;       // bounded by a forecast of its own
    auto operator<=>(const Node&) const = default;
  };

  // Returns the slowest of the `top` best tried plans.
  double best() const {
    const auto top = static_cast<std::size_t>(std::max(1, o_.top));
    return best_.size() < top ? std::numeric_limits<double>::infinity()
                              : *std::next(best_.begin(), static_cast<std::ptrdiff_t>(top) - 1);
  }

  void try_all(const std::vector<PlanPoint>& choices) {
    std::vector<Outcome> outcomes(choices.size());
    search_.each(choices.size(), [&](std::size_t i) { outcomes[i] = search_.attempt(choices[i]); });
    for (std::size_t i = 0; i < choices.size(); ++i) note(choices[i], outcomes[i]);
  }

  void note(const PlanPoint& choice, const Outcome& outcome) {
    ++used_;
    if (!tried_.try_emplace(choice, outcome).second) return;
    if (outcome.fate == Fate::kForecast) best_.insert(outcome.per_token), ++result_.forecast;
    if (outcome.fate == Fate::kTooLarge) ++result_.does_not_fit;
    if (outcome.fate == Fate::kIllegal) forbid(outcome, 1);
    tell();
  }

  void forbid(const Outcome& outcome, std::int64_t plans) {
    result_.illegal += plans;
    result_.rules[outcome.rule] += plans;
    if (!outcome.unmeasured.empty()) result_.unmeasured.insert(outcome.unmeasured);
  }

  void tell() const {
    if (o_.progress) o_.progress(std::min(used_, o_.most), o_.most);
  }

  // Nodes with equal layers, all bounded by one of them.
  struct Group {
    std::vector<std::size_t> members;
    bool bounded = false;
  };

  void group_nodes() {
    nodes_ = space_.nodes();
    std::vector<char> too_large(space_.plans().size());
    search_.each(too_large.size(), [&](std::size_t p) {
      PlanPoint choice = nodes_.front();
      choice.parallel = p;
      too_large[p] = search_.too_large(choice) ? 1 : 0;
    });
    std::map<PlanSpace::LayerKey, std::vector<std::size_t>> alike;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (too_large[nodes_[i].parallel] != 0)
        result_.does_not_fit += static_cast<std::int64_t>(space_.below());
      else
        alike[space_.layer_key(nodes_[i])].push_back(i);
    }
    for (auto& [key, members] : alike) groups_.push_back({std::move(members)});
  }

  // Returns the cheapest member with enough microbatches that the first and last, which do not overlap, are
  // few; else the one with the most.
  std::size_t cheapest(const std::vector<std::size_t>& members) const {
    constexpr std::int64_t kEnoughMicrobatches = 16;
    return *std::ranges::min_element(members, {}, [&](std::size_t i) {
      const Parallel& p = space_.parallel(nodes_[i]);
      return p.microbatches >= kEnoughMicrobatches ? std::pair(0, p.microbatches * p.vpp * p.pp)
                                                   : std::pair(1, -p.microbatches);
    });
  }

  void bound(const std::vector<std::size_t>& groups) {
    std::vector<Search::LayerSeconds> seconds(groups.size());
    search_.each(groups.size(), [&](std::size_t k) {
      seconds[k] =
          search_.layer_seconds(space_.without_overlap(nodes_[cheapest(groups_[groups[k]].members)]));
    });
    used_ += static_cast<std::int64_t>(groups.size());
    for (std::size_t k = 0; k < groups.size(); ++k) {
      Group& group = groups_[groups[k]];
      group.bounded = true;
      if (const std::string& rule = seconds[k].rule; !rule.empty()) {
        const auto illegal = static_cast<std::int64_t>(group.members.size() * space_.below());
        result_.illegal += illegal, result_.rules[rule] += illegal;
      } else {
        for (const std::size_t i : group.members)
          open_.insert({search_.bound(nodes_[i], seconds[k]), i, false});
      }
    }
    tell();
  }

  struct Expanded {
    std::optional<Outcome> bound;  // for a node that is only refined
    std::vector<std::pair<PlanPoint, Outcome>> tried;
    bool too_large = false;  // all choices of the node
  };

  void round() {
    std::vector<Node> taken;
    while (!open_.empty() && taken.size() < kRound && open_.begin()->bound < kEnough * best())
      taken.push_back(open_.extract(open_.begin()).value());
    std::vector<Expanded> found(taken.size());
    search_.each(taken.size(), [&](std::size_t i) {
      if (taken[i].refined)
        found[i] = expand(nodes_[taken[i].index]);
      else
        found[i].bound = search_.bound(nodes_[taken[i].index]);
    });
    const auto below = static_cast<std::int64_t>(space_.below());
    for (std::size_t i = 0; i < taken.size(); ++i) {
      if (found[i].bound) {
        ++used_;
        if (found[i].bound->fate == Fate::kIllegal)
          forbid(*found[i].bound, below);
        else
          open_.insert({std::max(taken[i].bound, found[i].bound->per_token), taken[i].index, true});
        continue;
      }
      const auto before = static_cast<std::int64_t>(tried_.size());
      for (const auto& [choice, outcome] : found[i].tried) note(choice, outcome);
      const std::int64_t more = below - (static_cast<std::int64_t>(tried_.size()) - before);
      (found[i].too_large ? result_.does_not_fit : result_.slower) += more;
    }
  }

  // Tries the choices below a node, except those that are no faster than one of them that fits: less
  // recomputation and faster launches are never slower, and more recomputation never needs more memory.
  Expanded expand(const PlanPoint& node) const {
    Expanded e;
    PlanPoint smallest = space_.slowest_launch(node);
    smallest.values[PlanSpace::kRecompute] = space_.axes()[PlanSpace::kRecompute].values.size() - 1;
    const auto attempt = [&](const PlanPoint& choice) {
      return e.tried.emplace_back(choice, search_.attempt(choice)).second.fate;
    };
    const Fate least = attempt(smallest);
    if (least == Fate::kTooLarge) {
      e.too_large = true;
      return e;
    }
    std::size_t enough = space_.axes()[PlanSpace::kRecompute].values.size();
    for (std::size_t launch = space_.axes()[PlanSpace::kLaunch].values.size(); launch-- > 0;) {
      for (std::size_t r = 0; r < enough; ++r) {
        PlanPoint choice = node;
        choice.values[PlanSpace::kLaunch] = launch;
        choice.values[PlanSpace::kRecompute] = r;
        const Fate fate = choice == smallest ? least : attempt(choice);
        if (fate == Fate::kForecast) enough = r;
      }
    }
    return e;
  }

  const PlanSpace& space_;
  const Search& search_;
  const PlanSearchOptions& o_;
  PlanSearchResult& result_;
  std::vector<PlanPoint> nodes_;
  std::set<Node> open_;
  std::map<PlanPoint, Outcome> tried_;
  std::multiset<double> best_;
  std::vector<Group> groups_;
  std::int64_t used_ = 0;
};

// Answers the fastest with a routing of their own for every layer. More than `top` are answered, because the
// order may change.
std::vector<RankedPlan> answer_best(const Search& search, const std::vector<PlanPoint>& order,
                                    const PlanSearchOptions& o) {
  std::size_t asked = std::min(order.size(), static_cast<std::size_t>(2 * o.top));
  std::vector<RankedPlan> best;
  PriceCache prices;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (k >= asked && static_cast<int>(best.size()) >= o.top) break;
    AnswerOptions options;
    options.draws = o.draws;
    options.anchor = o.anchor;
    Scenario s = search.scenario_of(order[k]);
    // Balanced layers route alike, so the search has forecast them exactly.
    if (k == 0 && s.routing.kind == RoutingSpec::Kind::kBalanced)
      asked = std::min(asked, static_cast<std::size_t>(o.top));
    options.prices = &prices;
    Comparison c = answer(std::move(s), options);
    // With its own routing for every layer a plan may need more memory than with one for all.
    if (o.under_memory && c.answers.front().memory.fits_probability < Decision::kSure) continue;
    if (o.measured && c.answers.front().unmeasured_exchange()) continue;
    best.push_back({c.scenario, std::move(c.answers.front()), 1, 0});
  }
  const auto per_token = [](const RankedPlan& p) { return p.answer.time_us.value / p.answer.tokens; };
  std::stable_sort(best.begin(), best.end(),
                   [&](const RankedPlan& a, const RankedPlan& b) { return per_token(a) < per_token(b); });
  if (static_cast<int>(best.size()) > o.top) best.resize(static_cast<std::size_t>(o.top));
  return best;
}

// Computes the probability of the order from the draws common to all plans.
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

// Resolves all but the batch, which may suit another plan only.
Scenario resolved_but_for_batch(Scenario s, bool parallel) {
  const GlobalBatch batch = s.batch;
  if (parallel) s.batch = {};
  s.resolve();
  s.batch = batch;
  return s;
}

// Names the given size that leaves no plan for the others, and the nearest size that would: " --tp 3, expected
// one such as --tp 2". The text is empty if no single size is the cause.
std::string size_in_the_way(const Scenario& s, const PlanSearchOptions& o) {
  const auto plans_without = [&](const char* path) {
    Scenario freed = s;
    freed.given.reset(index_of(*find_field(path)));
    return PlanSpace(freed, o).plans();
  };
  using Size = std::int64_t Parallel::*;
  for (const auto& [path, size] : {std::pair<const char*, Size>{"parallel.tp", &Parallel::tp},
                                   {"parallel.cp", &Parallel::cp},
                                   {"parallel.pp", &Parallel::pp},
                                   {"parallel.vpp", &Parallel::vpp},
                                   {"parallel.ep", &Parallel::ep},
                                   {"parallel.etp", &Parallel::etp},
                                   {"parallel.dp", &Parallel::dp},
                                   {"parallel.micro_batch", &Parallel::micro_batch}}) {
    if (!o.keep_given || !s.gave(path)) continue;
    const std::vector<Parallel> plans = plans_without(path);
    if (plans.empty()) continue;
    const auto from_said = [&s, size = size](const Parallel& p) {
      return std::abs(std::log(static_cast<double>(p.*size) / static_cast<double>(s.parallel.*size)));
    };
    const Parallel nearest = *std::ranges::min_element(plans, {}, from_said);
    const std::string_view flag = find_field(path)->flag;
    return fmt::format(" {} {}, expected one such as {} {}", flag, s.parallel.*size, flag, nearest.*size);
  }
  return "";
}

// Why nothing was found: no sizes, nothing legal, or nothing that fits.
std::string why_none(const Scenario& s, const PlanSearchOptions& o, const PlanSearchResult& r) {
  if (r.candidates == 0) {
    const std::string size = size_in_the_way(s, o);
    return fmt::format("found no parallel sizes for {} GPUs and {} with{}", s.job_gpus(),
                       s.batch.given() ? "a global batch of " + s.batch.text() : "this batch",
                       size.empty() ? " the sizes that were said, expected others" : size);
  }
  if (r.does_not_fit > 0 || r.forecast > 0) {
    const double memory = s.cluster->profile.device().memory_bytes;
    const std::int64_t fewest = fewest_gpus(s), node = s.cluster->gpus_per_node;
    return fmt::format(
        "none of {} plans surely fits the {} of a GPU, expected {}", r.candidates, format_bytes(memory),
        fewest > s.job_gpus() ? fmt::format("at least {} GPUs, which weights and optimizer need",
                                            (fewest + node - 1) / node * node)
                              : "more than these " + std::to_string(s.job_gpus()) + " GPUs");
  }
  const auto most = std::ranges::max_element(r.rules, {}, [](const auto& rule) { return rule.second; });
  return fmt::format("found no legal plan among {}, expected at least one{}", r.candidates,
                     most == r.rules.end() ? "" : "; " + most->first);
}

}  // namespace

std::int64_t fewest_gpus(const Scenario& s) {
  constexpr int kWeightBytes = 2;
  const double bytes =
      static_cast<double>(s.model.parameters()) * (kWeightBytes + s.training.optimizer.bytes());
  return static_cast<std::int64_t>(std::ceil(bytes / s.cluster->profile.device().memory_bytes));
}

PlanSearchResult search_plans(const Scenario& given, const PlanSearchOptions& o) {
  Scenario scenario = resolved_but_for_batch(given, o.parallel);
  name_dispatchers(scenario);
  const PlanSpace space(scenario, o);
  PlanSearchResult result;
  result.space = space.text();
  result.candidates = space.size();
  const Search search(space, o);
  BranchAndBound tried(space, search, o, result);
  constexpr std::int64_t kFew = 512;
  if (o.exhaustive || result.candidates <= std::min(kFew, o.most))
    tried.run_all();
  else
    tried.run();
  result.best = answer_best(search, tried.fastest(), o);
  judge(result.best);
  if (result.best.empty()) throw InputError("plan search: " + why_none(scenario, o, result));
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
    // Values that equal the defaults say nothing, except the sizes that all plans have.
    const bool always =
        field.path == "parallel.tp" || field.path == "parallel.pp" || field.path == "parallel.ep";
    if (text == field.fallback && !always) continue;
    if (field.path == "parallel.ep" && s.model.experts == 0) continue;
    words.push_back(fmt::format("{} {}", field.flag, text));
  }
  return join(words, " ");
}

}  // namespace moesim::models
