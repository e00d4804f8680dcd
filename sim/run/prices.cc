#include "sim/run/prices.h"

#include "base/check.h"

namespace moesim::sim {

Prices price(const TaskGraph& graph, const Costs& costs, bool calibrated) {
  Prices prices;
  prices.work.assign(graph.work_times().begin(), graph.work_times().end());

  for (std::size_t rank = 0; rank < graph.rank_count(); ++rank) {
    const Overlap overlap = costs.overlap(RankId(static_cast<std::uint32_t>(rank)));
    check(overlap.compute >= 1.0 && overlap.communication >= 1.0, "overlap makes nothing faster");
    if (overlap.compute == 1.0 && overlap.communication == 1.0) continue;
    prices.overlap.resize(graph.rank_count());
    prices.overlap[rank] = overlap;
  }

  if (calibrated) {
    prices.shape_begin.reserve(graph.shape_count() + 1);
    prices.shape_begin.push_back(0);
  }
  for (std::uint32_t shape = 0; shape < graph.shape_count(); ++shape) {
    const CollectiveShape question = graph.shape(shape);
    if (calibrated) {
      const std::size_t begin = prices.shape_time.size();
      prices.shape_time.resize(begin + question.members());
      costs.price_collective(question, std::span(prices.shape_time).subspan(begin));
      for (std::size_t i = begin; i < prices.shape_time.size(); ++i)
        check(prices.shape_time[i] >= Time::kZero, "a collective takes no negative time");
      prices.shape_begin.push_back(prices.shape_time.size());
    } else {
      prices.plan.push_back(costs.plan_collective(question));
      const FlowParameters& plan = prices.plan.back();
      check(plan.launch >= Time::kZero && plan.step >= Time::kZero, "latencies are not negative");
      check(plan.efficiency > 0 && plan.efficiency <= 1 && plan.bandwidth >= 0,
            "a plan's bandwidth is positive");
      check(plan.alone == Time::kZero || plan.alone >= plan.launch,
            "a collective alone begins with its launch");
      check(plan.ports_busy >= Time::kZero && plan.ports_busy <= plan.alone,
            "a port is not busy for longer than the collective takes");
      check(plan.port_within >= 0 && plan.port_across >= 0, "a port's bandwidth is positive");
    }
  }
  return prices;
}

}  // namespace moesim::sim
