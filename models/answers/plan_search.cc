#include "models/answers/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/random.h"
#include "base/study.h"
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

using Fate = PlanTrial::Fate;

using Trials = moesim::Study<PlanTrial, PlanPoint>;

class Search {
 public:
  Search(const PlanSpace& space, const PlanSearchOptions& options)
      : space_(space),
        o_(options),
        trials_(
            [this] {
              return
                  [this](const PlanPoint& choice) { return try_plan(space_.scenario(choice), o_, prices_); };
            },
            {options.threads}) {}

  // So many that the first and last, which do not overlap, are few.
  static constexpr std::int64_t kEnoughMicrobatches = 16;

  // Every choice is tried once.
  std::vector<Trials::Row*> tried(const std::vector<PlanPoint>& choices) { return trials_.rows(choices); }

  // Returns a lower bound on the seconds per token of all choices below the node, whether they fit the memory
  // or not.
  PlanTrial bound(const PlanPoint& node) const {
    PlanTrial trial = time_plan(space_.scenario(node), o_.measured, prices_);
    if (trial.fate == Fate::kForecast || !trial.unmeasured.empty()) return trial;
    return time_plan(space_.scenario(space_.slowest_launch(node)), o_.measured, prices_);
  }

  // Time of a layer's passes per microbatch under balanced routing, which no routing without dropped rows
  // beats: of the critical stage, without what other stages, the host and the optimizer add. 0 where the plan
  // is illegal.
  struct LayerSeconds {
    double computing = 0, exchanging = 0;
    double head = 0;   // embedding and head, where the critical stage has them
    double rest = 0;   // of the step, beside its layers and the head
    std::string rule;  // rule that forbids every plan with such layers
  };
  LayerSeconds layer_seconds(const PlanPoint& node) const {
    try {
      // A few microbatches tell how long one takes.
      Scenario s = space_.scenario(node);
      const std::int64_t stages = s.parallel.pp, few = (kEnoughMicrobatches + stages - 1) / stages * stages;
      s.parallel.microbatches = std::min(s.parallel.microbatches, few);
      s.batch = {};
      s = resolved_plan(std::move(s));
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
      seconds.rest = std::max(0.0, f.seconds() - step_seconds(node, p, seconds, false));
      return seconds;
    } catch (const InputError& error) {
      // A dispatcher's rules concern its layer; others may concern the stages.
      const bool of_layer = std::string_view(error.what()).starts_with("--dispatcher: dispatcher ");
      return {0, 0, 0, 0, of_layer ? error.what() : ""};
    }
  }

