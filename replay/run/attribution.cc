#include "replay/run/attribution.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <tuple>

#include "base/check.h"

namespace moesim::replay {

namespace {

bool computes(const Step& step) { return !is_p2p(step.kind) && !is_gradient_sync(step.kind); }

// Segments with equal keys take their mean: the same place in the schedule on all ranks of a group.
using SegmentKey = std::tuple<int, std::size_t, std::size_t>;  // first rank of the group, step, segment

void even_out(const Topology& topology, std::vector<RankSteps>& plans, bool experts) {
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  std::map<SegmentKey, Mean> means;
  const auto visit = [&](const auto& act) {
    for (RankSteps& plan : plans) {
      const int group = topology.group(experts ? GroupKind::expert : GroupKind::dp, plan.rank).front();
      for (std::size_t s = 0; s < plan.steps.size(); ++s) {
        Step& step = plan.steps[s];
        if (!computes(step)) continue;
        for (std::size_t k = 0; k < step.segments_us.size(); ++k)
          if (in_experts(step, k) == experts) act(SegmentKey{group, s, k}, step.segments_us[k]);
      }
    }
  };
  visit([&](const SegmentKey& key, double& us) {
    Mean& mean = means[key];
    mean.sum += us;
    ++mean.count;
  });
  visit([&](const SegmentKey& key, double& us) {
    const Mean& mean = means.at(key);
    us = mean.sum / mean.count;
  });
}

// Prices in which some instances take no time.
class Without final : public Pricing {
 public:
  Without(std::unique_ptr<Pricing> inner, bool gradients, bool others)
      : inner_(std::move(inner)), gradients_(gradients), others_(others), costs_(*inner_) {}

  sim::TrafficRef traffic(const Instance& instance, std::size_t index,
                          sim::TaskGraphBuilder& builder) override {
    const sim::TrafficRef traffic = inner_->traffic(instance, index, builder);
    const bool gradient = !instance.inside_step && is_gradient_sync(instance.step);
    return (gradient ? gradients_ : others_) ? sim::uniform_traffic(kNothing) : traffic;
  }
  const sim::Costs& costs() const override { return costs_; }

 private:
  static constexpr std::uint64_t kNothing = ~std::uint64_t{0};

  class Costs final : public sim::Costs {
   public:
    explicit Costs(const Pricing& inner) : inner_(inner) {}
    void price_collective(const sim::CollectiveShape& shape, std::span<sim::Time> out) const override {
      if (shape.traffic.kind == sim::Traffic::Kind::uniform && shape.traffic.bytes == kNothing)
        std::fill(out.begin(), out.end(), sim::Time{});
      else
        inner_.costs().price_collective(shape, out);
    }
    sim::FlowParameters plan_collective(const sim::CollectiveShape&) const override {
      check_failed("attribution runs with closed forms");
    }

   private:
    const Pricing& inner_;
  };

  std::unique_ptr<Pricing> inner_;
  bool gradients_, others_;
  Costs costs_;
};

// Finds the ranks and layers that others waited for.
void find_waiting(const Iteration& iteration, int layers_per_stage, Attribution& out) {
  const sim::TaskGraph& graph = iteration.graph;
  std::vector<double> by_rank(static_cast<std::size_t>(iteration.topology.world()), 0.0);
  std::map<std::pair<int, int>, double> by_layer;  // stage, layer
  for (const StepSpan& span : iteration.spans) {
    std::vector<std::pair<sim::TaskId, double>> calls;
    for (sim::TaskId task = span.first; task.valid(); task = graph.next_on_stream(task)) {
      if (graph.kind(task) == sim::TaskKind::member) {
        const sim::CollectiveId collective = graph.collective(task);
        const double waited =
            std::max(0.0, iteration.timeline.begin(collective).us() - iteration.timeline.start(task).us());
        // A pipeline's neighbours wait for each other by design: that is the bubble.
        if (!is_p2p(span.kind)) {
          const sim::TaskId last = iteration.timeline.last_arrival(collective);
          if (last.valid() && last != task) by_rank[graph.rank(last).value()] += waited;
        }
        calls.emplace_back(task, waited);
      }
      if (task == span.last) break;
    }
    const bool layered = span.kind == StepKind::forward || span.kind == StepKind::backward;
    const auto layers = static_cast<std::size_t>(std::max(1, layers_per_stage));
    if (!layered || calls.empty() || calls.size() % layers != 0) continue;
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const std::size_t at = c / (calls.size() / layers);
      const std::size_t layer = span.kind == StepKind::forward ? at : layers - 1 - at;
      by_layer[{iteration.topology.of(span.rank).pp, static_cast<int>(layer)}] += calls[c].second;
    }
  }
  for (std::size_t r = 0; r < by_rank.size(); ++r)
    if (by_rank[r] > 0)
      out.ranks.push_back({static_cast<int>(r), iteration.topology.of(static_cast<int>(r)).pp, by_rank[r]});
  for (const auto& [key, us] : by_layer) out.layers.push_back({key.second, key.first, us});
  const auto longer = [](const Waiting& a, const Waiting& b) { return a.us > b.us; };
  std::stable_sort(out.ranks.begin(), out.ranks.end(), longer);
  std::stable_sort(out.layers.begin(), out.layers.end(), longer);
}

}  // namespace

std::string_view name(CauseOfTime cause) {
  static constexpr std::array<std::string_view, kCausesOfTime> kNames{
      "contention", "routing_skew", "attention_skew", "gradient_sync",
      "network",    "host",         "bubble",         "computing"};
  return kNames[static_cast<std::size_t>(cause)];
}

Attribution attribute(const Iteration& iteration, std::span<const RankSteps> plans, int layers_per_stage,
                      const std::function<std::unique_ptr<Pricing>()>& pricing) {
  const Topology& topology = iteration.topology;
  std::vector<RankSteps> left(plans.begin(), plans.end());
  Attribution out;
  double before = iteration.us();
  const auto take = [&](CauseOfTime cause, bool gradients, bool others) {
    Without without(pricing(), gradients, others);
    double after = simulate(topology, left, without, sim::Detail::times).us();
    // Contention never helps; an apparent gain is rounding.
    if (cause == CauseOfTime::contention) after = std::min(after, before);
    out.shares.push_back({cause, before - after});
    before = after;
  };
  if (iteration.timing == sim::Timing::flow) take(CauseOfTime::contention, false, false);
  even_out(topology, left, true);
  take(CauseOfTime::routing_skew, false, false);
  even_out(topology, left, false);
  take(CauseOfTime::attention_skew, false, false);
  for (RankSteps& plan : left)
    for (Step& step : plan.steps)
      if (is_gradient_sync(step.kind)) {
        for (double& us : step.segments_us) us = 0;
        step.duration_us = 0;
      }
  take(CauseOfTime::gradient_sync, true, false);
  take(CauseOfTime::network, true, true);
  for (RankSteps& plan : left)
    for (Step& step : plan.steps) step.gap_us = 0;
  take(CauseOfTime::host, true, true);
  std::vector<double> stages(static_cast<std::size_t>(topology.pp), 0.0);
  for (const RankSteps& plan : left)
    for (const Step& step : plan.steps)
      for (const double us : step.segments_us)
        stages[static_cast<std::size_t>(topology.of(plan.rank).pp)] += us;
  const double computing = *std::max_element(stages.begin(), stages.end()) / topology.stage_ranks();
  out.shares.push_back({CauseOfTime::bubble, before - computing});
  out.shares.push_back({CauseOfTime::computing, computing});
  find_waiting(iteration, layers_per_stage, out);
  return out;
}

}  // namespace moesim::replay
