// The message-level workloads of docs/reliability.md, built from sim/ types: W1, W1s, W1n, W2, and W3 on two
// levels.
#pragma once

#include <cstdint>
#include <string>

#include "sim/graph/costs.h"
#include "sim/graph/task_graph.h"
#include "sim/network/fabric.h"

namespace moesim::bench {

inline constexpr double kPort = 50e9;               // bytes per second, per rank and direction
inline constexpr double kLatencyUs = 2.0;           // end to end
inline constexpr std::uint64_t kMessage = 1 << 20;  // bytes

// For the workloads with a million unequal flows at once (see sim/network/windowed_flows.h).
inline constexpr double kWindow = 0.2;

// Bytes of the message from one rank to another in the workloads of unequal sizes: 0.01 .. 2.0 x kMessage.
std::uint64_t unequal_bytes(std::uint32_t from, std::uint32_t to);

// One plan for every collective.
class PlanCosts : public sim::Costs {
 public:
  explicit PlanCosts(sim::FlowParameters plan) : plan_(plan) {}
  void price_collective(const sim::CollectiveShape&, std::span<sim::Time>) const override {}
  sim::FlowParameters plan_collective(const sim::CollectiveShape&) const override { return plan_; }

 private:
  sim::FlowParameters plan_;
};

// A graph of one collective over `ranks` ranks.
sim::TaskGraph all_to_all_equal(std::uint32_t ranks);
sim::TaskGraph all_to_all_unequal(std::uint32_t ranks);

sim::FlowParameters plan(sim::Algorithm algorithm);

// Every rank on one switch.
sim::Fabric flat(std::uint32_t ranks);
// 8 GPUs per node at 450 GB/s, 400 GB/s per node outside, ideal spine.
sim::Fabric island(std::uint32_t ranks);
// 8 GPUs per leaf, 4 uplinks of 50 GB/s per leaf, chosen by the destination.
sim::Fabric fat_tree(std::uint32_t ranks);

}  // namespace moesim::bench