  // The bound of bound() from layer_seconds() of a plan with the same layers, and the seconds per token that
  // are likely from these, by which nodes are ordered.
  struct Guess {
    double bound = 0, likely = 0;
  };
  Guess guess(const PlanPoint& node, const LayerSeconds& layer) const {
    constexpr double kSure = 0.97;  // stages differ, and so do microbatches without overlap
    const Parallel& p = space_.parallel(node);
    const double tokens = tokens_of_step(p);
    return {kSure * step_seconds(node, p, layer, true) / tokens,
            (step_seconds(node, p, layer, false) + layer.rest) / tokens};
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

  // Whether a choice fits for sure, or breaks a rule.
  bool fits(const PlanPoint& choice) const {
    try {
      return !o_.under_memory ||
             surely_fits(QuickAnswer(resolved_plan(space_.scenario(choice)), prices_).memory());
    } catch (const InputError&) {
      return true;
    }
  }

  bool too_large(const PlanPoint& node) const {
    try {
      return o_.under_memory && surely_too_large(resolved_plan(space_.scenario(node)));
    } catch (const InputError&) {
      return false;
    }
  }

 private:
  // Returns the time of all microbatches on a stage, plus the fill of the pipeline where its schedule has such
  // bubbles. `hides`: at least; else of the stage with the head, with the exchanges of one microbatch exposed.
  double step_seconds(const PlanPoint& node, const Parallel& p, const LayerSeconds& layer, bool hides) const {
    const auto microbatches = static_cast<double>(p.microbatches), pp = static_cast<double>(p.pp);
    const double passes =
        microbatches + (space_.fills_pipeline(node) ? (pp - 1) / static_cast<double>(p.vpp) : 0);
    const auto [less, more] = std::minmax(layer.computing, layer.exchanging);
    const double seconds = more + (!space_.overlaps_exchanges(node) ? less : hides ? 0 : less / microbatches);
    const auto layers = static_cast<double>(space_.layers());
    const double stage = std::ceil(layers / pp) * seconds;
    return passes * (hides ? std::max(stage, (layers * seconds + layer.head) / pp) : stage + layer.head);
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
  Trials trials_;
};

// Best first: expands the node with the lowest bound next, and ends when the best plan is below all bounds.
class BranchAndBound {
 public:
  BranchAndBound(const PlanSpace& space, Search& search, const PlanSearchOptions& o, PlanSearchResult& result)
      : space_(space), search_(search), o_(o), result_(result) {}

  // Bounds groups and tries nodes by turns, in an order that no budget changes: what a small one tries, a
  // larger one tries, too, so that it never finds a worse plan.
  void run() {
    group_nodes();
    while ((used_ < o_.most || best_.empty()) && (unbounded_ > 0 || open())) {
      const std::int64_t before = used_;
      if (unbounded_ > 0) bound(next_groups());
      const std::int64_t turn = used_ + 2 * (used_ - before);
      while (open() && (used_ < turn || unbounded_ == 0) && (used_ < o_.most || best_.empty())) round();
    }
    std::int64_t left = 0;  // nodes without a bound
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (!groups_[g].bounded) left += static_cast<std::int64_t>(groups_[g].members.size());
    const bool ended = left == 0 && least_bound() >= kEnough * best();
    if (std::isfinite(best())) {
      double fastest = std::min({best(), least_bound(), least_left_out_});
      if (left > 0) fastest = std::min(fastest, search_.roofline());
      result_.gap = std::max(0.0, 1 - fastest / best());
    }
    (ended ? result_.slower : result_.skipped) +=
        static_cast<std::int64_t>(space_.below() * (guessed_.size() + refined_.size()));
    result_.skipped += static_cast<std::int64_t>(space_.below()) * left;
    result_.method = fmt::format("branch and bound over {} kinds of layers, the most promising plans first{}",
                                 groups_.size() - unbounded_,
                                 ended ? "" : fmt::format("; it ended after {} forecasts", used_));
  }

  // Returns the tried choices, fastest first.
  std::vector<PlanPoint> fastest() {
    std::ranges::sort(forecast_);
    std::vector<PlanPoint> choices;
    choices.reserve(forecast_.size());
    for (auto& [seconds, choice] : forecast_) choices.push_back(std::move(choice));
    return choices;
  }

  // Tries every choice.
  void run_all() {
    try_all(space_.points(false));
    result_.gap = 0;
    result_.method = "exhaustive: every combination was tried";
  }

 private:
  static constexpr double kEnough = 0.995;  // accepted ratio of the lowest open bound to the best plan's time
  // Nodes, or groups, per round, for any number of threads.
  static constexpr std::size_t kRound = 16;

  // Ordered by what is tried first: the most likely, of close ones the fewest stages.
  struct Node {
    std::int64_t closeness;  // of likely times within 5 %
    std::int64_t stages;
    double likely, bound;  // seconds per token
    std::size_t index;     // in nodes_
    auto operator<=>(const Node&) const = default;
  };

  Node node(std::size_t index, Search::Guess guess) const {
    constexpr double kClose = 0.05, kLeast = 1e-30;
    const Parallel& p = space_.parallel(nodes_[index]);
    return {std::llround(std::log(std::max(guess.likely, kLeast)) / kClose), p.pp * p.vpp, guess.likely,
            guess.bound, index};
  }

  // Returns the slowest of the `top` best tried plans.
  double best() const {
    const auto top = static_cast<std::size_t>(std::max(1, o_.top));
    return best_.size() < top ? std::numeric_limits<double>::infinity()
                              : *std::next(best_.begin(), static_cast<std::ptrdiff_t>(top) - 1);
  }

  double least_bound() const {
    double least = std::numeric_limits<double>::infinity();
    for (const std::set<Node>* open : {&guessed_, &refined_})
      for (const Node& one : *open) least = std::min(least, one.bound);
    return least;
  }
  bool open() const { return !guessed_.empty() || !refined_.empty(); }

  // Tries choices and counts those that are new.
  std::vector<const PlanTrial*> try_all(const std::vector<PlanPoint>& choices) {
    std::vector<const PlanTrial*> all;
    const std::vector<Trials::Row*> rows = search_.tried(choices);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      PlanTrial& trial = rows[i]->answer;
      if (!std::exchange(trial.counted, true)) note(choices[i], trial);
      all.push_back(&trial);
    }
    return all;
  }

  void note(const PlanPoint& choice, const PlanTrial& trial) {
    if (trial.fate == Fate::kForecast) {
      ++used_, ++result_.forecast;
      if (best_.empty() || trial.per_token < *best_.begin()) fastest_ = choice;
      best_.insert(trial.per_token);
      forecast_.emplace_back(trial.per_token, choice);
    }
    if (trial.fate == Fate::kTooLarge) ++result_.does_not_fit;
    if (trial.fate == Fate::kIllegal) forbid(trial.rule, trial.unmeasured, 1);
    tell();
  }

  void forbid(const std::string& rule, const std::string& unmeasured, std::int64_t plans) {
    result_.illegal += plans;
    result_.rules[rule] += plans;
    if (!unmeasured.empty()) result_.unmeasured.insert(unmeasured);
  }

  void tell() const {
    if (o_.progress) o_.progress(std::min(used_, o_.most), o_.most);
  }

  // Nodes with equal layers, all bounded by one of them.
  struct Group {
    PlanSpace::LayerKey key;
    std::vector<std::size_t> members;
    bool bounded = false;
  };

  void group_nodes() {
    nodes_ = space_.points(true);
    std::vector<char> too_large(space_.plans().size());
    on_threads(too_large.size(), o_.threads, [&](std::size_t, std::size_t p) {
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
    for (auto& [key, members] : alike) groups_.push_back({key, std::move(members)});
    unbounded_ = groups_.size();
    Random random(groups_.size());
    for (std::size_t i = groups_.size(); i > 1; --i) std::swap(groups_[i - 1], groups_[random.below(i)]);
  }

  // Returns groups to bound next: those nearest to the best plan, or to the most promising node where none fits
  // yet, and some at random.
  std::vector<std::size_t> next_groups() const {
    constexpr std::size_t kNear = kRound * 3 / 4;
    const PlanSpace::LayerKey centre = fastest_            ? space_.layer_key(space_.node_of(*fastest_))
                                       : !guessed_.empty() ? space_.layer_key(nodes_[guessed_.begin()->index])
                                                           : usual_key();
    std::vector<std::pair<double, std::size_t>> left;  // by distance
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (!groups_[g].bounded) left.emplace_back(distance(centre, groups_[g].key), g);
    const auto near = left.begin() + static_cast<std::ptrdiff_t>(std::min(left.size(), kNear));
    std::ranges::partial_sort(left, near);
    std::sort(near, left.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<std::size_t> next;
    for (std::size_t i = 0; i < std::min(left.size(), kRound); ++i) next.push_back(left[i].second);
    return next;
  }

  // Returns where a search starts: experts alone are spread, over one NVLink domain.
  PlanSpace::LayerKey usual_key() const {
    const auto domain = static_cast<double>(space_.nvlink_domain());
    return std::ranges::min_element(groups_, {},
                                    [&](const Group& g) {
                                      const auto& [tp, cp, ep, etp, micro_batch] = g.key.first;
                                      return std::tuple(tp, cp, etp, micro_batch,
                                                        std::abs(std::log(static_cast<double>(ep) / domain)));
                                    })
        ->key;
  }

  // Returns the doublings and other settings that lie between them.
  static double distance(const PlanSpace::LayerKey& a, const PlanSpace::LayerKey& b) {
    double distance = 0;
    for (std::size_t i = 0; i < a.first.size(); ++i)
      distance += std::abs(std::log2(static_cast<double>(a.first[i]) / static_cast<double>(b.first[i])));
    for (std::size_t i = 0; i < a.second.size(); ++i) distance += a.second[i] != b.second[i] ? 1 : 0;
    return distance;
  }

  // Returns the cheapest member with enough microbatches; else the one with the most.
  std::size_t cheapest(const std::vector<std::size_t>& members) const {
    return *std::ranges::min_element(members, {}, [&](std::size_t i) {
      const Parallel& p = space_.parallel(nodes_[i]);
      return p.microbatches >= Search::kEnoughMicrobatches ? std::pair(0, p.microbatches * p.vpp * p.pp)
                                                           : std::pair(1, -p.microbatches);
    });
  }

  void bound(const std::vector<std::size_t>& groups) {
    std::vector<Search::LayerSeconds> seconds(groups.size());
    on_threads(groups.size(), o_.threads, [&](std::size_t, std::size_t k) {
      seconds[k] =
          search_.layer_seconds(space_.without_overlap(nodes_[cheapest(groups_[groups[k]].members)]));
    });
    used_ += static_cast<std::int64_t>(groups.size());
    for (std::size_t k = 0; k < groups.size(); ++k) {
      Group& group = groups_[groups[k]];
      group.bounded = true;
      --unbounded_;
      if (const std::string& rule = seconds[k].rule; !rule.empty()) {
        forbid(rule, "", static_cast<std::int64_t>(group.members.size() * space_.below()));
      } else {
        for (const std::size_t i : group.members)
          guessed_.insert(node(i, search_.guess(nodes_[i], seconds[k])));
      }
    }
    tell();
  }

  void round() {
    // Some refined nodes are always expanded, so that plans are found before all nodes are refined.
    std::vector<Node> taken;
    const auto take = [&](std::set<Node>& open, std::size_t most) {
      while (taken.size() < most && !open.empty()) {
        taken.push_back(open.extract(open.begin()).value());
        if (taken.back().bound < kEnough * best()) continue;
        least_left_out_ = std::min(least_left_out_, taken.back().bound);
        result_.slower += static_cast<std::int64_t>(space_.below());
        taken.pop_back();
      }
    };
    take(refined_, kRound / 4);
    std::vector<Node> refined;
    refined.swap(taken);
    take(guessed_, kRound - refined.size());
    expand(refined);
    refine(taken);
  }

  // Bounds nodes by a forecast of their own, unless nothing below them fits.
  void refine(const std::vector<Node>& nodes) {
    std::vector<std::optional<PlanTrial>> bounds(nodes.size());
    on_threads(nodes.size(), o_.threads, [&](std::size_t, std::size_t i) {
      const PlanPoint& node = nodes_[nodes[i].index];
      if (search_.fits(smallest(node))) bounds[i] = search_.bound(node);
    });
    const auto below = static_cast<std::int64_t>(space_.below());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!bounds[i]) {
        result_.does_not_fit += below;
      } else if (bounds[i]->fate == Fate::kIllegal) {
        forbid(bounds[i]->rule, bounds[i]->unmeasured, below);
      } else {
        ++used_;
        const double seconds = bounds[i]->per_token;
        refined_.insert(node(nodes[i].index, {std::max(nodes[i].bound, seconds), seconds}));
      }
    }
  }

  // Returns the choice below a node that needs the least memory.
  PlanPoint smallest(const PlanPoint& node) const {
    PlanPoint choice = space_.slowest_launch(node);
    choice.values[PlanSpace::kRecompute] = space_.axes()[PlanSpace::kRecompute].values.size() - 1;
    return choice;
  }

  // Tries the choices below nodes, the smallest first, except those that are no faster than one of them that
  // fits: less recomputation and faster launches are never slower, and more recomputation never needs more
  // memory.
  void expand(const std::vector<Node>& nodes) {
    const std::size_t recomputes = space_.axes()[PlanSpace::kRecompute].values.size();
    struct Ladder {
      PlanPoint next;
      std::size_t enough;  // recomputations to try
      bool first = true, too_large = false;
      std::set<PlanPoint> tried = {};
    };
    std::vector<Ladder> open, done;
    for (const Node& one : nodes) open.push_back({smallest(nodes_[one.index]), recomputes});
    while (!open.empty()) {
      std::vector<PlanPoint> choices;
      std::ranges::transform(open, std::back_inserter(choices), &Ladder::next);
      const std::vector<const PlanTrial*> trials = try_all(choices);
      std::vector<Ladder> left;
      for (std::size_t i = 0; i < open.size(); ++i) {
        Ladder& one = open[i];
        std::vector<std::size_t>& at = one.next.values;
        one.tried.insert(one.next);
        one.too_large = one.first && trials[i]->fate == Fate::kTooLarge;
        if (!one.first && trials[i]->fate == Fate::kForecast) one.enough = at[PlanSpace::kRecompute];
        bool more = !one.too_large;
        if (std::exchange(one.first, false)) {
          one.next = space_.node_of(one.next);
        } else if (++at[PlanSpace::kRecompute] >= one.enough) {
          at[PlanSpace::kRecompute] = 0;
          more = one.enough > 0 && at[PlanSpace::kLaunch]-- > 0;
        }
        (more ? left : done).push_back(std::move(one));
      }
      open = std::move(left);
    }
    for (const Ladder& one : done)
      (one.too_large ? result_.does_not_fit : result_.slower) +=
          static_cast<std::int64_t>(space_.below() - one.tried.size());
  }

  const PlanSpace& space_;
  Search& search_;
  const PlanSearchOptions& o_;
  PlanSearchResult& result_;
  std::vector<PlanPoint> nodes_;
  std::set<Node> guessed_, refined_;  // open ones: bounded by their group, or by a forecast of their own
  std::vector<std::pair<double, PlanPoint>> forecast_;
  std::multiset<double> best_;
  std::vector<Group> groups_;
  std::size_t unbounded_ = 0;         // groups
  std::optional<PlanPoint> fastest_;  // of the tried ones
  std::int64_t used_ = 0;
  double least_left_out_ = std::numeric_limits<double>::infinity();  // bound of nodes
};

// Answers the fastest with a routing of their own for every layer. More than `top` are answered, because the
// order may change.
std::vector<RankedPlan> answer_best(const PlanSpace& space, const std::vector<PlanPoint>& order,
                                    const PlanSearchOptions& o) {
  if (order.empty()) return {};
  PriceCache prices;
  moesim::Study<RankedPlan, PlanPoint> answers(
      [&] {
        return [&](const PlanPoint& choice) {
          AnswerOptions options;
          options.draws = o.draws;
          options.anchor = o.anchor;
          options.prices = &prices;
          Comparison c = answer(resolved_plan(space.scenario(choice)), options);
          return RankedPlan{c.scenario, std::move(c.answers.front()), 1, 0};
        };
      },
      {o.threads});
  const auto top = static_cast<std::size_t>(o.top);
  // Balanced layers route alike, so the search has forecast them exactly.
  const bool exact = space.scenario(order.front()).routing.kind == RoutingSpec::Kind::kBalanced;
  const std::size_t asked = std::min(order.size(), exact ? top : 2 * top);
  answers.rows({order.begin(), order.begin() + static_cast<std::ptrdiff_t>(asked)});
  std::vector<RankedPlan> best;
  for (std::size_t k = 0; k < order.size() && (k < asked || best.size() < top); ++k) {
    RankedPlan& plan = answers.at(order[k]).answer;
    // With its own routing for every layer a plan may need more memory than with one for all.
    if (o.under_memory && !surely_fits(plan.answer.memory)) continue;
    if (o.measured && plan.answer.unmeasured_exchange()) continue;
    best.push_back(std::move(plan));
  }
  std::ranges::stable_sort(best, {}, &RankedPlan::per_token);
  if (best.size() > top) best.resize(top);
  return best;
}

// Computes the probability of the order from the draws common to all plans.
void judge(std::vector<RankedPlan>& best) {
  if (best.empty()) return;
  std::vector<double> values;
  std::vector<std::vector<double>> times;
  for (const RankedPlan& plan : best) {
    values.push_back(plan.per_token());
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
  for (const ParallelSize& one : kParallelSizes) {
    if (!o.keep_given || !s.gave(one.path)) continue;
    Scenario freed = s;
    freed.given.reset(index_of(*find_field(one.path)));
    const PlanSpace space(freed, o);
    if (space.plans().empty()) continue;
    const std::int64_t said = s.parallel.*one.size;
    const Parallel nearest = *std::ranges::min_element(space.plans(), {}, [&](const Parallel& p) {
      return std::abs(std::log(static_cast<double>(p.*one.size) / static_cast<double>(said)));
    });
    const std::string_view flag = find_field(one.path)->flag;
    return fmt::format(" {} {}, expected one such as {} {}", flag, said, flag, nearest.*one.size);
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
  const auto most = std::ranges::max_element(r.rules, {}, [](const auto& rule) { return rule.second; });
  if (r.too_large()) {
    const double memory = s.cluster->profile.device().memory_bytes;
    const std::int64_t fewest = fewest_gpus(s), node = s.cluster->gpus_per_node;
    return fmt::format(
        "none of {} plans surely fits the {} of a GPU, expected {}{}", r.candidates, format_bytes(memory),
        fewest > s.job_gpus() ? fmt::format("at least {} GPUs, which weights and optimizer need",
                                            (fewest + node - 1) / node * node)
                              : "more than these " + std::to_string(s.job_gpus()) + " GPUs",
        most == r.rules.end() || 2 * r.illegal < r.candidates
                              ? ""
                              : fmt::format("; {} are illegal, most by: {}", r.illegal, most->first));
  }
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

const RankedPlan& PlanSearchResult::fastest() const {
  if (best.empty()) throw InputError(none);
  return best.front();
}

PlanSearchResult search_plans(const Scenario& given, const PlanSearchOptions& o) {
  Scenario scenario = resolved_but_for_batch(given, o.parallel);
  name_dispatchers(scenario);
  const PlanSpace space(scenario, o);
  PlanSearchResult result;
  result.space = space.text();
  result.candidates = space.size();
  Search search(space, o);
  BranchAndBound tried(space, search, o, result);
  constexpr std::int64_t kFew = 512;
  if (o.exhaustive || result.candidates <= std::min(kFew, o.most))
    tried.run_all();
  else
    tried.run();
  result.best = answer_best(space, tried.fastest(), o);
  judge(result.best);
  if (result.best.empty()) result.none = "plan search: " + why_none(scenario, o, result);
  return result;
}

std::string setting_text(const Scenario& s, std::string_view path) {
  const nlohmann::ordered_json value = find_field(path)->write(s);
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

std::string plan_options(const Scenario& s) {
  std::vector<std::string> words;
  for (const char* path :
       {"parallel.tp", "parallel.cp", "parallel.pp", "parallel.vpp", "parallel.ep", "parallel.etp",
        "parallel.micro_batch", "parallel.global_batch", "training.recompute"}) {
    const Field& field = *find_field(path);
    const std::string text = setting_text(s, path);
    if (text.empty()) continue;
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
