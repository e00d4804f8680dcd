// Costs for tests: one rule for every collective.
#pragma once

#include <functional>

#include "sim/graph/costs.h"
#include "sim/graph/task_graph.h"

namespace moesim::sim {

class TestCosts : public Costs {
 public:
  void price_collective(const CollectiveShape& shape, std::span<Time> out) const override {
    ++collective_questions;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = duration(shape, i);
  }
  FlowParameters plan_collective(const CollectiveShape&) const override { return plan; }
  Overlap overlap(RankId) const override { return slowdown; }

  std::function<Time(const CollectiveShape&, std::size_t)> duration =
      [](const CollectiveShape&, std::size_t) { return Time::from_us(10); };
  FlowParameters plan;
  Overlap slowdown;
  mutable int collective_questions = 0;
};

inline TaskGraphBuilder with_ranks(std::size_t count) {
  TaskGraphBuilder b;
  b.add_ranks(count);
  return b;
}

inline Time us(double value) { return Time::from_us(value); }

}  // namespace moesim::sim
