// Flows that share links, and collectives made of them.
#include "sim/network/flows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/input_error.h"
#include "base/random.h"
#include "sim/network/windowed_flows.h"
#include "sim/run/simulator.h"
#include "tests/bench/workloads.h"
#include "tests/sim/slow_filling.h"
#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

// A small network with flows that come and go: after every change all rates are those of slow filling, and
// flows end when their bytes are through at these rates.
void compare_with_slow_filling(std::uint64_t seed) {
  Random random(seed);
  const std::size_t links = 1 + random.below(8);
  std::vector<double> capacities;
  for (std::size_t i = 0; i < links; ++i)
    capacities.push_back(1e9 * static_cast<double>(1 + random.below(5)));
  FlowNetwork network(capacities);
  std::map<std::uint32_t, PlainFlow> flows;
  std::map<std::uint32_t, std::uint32_t> slot_of_tag;
  Time now;
  const std::uint64_t steps = 2 + random.below(40);
  for (std::uint32_t tag = 0; tag < steps; ++tag) {
    if (!flows.empty() && random.below(3) == 0) {
      fill_slowly(capacities, flows);
      double first_end = 1e300;
      for (const auto& [slot, flow] : flows) first_end = std::min(first_end, flow.remaining / flow.rate);
      const Time before = now;
      now = network.next_end();
      ASSERT_NEAR((now - before).seconds(), first_end, 1e-9) << "seed " << seed << " step " << tag;
      for (auto& [slot, flow] : flows) flow.remaining -= flow.rate * (now - before).seconds();
      std::vector<std::uint32_t> tags;
      network.end_due(now, tags);
      ASSERT_FALSE(tags.empty());
      for (const std::uint32_t ended : tags) {
        ASSERT_NEAR(flows[slot_of_tag[ended]].remaining, 0.0, 4.0);
        flows.erase(slot_of_tag[ended]);
      }
    } else if (!flows.empty() && random.below(10) == 0) {
      const auto changed = flows.begin();
      changed->second.cap = 1e8 * static_cast<double>(1 + random.below(40));
      network.set_cap(now, changed->first, changed->second.cap);
    } else {
      PlainFlow flow;
      for (std::uint32_t link = 0; link < links; ++link) {
        static constexpr double kFactors[] = {1.0, 1.0, 2.0, 0.5};
        if (random.below(3) == 0) flow.shares.push_back({link, kFactors[random.below(4)]});
      }
      if (flow.shares.empty() || random.below(3) == 0)
        flow.cap = 1e8 * static_cast<double>(1 + random.below(40));
      const double bytes = 1000.0 * static_cast<double>(100 + random.below(5000));
      const std::uint32_t slot = network.start(now, flow.shares, bytes, flow.cap, tag);
      slot_of_tag[tag] = slot;
      flow.remaining = bytes;
      flows[slot] = flow;
    }
    if (random.below(4) == 0) continue;  // several changes at one instant
    network.next_end();
    fill_slowly(capacities, flows);
    for (const auto& [slot, flow] : flows)
      ASSERT_NEAR(network.rate(slot), flow.rate, 1e-6 * flow.rate) << "seed " << seed << " step " << tag;
  }
}

