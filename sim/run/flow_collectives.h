// Collectives on a fabric: each becomes flows, steps and latencies, and its members end as their messages do.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/graph/task_graph.h"
#include "sim/network/fabric.h"
#include "sim/network/flows.h"
#include "sim/network/router.h"
#include "sim/network/step_flow.h"
#include "sim/network/windowed_flows.h"
#include "sim/run/event_queue.h"
#include "sim/run/prices.h"
#include "sim/run/timeline.h"

namespace moesim::sim {

// A message waits for its latency (the plan's step, or the route's where the plan has none) and then is a
// flow. An all_to_all is made of messages, pairwise or direct, which are made when their step begins; the
// other operations are one flow each (step_flow.h).
class FlowCollectives {
 public:
  FlowCollectives(const TaskGraph& graph, const Prices& prices, const Fabric& fabric, double window,
                  Router* router);

  // All members have come.
  void begin(CollectiveId collective, Time now);

  // When something happens next; Time::kMax for never.
  Time next();

  // Does what is due at `now` and appends the members that have ended.
  void advance(Time now, std::vector<TaskId>& ended);

  // Flows of this rank may take their most divided by `factor` from now on.
  void slow_down(RankId rank, double factor, Time now);

  std::vector<LinkUse> link_use() const;

 private:
  static constexpr std::uint32_t kWhole = 0xffffffff;  // as a sender: not a message but the collective

  // A collective under way.
  struct Active {
    CollectiveId collective;
    CollectiveShape shape;
    const FlowPlan* plan = nullptr;
    const StepFlow* step_flow = nullptr;     // of one-flow collectives
    std::vector<std::uint32_t> step;         // pairwise: of each member
    std::vector<std::uint32_t> outstanding;  // messages of each member
    std::uint32_t members_left = 0;
    double neighbours = 1;  // other members in the fullest domain, where ports are given
  };

  // What waits for a latency, or flows.
  struct Part {
    std::uint32_t active;
    std::uint32_t from;  // member that sends, or kWhole
    std::uint32_t to;
  };

  // A part that flows, kept where ranks are slowed.
  struct Flow {
    std::uint32_t slot = 0;  // in the network
    double most = 0;         // bytes per second that it could take alone
  };

  std::uint32_t take_active();
  std::uint32_t take_part(const Part& part);
  void launch(std::uint32_t active, Time now);
  void reach_step(std::uint32_t active, std::uint32_t member, Time now);
  void send(std::uint32_t active, std::uint32_t from, std::uint32_t to, Time now);
  void start_flow(const Part& part, Time now);
  std::uint32_t start_in_network(Time now, double bytes, double cap, std::uint32_t tag);
  void finish(const Part& part, Time now);
  void end_member(std::uint32_t active, std::uint32_t member);
  void find_route(const Active& a, std::uint32_t from, std::uint32_t to);
  bool same_domain(const Active& a, std::uint32_t from, std::uint32_t to) const;
  double occupancy(const Active& a, const Part& part) const;
  double slowdown(const Part& part) const;
  template <class Visit>
  void for_each_rank(const Part& part, Visit&& visit) const;

  const TaskGraph& graph_;
  const Prices& prices_;
  const Fabric& fabric_;
  std::optional<Router> own_router_;
  Router& router_;
  FlowNetwork exact_;
  std::optional<WindowedFlowNetwork> windowed_;  // in its place
  DelayLines<Part> delays_;
  std::vector<Active> active_;
  std::vector<std::uint32_t> free_active_;
  std::vector<Part> parts_;  // that flow, by tag
  std::vector<std::uint32_t> free_parts_;
  std::vector<std::optional<StepFlow>> step_flows_;  // by shape
  std::vector<std::uint32_t> due_;
  std::vector<TaskId>* ended_ = nullptr;
  Route route_;
  std::vector<LinkShare> shares_;

  std::vector<double> factor_;                       // by rank; empty where nothing is slowed
  std::vector<Flow> flow_;                           // by tag
  std::vector<std::vector<std::uint32_t>> flowing_;  // tags by rank
};

}  // namespace moesim::sim
