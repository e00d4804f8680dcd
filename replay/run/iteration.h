// Simulates one training iteration of all ranks: steps in, timeline out.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "replay/recording/steps.h"
#include "sim/graph/task_graph.h"
#include "sim/run/simulator.h"
#include "sim/run/timeline.h"

namespace moesim::replay {

// One matched collective: the k-th call of every member on the same group.
struct Instance {
  sim::CollectiveOp op = sim::CollectiveOp::all_gather;
  GroupKind group = GroupKind::expert;
  std::vector<int> members;            // ranks in group order
  std::vector<std::int64_t> rows;      // input rows by member; elements for p2p and gradients
  std::vector<std::int64_t> out_rows;  // for an exchange: output rows by member; empty: unknown
  std::uint64_t row_bytes = 0;         // bytes of one row
  double shortest_us = 0;              // smallest recorded duration of a member: the transfer without waiting
  std::vector<double> modelled_us;     // by member, for a call made and priced by a model; else empty
  StepKind step = StepKind::forward;   // the step it belongs to
  bool inside_step = true;             // a call inside a step, not a step itself
  bool after_experts = false;          // the experts run in the segment before the call
  bool fused = false;                  // half of a send-and-receive call on either side
};

// Converts instances to traffic and time.
class Pricing {
 public:
  virtual ~Pricing() = default;
  // Returns the traffic of an instance in the graph; may add matrices or pieces to the builder.
  virtual sim::TrafficRef traffic(const Instance& instance, std::size_t index,
                                  sim::TaskGraphBuilder& builder) = 0;
  virtual const sim::Costs& costs() const = 0;
  // Returns the host time of the call before a member can arrive, where costs() does not contain it.
  virtual double launch_us(const Instance&) const { return 0; }
  virtual sim::RunOptions run_options() const { return {}; }
};

// Bytes moved by the instances of one graph; recurring matrices are added to its builder once.
class InstanceTraffic {
 public:
  // Returns the bytes of all members. An exchange is split between its members by their inputs and outputs
  // (recorded_routing.h), or evenly where the outputs are unknown.
  sim::TrafficRef of(const Instance& instance, sim::TaskGraphBuilder& builder);

 private:
  sim::TrafficRef exchange(const Instance& instance, sim::TaskGraphBuilder& builder);

  using Margins = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;
  std::map<Margins, sim::MatrixId> matrices_;
};

// Span of one step of one rank.
struct StepSpan {
  int rank = 0;
  StepKind kind = StepKind::other;
  int microbatch = 0;
  bool fused_with_next = false;
  sim::TaskId first;  // its tasks: from `first` to `last` on the rank's stream
  sim::TaskId last;
  double start_us = 0;
  double end_us = 0;

  double duration_us() const { return end_us - start_us; }
};

struct Iteration {
  Topology topology;
  sim::Timing timing = sim::Timing::calibrated;
  sim::TaskGraph graph;
  sim::Timeline timeline;
  std::vector<StepSpan> spans;       // by rank, then in order
  std::vector<SourcePlace> origins;  // indexed by TaskGraph::origin

  double us() const { return timeline.iteration().us(); }
};

// Return the category of a segment, or of the call at `index`, of a recorded step.
sim::Category segment_category(const Step& step, std::size_t segment);
sim::Category call_category(const Step& step, std::size_t index);

// The matched calls of all ranks.
struct MatchedCalls {
  static constexpr std::size_t kAlone = static_cast<std::size_t>(-1);
  struct Joined {
    std::size_t instance;  // kAlone: in a group of one
    std::size_t member;
  };
  std::vector<Instance> instances;
  std::vector<sim::Category> category;  // by instance
  std::vector<Joined> joined;           // of every call, in the order of the plans
};

// Matches the calls of all ranks, builds the task graph and runs it. `plans` must contain every rank of the topology.
// Steps of p2p and gradient kinds are transfers, which the prices time; their `segments_us` are local work before it.
// In a group of one, a transfer or call takes its recorded duration. `calls`: filled on first use, for further plans
// with the same calls; null: none. Throws InputError naming both lines when two ranks disagree on a collective or a
// call has no counterpart.
Iteration simulate(const Topology& topology, std::span<const RankSteps> plans, Pricing& pricing,
                   sim::Detail detail = sim::Detail::full, MatchedCalls* calls = nullptr);

}  // namespace moesim::replay