TEST(Flows, RatesAreMaxMinFairOnRandomNetworks) {
  for (std::uint64_t seed = 0; seed < 20'000 && !HasFatalFailure(); ++seed) compare_with_slow_filling(seed);
}

Timeline run_flow(const TaskGraph& graph, const Fabric& fabric, Algorithm algorithm, double window = 0) {
  RunOptions options;
  options.timing = Timing::flow;
  options.fabric = &fabric;
  options.flow_window = window;
  return run(graph, bench::PlanCosts(bench::plan(algorithm)), options);
}

// A pairwise all-to-all whose messages share no link: in step s a message to rank r + s starts when both have
// come to the step, and a rank goes on when its messages of the step are done.
Time pairwise_recurrence(std::uint32_t n,
                         const std::function<std::uint64_t(std::uint32_t, std::uint32_t)>& bytes) {
  std::vector<Time> reached(n), sent(n);
  for (std::uint32_t step = 1; step < n; ++step) {
    for (std::uint32_t r = 0; r < n; ++r) {
      const std::uint32_t to = (r + step) % n;
      sent[r] = std::max(reached[r], reached[to]) + us(bench::kLatencyUs) +
                Time::from_seconds(static_cast<double>(bytes(r, to)) / bench::kPort);
    }
    for (std::uint32_t r = 0; r < n; ++r) reached[r] = std::max(sent[r], sent[(r + n - step) % n]);
  }
  return *std::max_element(reached.begin(), reached.end());
}

TEST(FlowCollectives, PairwiseOnOneSwitchIsTheMessageRecurrence) {
  for (const std::uint32_t n : {2u, 5u, 16u, 64u}) {
    const Fabric fabric = bench::flat(n);
    EXPECT_EQ(run_flow(bench::all_to_all_equal(n), fabric, Algorithm::pairwise).iteration(),
              pairwise_recurrence(n, [](std::uint32_t, std::uint32_t) { return bench::kMessage; }));
    EXPECT_NEAR(run_flow(bench::all_to_all_unequal(n), fabric, Algorithm::pairwise).iteration().us(),
                pairwise_recurrence(n, bench::unequal_bytes).us(), 0.01);
  }
}

// The oracle of the workloads: no all-to-all beats its most loaded port or node.
TEST(FlowCollectives, NoAllToAllBeatsItsMostLoadedPortOrNode) {
  const std::uint32_t n = 32;
  std::vector<double> out(n), in(n), node_out(n / 8), node_in(n / 8);
  for (std::uint32_t from = 0; from < n; ++from)
    for (std::uint32_t to = 0; to < n; ++to) {
      if (from == to) continue;
      const auto bytes = static_cast<double>(bench::unequal_bytes(from, to));
      out[from] += bytes;
      in[to] += bytes;
      if (from / 8 == to / 8) continue;
      node_out[from / 8] += bytes;
      node_in[to / 8] += bytes;
    }
  const auto most = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::max(*std::max_element(a.begin(), a.end()), *std::max_element(b.begin(), b.end()));
  };
  const TaskGraph graph = bench::all_to_all_unequal(n);
  const double flat_bound = most(out, in) / bench::kPort * 1e6 + bench::kLatencyUs;
  const double island_bound =
      std::max(most(out, in) / 450e9, most(node_out, node_in) / 400e9) * 1e6 + bench::kLatencyUs;
  for (const Algorithm algorithm : {Algorithm::pairwise, Algorithm::direct}) {
    for (const double window : {0.0, 0.05}) {
      EXPECT_GE(run_flow(graph, bench::flat(n), algorithm, window).iteration().us(), flat_bound * 0.9999);
      EXPECT_GE(run_flow(graph, bench::island(n), algorithm, window).iteration().us(), island_bound * 0.9999);
    }
  }
  // All at once, the most loaded port never rests: the bound is reached.
  EXPECT_NEAR(run_flow(graph, bench::flat(n), Algorithm::direct).iteration().us(), flat_bound, 0.01);
}

TEST(FlowCollectives, WindowsStayNearTheExactSolution) {
  const TaskGraph graph = bench::all_to_all_unequal(40);
  const Fabric flat = bench::flat(40), island = bench::island(40);
  for (const Fabric* fabric : {&flat, &island}) {
    const double exact = run_flow(graph, *fabric, Algorithm::direct).iteration().us();
    EXPECT_NEAR(run_flow(graph, *fabric, Algorithm::direct, 0.05).iteration().us(), exact, 0.005 * exact);
  }
}

struct FlowJob {
  TaskGraphBuilder b;
  std::vector<RankId> all;
  std::vector<StreamId> streams;
  LabelId label = b.add_label("x", Category::grad_sync);

