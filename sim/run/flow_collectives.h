// Collectives on a fabric: each becomes flows, steps and latencies, and its members end with their messages.
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
// flow. An all_to_all consists of messages, pairwise or direct, created when their step begins; other
// operations are one flow each (step_flow.h).
class FlowCollectives {
 public:
  FlowCollectives(const TaskGraph& graph, const Prices& prices, const Fabric& fabric, double window,
                  Router* router);

  // Starts the collective after all members have arrived.
  void begin(CollectiveId collective, Time now);

  // Returns the time of the next event; Time::kMax for none.
  Time next();

  // Processes the events due at `now` and appends the members that have ended.
  void advance(Time now, std::vector<TaskId>& ended);

  // Divides the caps of this rank's flows by `factor` from now on.
  void slow_down(RankId rank, double factor, Time now);

  std::vector<LinkUse> link_use() const;

 private:
  // as a sender: the whole collective instead of a message
  static constexpr std::uint32_t kWhole = 0xffffffff;

  // A running collective.
  struct Active {
    CollectiveId collective;
    CollectiveShape shape;
    const FlowParameters* plan = nullptr;
    const StepFlow* step_flow = nullptr;     // for one-flow collectives
    std::vector<std::uint32_t> step;         // pairwise: of each member
    std::vector<std::uint32_t> outstanding;  // messages of each member
    std::uint32_t members_left = 0;
    // Members of a member's domain that send, and receive, through its port's link; 0: not counted yet.
    std::vector<std::uint32_t> senders, receivers;
    double neighbours = 1;  // other members in the fullest domain, where port rates are given
  };

  // A part of a collective that waits for a latency, or flows.
  struct Part {
    std::uint32_t active;
    std::uint32_t from;  // sending member, or kWhole
    std::uint32_t to;
  };

  // A flowing part, kept where ranks are slowed.
  struct Flow {
    std::uint32_t slot = 0;  // in the network
    double most = 0;         // bytes per second alone
  };

  void launch(std::uint32_t active, Time now);
  void reach_step(std::uint32_t active, std::uint32_t member, Time now);
  void send(std::uint32_t active, std::uint32_t from, std::uint32_t to, Time now);
  void start_flow(const Part& part, Time now);
  std::uint32_t start_in_network(Time now, double bytes, double cap, std::uint32_t tag);
  void finish(const Part& part, Time now);
  void end_member(std::uint32_t active, std::uint32_t member);
  void find_route(const Active& a, std::uint32_t from, std::uint32_t to);
  bool same_domain(const Active& a, std::uint32_t from, std::uint32_t to) const;
  double occupancy(Active& a, const Part& part);
  double sharers(Active& a, const Part& part, bool sender, std::uint32_t link);
  double slowdown(const Part& part) const;
  template <class Visit>
  void for_each_rank(const Part& part, Visit&& visit) const;

  const TaskGraph& graph_;
  const Prices& prices_;
  const Fabric& fabric_;
  std::optional<Router> own_router_;
  Router& router_;
  FlowNetwork exact_;
  std::optional<WindowedFlowNetwork> windowed_;  // replaces exact_
  DelayLines<Part> delays_;
  std::vector<Active> active_;
  std::vector<std::uint32_t> free_active_;
  std::vector<Part> parts_;  // flowing parts, by tag
  std::vector<std::uint32_t> free_parts_;
  std::vector<std::optional<StepFlow>> step_flows_;  // by shape
  std::vector<std::uint32_t> due_;
  std::vector<TaskId>* ended_ = nullptr;
  Route route_, neighbours_route_;
  std::vector<LinkShare> shares_;

  std::vector<double> factor_;                       // by rank; empty where nothing is slowed
  std::vector<Flow> flow_;                           // by tag
  std::vector<std::vector<std::uint32_t>> flowing_;  // tags by rank
};

}  // namespace moesim::sim
