// Timing `flow` on the fabrics of clusters: what the profile says while nothing contends, more where it does.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/json_reader.h"
#include "models/answers/answer.h"
#include "models/costs/cluster_costs.h"
#include "models/hardware/cluster_fabric.h"
#include "sim/run/simulator.h"

namespace moesim::models {
namespace {

using sim::CollectiveOp;

// Groups of ranks first, first + stride, ... that all do `op` at the same time.
sim::TaskGraph collective_graph(CollectiveOp op, std::uint64_t bytes, std::uint32_t ranks,
                                std::uint32_t members, std::uint32_t stride, std::uint32_t groups) {
  sim::TaskGraphBuilder b;
  b.add_ranks(ranks);
  const sim::LabelId label = b.add_label("collective", sim::Category::other);
  for (std::uint32_t group = 0; group < groups; ++group) {
    std::vector<sim::RankId> in_it;
    for (std::uint32_t m = 0; m < members; ++m)
      in_it.push_back(sim::RankId(stride == 1 ? group * members + m : group + m * stride));
    const sim::CollectiveId id = b.add_collective(op, b.add_group(in_it), sim::uniform_traffic(bytes), label);
    for (std::uint32_t m = 0; m < members; ++m)
      b.add_member(b.add_stream(in_it[m], sim::StreamKind::comm), id, m);
  }
  return b.finalize();
}

double ratio(const Cluster& cluster, const sim::TaskGraph& graph) {
  const ClusterCosts costs(cluster);
  const sim::Fabric fabric = cluster_fabric(cluster);
  sim::RunOptions flow;
  flow.timing = sim::Timing::flow;
  flow.fabric = &fabric;
  return sim::run(graph, costs, flow).iteration().us() / sim::run(graph, costs).iteration().us();
}

TEST(FlowTiming, IsWithinOnePercentOfCalibratedWhereNothingContends) {
  for (const char* name :
       {"dgx-h100x4", "dgx-a100x2", "gb200-nvl72x1", "mi300x-x1", "dgx-b200x8", "rtx-4090x2", "l40sx4"}) {
    const Cluster cluster = Cluster::load(name);
    const auto ranks = static_cast<std::uint32_t>(cluster.ranks());
    for (const CollectiveOp op :
         {CollectiveOp::all_gather, CollectiveOp::reduce_scatter, CollectiveOp::all_reduce,
          CollectiveOp::all_to_all, CollectiveOp::broadcast, CollectiveOp::send_recv})
      for (const std::uint64_t bytes :
           {std::uint64_t{1} << 10, std::uint64_t{1} << 20, std::uint64_t{1} << 28})
        for (const std::uint32_t members : {2u, 4u, 8u, 16u, 32u}) {
          if (members > ranks || (op == CollectiveOp::send_recv && members != 2)) continue;
          const double r = ratio(cluster, collective_graph(op, bytes, ranks, members, 1, 1));
          EXPECT_NEAR(r, 1.0, 0.01) << name << " " << sim::name(op) << " " << bytes << " bytes, " << members
                                    << " ranks";
        }
  }
}

// Ports as fast as NVLink: what stays in the node ends last, and it did not wait for EFA's launch.
TEST(FlowTiming, AgreesWhereTheNodeIsTheSlowerPart) {
  for (const double port : {50e9, 200e9, 400e9}) {
    Cluster cluster = Cluster::load("aws-p6-b300x2");
    cluster.nic.bandwidth = port;
    cluster.nvlink.bandwidth = 450e9;
    for (const std::uint64_t bytes : {std::uint64_t{1} << 20, std::uint64_t{100} << 20})
      EXPECT_NEAR(ratio(cluster, collective_graph(CollectiveOp::all_to_all, bytes, 16, 16, 1, 1)), 1, 1e-3)
          << port << " " << bytes;
  }
}

TEST(FlowTiming, GroupsOnPortsOfTheirOwnDoNotFeelEachOther) {
  // Every local GPU has a port of its own: eight rails side by side.
  const Cluster cluster = Cluster::load("dgx-h100x4");
  for (const CollectiveOp op :
       {CollectiveOp::all_gather, CollectiveOp::all_reduce, CollectiveOp::all_to_all}) {
    const double one = ratio(cluster, collective_graph(op, 64 << 20, 32, 4, 8, 1));
    const double eight = ratio(cluster, collective_graph(op, 64 << 20, 32, 4, 8, 8));
    EXPECT_NEAR(eight, one, 0.01) << sim::name(op);
  }
}

TEST(FlowTiming, GroupsThatShareAPortTakeTurns) {
  const Cluster cluster =
      Cluster::load(JsonNode::parse(R"({"base": "dgx-h100x4", "nic": {"ports_per_node": 1}})", "one port"));
  const double one = ratio(cluster, collective_graph(CollectiveOp::send_recv, 64 << 20, 32, 2, 8, 1));
  const double eight = ratio(cluster, collective_graph(CollectiveOp::send_recv, 64 << 20, 32, 2, 8, 8));
  EXPECT_NEAR(one, 1.0, 0.01);
  EXPECT_GT(eight, 6.0);
  EXPECT_LT(eight, 9.0);
}

TEST(FlowTiming, AnOversubscribedSpineIsFelt) {
  const auto load = [](double oversubscription) {
    return Cluster::load(JsonNode::parse(
        R"({"base": "dgx-h100x8", "fabric": {"preset": "fat-tree", "nodes_per_leaf": 4, "spines": 8,
            "oversubscription": )" +
            std::to_string(oversubscription) + "}}",
        "tree"));
  };
  const sim::TaskGraph graph = collective_graph(CollectiveOp::all_to_all, 64 << 20, 64, 64, 1, 1);
  const double even = ratio(load(1), graph), tight = ratio(load(8), graph);
  EXPECT_GT(tight, 2 * even);
}

Scenario scenario_on(Cluster cluster, const char* dispatchers, std::int64_t ep, const char* routing) {
  Scenario s;
  s.model = Architecture::load("mixtral-8x7b");
  s.model.experts = 16;
  s.cluster = std::make_shared<const Cluster>(std::move(cluster));
  s.set_dispatchers(dispatchers);
  s.parallel.ep = ep;
  s.routing = RoutingSpec::parse(routing);
  return s;
}

TEST(LayerFlow, AgreesWithCalibratedTimesWhereGroupsAreAlone) {
  AnswerOptions options;
  options.draws = 0;
  options.flow = true;
  for (const std::int64_t ep : {4, 8}) {
    const Comparison c =
        answer(scenario_on(Cluster::load("dgx-h100x2"),
                           "allgather,alltoall,alltoall-legacy,torchtitan-alltoall", ep, "uniform"),
               options);
    for (const Answer& a : c.answers) {
      EXPECT_NEAR(a.time_us.value / a.network.calibrated_us, 1.0, 0.01) << a.dispatcher << " ep " << ep;
      EXPECT_EQ(a.network.groups, 16 / ep);
      EXPECT_NEAR(std::accumulate(a.breakdown_us.begin(), a.breakdown_us.end(), 0.0), a.time_us.value, 1e-3);
      EXPECT_GT(a.network.busiest.utilisation, 0);
      EXPECT_LE(a.network.busiest.utilisation, 1.0 + 1e-9);
    }
  }
}

TEST(LayerFlow, GroupsAcrossNodesFeelAnOversubscribedSpine) {
  const auto time = [](const std::string& oversubscription) {
    AnswerOptions options;
    options.draws = 0;
    options.flow = true;
    const Cluster cluster = Cluster::load(JsonNode::parse(
        R"({"base": "dgx-h100x8", "fabric": {"preset": "fat-tree", "nodes_per_leaf": 2, "oversubscription": )" +
            oversubscription + "}}",
        "c.json"));
    Scenario s = scenario_on(cluster, "alltoall", 32, "balanced");
    s.model.experts = 64;
    const Answer a = answer(s, options).answers.front();
    return a.breakdown_us[static_cast<std::size_t>(sim::Category::dispatch)];
  };
  EXPECT_GT(time("8"), 1.5 * time("1"));
}

}  // namespace
}  // namespace moesim::models