  explicit FlowJob(std::uint32_t ranks) {
    b.add_ranks(ranks);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      all.emplace_back(r);
      streams.push_back(b.add_stream(all.back(), StreamKind::comm));
    }
  }
  void collective(CollectiveOp op, const std::vector<std::uint32_t>& members, TrafficRef traffic) {
    std::vector<RankId> ranks;
    for (const std::uint32_t m : members) ranks.push_back(all[m]);
    const CollectiveId c = b.add_collective(op, b.add_group(ranks), traffic, label);
    for (std::uint32_t i = 0; i < members.size(); ++i) b.add_member(streams[members[i]], c, i);
  }
};

TEST(FlowCollectives, RingsTakeTheTimeOfTheirSteps) {
  const Fabric fabric = bench::flat(8);
  const auto time_of = [&](CollectiveOp op, Algorithm algorithm) {
    FlowJob job(8);
    job.collective(op, {0, 1, 2, 3, 4, 5, 6, 7}, uniform_traffic(8'000'000));
    return run_flow(job.b.finalize(), fabric, algorithm).iteration().us();
  };
  EXPECT_NEAR(time_of(CollectiveOp::all_gather, Algorithm::ring), 7 * (2 + 160.0), 0.01);
  EXPECT_NEAR(time_of(CollectiveOp::reduce_scatter, Algorithm::ring), 7 * (2 + 160.0), 0.01);
  EXPECT_NEAR(time_of(CollectiveOp::all_reduce, Algorithm::ring), 14 * (2 + 20.0), 0.01);
  EXPECT_NEAR(time_of(CollectiveOp::broadcast, Algorithm::ring), 7 * 2 + 160.0, 0.01);
}

// The closed form of a profile of this network: steps x latency + bytes over the busiest connection /
// bandwidth.
class ClosedForm : public bench::PlanCosts {
 public:
  using PlanCosts::PlanCosts;
  void price_collective(const CollectiveShape& shape, std::span<Time> out) const override {
    const auto g = static_cast<double>(shape.members());
    const auto x = static_cast<double>(shape.traffic.bytes);
    double steps = g - 1, bytes = (g - 1) * x;
    if (shape.op == CollectiveOp::all_reduce) steps = 2 * (g - 1), bytes = 2 * (g - 1) / g * x;
    if (shape.op == CollectiveOp::all_to_all) steps = 1, bytes = (g - 1) / g * x;
    if (shape.op == CollectiveOp::send_recv) steps = 1, bytes = x;
    if (shape.op == CollectiveOp::broadcast) bytes = x;
    for (Time& time : out) time = Time::from_us(steps * bench::kLatencyUs + bytes / bench::kPort * 1e6);
  }
};

TEST(FlowCollectives, CalibratedAndFlowTimingAgreeWhereNothingContends) {
  const Fabric fabric = bench::flat(8);
  for (const CollectiveOp op :
       {CollectiveOp::all_gather, CollectiveOp::reduce_scatter, CollectiveOp::all_reduce,
        CollectiveOp::all_to_all, CollectiveOp::broadcast, CollectiveOp::send_recv}) {
    for (const std::uint64_t bytes : {1'000u, 1'000'000u, 100'000'000u}) {
      FlowJob job(8);
      std::vector<std::uint32_t> members{0, 1, 2, 3, 4, 5, 6, 7};
      if (op == CollectiveOp::send_recv) members = {2, 5};
      job.collective(op, members, uniform_traffic(bytes));
      job.collective(op, members, uniform_traffic(bytes / 2));
      const TaskGraph graph = job.b.finalize();
      const FlowParameters plan =
          bench::plan(op == CollectiveOp::all_to_all ? Algorithm::direct : Algorithm::ring);
      const double calibrated = run(graph, ClosedForm(plan)).iteration().us();
      RunOptions options;
      options.timing = Timing::flow;
      options.fabric = &fabric;
      const double flow = run(graph, ClosedForm(plan), options).iteration().us();
      EXPECT_NEAR(flow, calibrated, 0.01 * calibrated) << name(op) << " of " << bytes;
    }
  }
}

TEST(FlowCollectives, ASwitchThatReducesMovesEachBufferOnce) {
  Fabric fabric;
  const std::uint32_t nvswitch = fabric.add_node(NodeKind::nvswitch, "nvswitch");
  for (int g = 0; g < 8; ++g) fabric.add_cable(fabric.add_gpu("g"), nvswitch, 50e9, us(1));
  FlowJob job(8);
  job.collective(CollectiveOp::all_reduce, {0, 1, 2, 3, 4, 5, 6, 7}, uniform_traffic(8'000'000));
  // A member sends its buffer and an eighth of the result, and receives as much.
  EXPECT_NEAR(run_flow(job.b.finalize(), fabric, Algorithm::nvls).iteration().us(), 2 * 2 + 180.0, 0.01);
}

TEST(FlowCollectives, ConcurrentCollectivesShareTheUplinkTheyHaveInCommon) {
  // Ranks 0 and 4 share nothing with 1 and 5 but their nodes' links.
  Fabric fabric;
  const std::uint32_t spine = fabric.add_node(NodeKind::spine, "spine");
  for (std::uint32_t n = 0; n < 2; ++n) {
    const std::uint32_t node = fabric.add_node(NodeKind::nvswitch, "node");
    fabric.add_cable(node, spine, 100e9, Time::kZero);
    for (std::uint32_t g = 0; g < 4; ++g) fabric.add_cable(fabric.add_gpu("g", n), node, 100e9, us(1));
  }
  const auto time_of = [&](std::uint32_t pairs) {
    FlowJob job(8);
    for (std::uint32_t p = 0; p < pairs; ++p)
      job.collective(CollectiveOp::send_recv, {p, p + 4}, uniform_traffic(10'000'000));
    return run_flow(job.b.finalize(), fabric, Algorithm::ring).iteration().us();
  };
  EXPECT_NEAR(time_of(1), 2 + 100.0, 0.01);
  EXPECT_NEAR(time_of(3), 2 + 300.0, 0.01);
}

TEST(FlowCollectives, RingsOfSeveralDomainsLeaveEachThroughAllItsMembers) {
  // Two nodes of four GPUs with a port of 50 GB/s each to the outside: four rings use all ports.
  Fabric fabric;
  const std::uint32_t leaf = fabric.add_node(NodeKind::leaf, "leaf");
  for (std::uint32_t n = 0; n < 2; ++n) {
    const std::uint32_t node = fabric.add_node(NodeKind::nvswitch, "node");
    for (std::uint32_t g = 0; g < 4; ++g) {
      const std::uint32_t gpu = fabric.add_gpu("g", n);
      fabric.add_cable(gpu, node, 400e9, us(1));
      const std::uint32_t nic = fabric.add_node(NodeKind::nic, "nic");
      fabric.add_cable(gpu, nic, 50e9, us(1));
      fabric.add_cable(nic, leaf, 50e9, us(1));
    }
  }
  FlowJob job(8);
  job.collective(CollectiveOp::all_reduce, {0, 1, 2, 3, 4, 5, 6, 7}, uniform_traffic(80'000'000));
  const double us_taken = run_flow(job.b.finalize(), fabric, Algorithm::ring).iteration().us();
  EXPECT_NEAR(us_taken, 14 * 2 + 2 * 7 / 8.0 * 80e6 / (4 * 50e9) * 1e6, 1.0);
}

TEST(FlowCollectives, AFabricWithoutAWayIsAnInputError) {
  Fabric fabric;
  fabric.add_gpu("a");
  fabric.add_gpu("b");
  for (const CollectiveOp op : {CollectiveOp::send_recv, CollectiveOp::all_to_all}) {
    FlowJob job(2);
    job.collective(op, {0, 1}, uniform_traffic(100));
    EXPECT_THROW(run_flow(job.b.finalize(), fabric, Algorithm::direct), InputError);
  }
  FlowJob job(3);
  EXPECT_THROW(run_flow(job.b.finalize(), fabric, Algorithm::direct), InputError);
}

}  // namespace
}  // namespace moesim::sim
