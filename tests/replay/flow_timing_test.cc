// Timing `flow` on the fabrics of clusters: what the profile says while nothing contends, more where it does.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/costs/cluster_costs.h"
#include "models/costs/program_prices.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster_fabric.h"
#include "models/routing/routing.h"
#include "models/step/layer_graph.h"
#include "replay/run/layer_flow.h"
#include "sim/run/simulator.h"

namespace moesim::replay {
namespace {

using models::Cluster;
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
  const models::ClusterCosts costs(cluster);
  const sim::Fabric fabric = cluster_fabric(cluster);
  sim::RunOptions flow;
  flow.timing = sim::Timing::flow;
  flow.fabric = &fabric;
  return sim::run(graph, costs, flow).iteration().us() / sim::run(graph, costs).iteration().us();
}

TEST(FlowTiming, IsWithinOnePercentOfCalibratedWhereNothingContends) {
  for (const char* name : {"dgx-h100x4", "dgx-a100x2", "gb200-nvl72x1", "mi300x-x1", "dgx-b200x8"}) {
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

TEST(ClusterFabric, TakesWhatAPresetDoesNotSayFromTheCluster) {
  const Cluster cluster = Cluster::load(JsonNode::parse(
      R"({"base": "dgx-h100x4", "nvlink": {"bandwidth": "100GBps"}, "fabric": {"preset": "rail-tree"}})",
      "c"));
  const sim::Fabric fabric = cluster_fabric(cluster);
  EXPECT_EQ(fabric.gpu_count(), 32u);
  EXPECT_DOUBLE_EQ(fabric.links().front().capacity, 100e9);
  EXPECT_TRUE(has_own_fabric(cluster));
  EXPECT_FALSE(has_own_fabric(Cluster::load("dgx-h100x4")));
}

TEST(ClusterFabric, RefusesWhatDoesNotFit) {
  const auto refused = [](const std::string& fabric) -> std::string {
    const Cluster cluster =
        Cluster::load(JsonNode::parse(R"({"base": "dgx-h100x4", "fabric": )" + fabric + "}", "c.json"));
    try {
      cluster_fabric(cluster);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refused(R"("rail-tre")").find("did you mean"), std::string::npos) << refused(R"("rail-tre")");
  EXPECT_NE(refused(R"({"preset": "torus", "extents": [2, 2]})")
                .find("found a fabric of 4 GPUs, expected the cluster's 32"),
            std::string::npos)
      << refused(R"({"preset": "torus", "extents": [2, 2]})");
  EXPECT_NE(refused(R"({"preset": "rail-tree", "oversubscribed": 2})").find("oversubscribed"),
            std::string::npos);
}

// The graph of a layer under calibrated prices against the recursion of time_layer().
TEST(LayerGraph, TakesAsLongAsTheRecursionUnderCalibratedPrices) {
  const Cluster cluster = Cluster::load("dgx-h100x2");
  const models::LayerCosts prices(cluster);
  const models::ClusterCosts costs(cluster);
  int compared = 0;
  for (const models::DispatcherEntry& entry : models::dispatcher_registry())
    for (const int ep : {4, 16})
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        models::RoutingSpec spec;
        spec.kind = models::RoutingSpec::Kind::kUniform;
        const models::Routing routing = models::make_routing(spec, ep, 512, 16, 2, seed);
        models::MoeLayer layer;
        layer.hidden = 1024;
        layer.expert_ffn = 512;
        layer.ep = ep;
        layer.ranks_per_node = 8;
        layer.routing = &routing;
        const auto dispatcher =
            models::make_dispatcher(models::DispatcherSpec::parse(std::string(entry.name)));
        if (models::rule_against(*dispatcher, layer)) continue;
        const models::Program program = dispatcher->build(layer);
        const auto own_kernels = [](const std::vector<models::Op>& pass) {
          return std::any_of(pass.begin(), pass.end(), [](const models::Op& op) { return op.one_kernel; });
        };
        if (own_kernels(program.forward())) continue;  // their prices are not those of NCCL's collectives
        const models::GroupShapes shapes(cluster, program);
        const models::UnevenLoads loads(program, shapes);
        const auto forward = prices.price(program, program.forward(), shapes, loads);
        const auto backward = prices.price(program, program.backward(), shapes, loads);
        const std::vector<LayerSegment> segments{{&program, &program.forward(), &forward},
                                                 {&program, &program.backward(), &backward}};
        const double recursion = static_cast<double>(time_layer(segments, prices.launch_ps()).total_ps);
        const double one =
            static_cast<double>(sim::run(layer_graph(segments, prices.launch_ps()), costs).iteration().ps());
        EXPECT_NEAR(one / recursion, 1.0, 1e-6) << entry.name << " ep " << ep;
        if (ep == 4) {
          // Groups on the same node shape do the same.
          const double four = static_cast<double>(
              sim::run(layer_graph(segments, prices.launch_ps(), 4), costs).iteration().ps());
          EXPECT_EQ(four, one) << entry.name;
        }
        ++compared;
      }
  EXPECT_GT(compared, 20);
}

TEST(LayerFlow, AgreesWithTheRecursionWhereGroupsAreAlone) {
  const Cluster cluster = Cluster::load("dgx-h100x2");
  const sim::Fabric fabric = cluster_fabric(cluster);
  const models::LayerCosts prices(cluster);
  models::RoutingSpec spec;
  spec.kind = models::RoutingSpec::Kind::kUniform;
  for (const char* name : {"allgather", "alltoall", "alltoall-legacy", "torchtitan-alltoall"})
    for (const int ep : {4, 8}) {
      const models::Routing routing = models::make_routing(spec, ep, 4096, 16, 2, 7);
      models::MoeLayer layer;
      layer.hidden = 4096;
      layer.expert_ffn = 4096;
      layer.ep = ep;
      layer.ranks_per_node = 8;
      layer.routing = &routing;
      const models::Program program =
          models::make_dispatcher(models::DispatcherSpec::parse(name))->build(layer);
      const models::GroupShapes shapes(cluster, program);
      const models::UnevenLoads loads(program, shapes);
      const auto forward = prices.price(program, program.forward(), shapes, loads);
      const std::vector<LayerSegment> segments{{&program, &program.forward(), &forward}};
      const double recursion = static_cast<double>(time_layer(segments, prices.launch_ps()).total_ps);
      const FlowTiming one = flow_layer(segments, prices.launch_ps(), cluster, fabric, 1);
      const FlowTiming all =
          flow_layer(segments, prices.launch_ps(), cluster, fabric, flow_groups(cluster, ep));
      EXPECT_NEAR(static_cast<double>(one.timing.total_ps) / recursion, 1.0, 0.01) << name << " ep " << ep;
      EXPECT_NEAR(static_cast<double>(all.timing.total_ps) / recursion, 1.0, 0.01) << name << " ep " << ep;
      EXPECT_EQ(all.groups, 16 / ep);
      std::int64_t booked = 0;
      for (const std::int64_t ps : all.timing.breakdown_ps) booked += ps;
      EXPECT_EQ(booked, all.timing.total_ps);
      EXPECT_GT(all.busiest.utilisation, 0);
      EXPECT_LE(all.busiest.utilisation, 1.0 + 1e-9);
    }
}

TEST(LayerFlow, GroupsAcrossNodesFeelAnOversubscribedSpine) {
  const auto time = [](const std::string& fabric) {
    const Cluster cluster =
        Cluster::load(JsonNode::parse(R"({"base": "dgx-h100x8", "fabric": )" + fabric + "}", "c.json"));
    const sim::Fabric network = cluster_fabric(cluster);
    const models::LayerCosts prices(cluster);
    models::RoutingSpec spec;
    spec.kind = models::RoutingSpec::Kind::kBalanced;
    const models::Routing routing = models::make_routing(spec, 32, 4096, 64, 8, 7);
    models::MoeLayer layer;
    layer.hidden = 4096;
    layer.expert_ffn = 1024;
    layer.ep = 32;
    layer.ranks_per_node = 8;
    layer.routing = &routing;
    const models::Program program =
        models::make_dispatcher(models::DispatcherSpec::parse("alltoall"))->build(layer);
    const models::GroupShapes shapes(cluster, program);
    const models::UnevenLoads loads(program, shapes);
    const auto forward = prices.price(program, program.forward(), shapes, loads);
    const std::vector<LayerSegment> segments{{&program, &program.forward(), &forward}};
    return static_cast<double>(flow_layer(segments, prices.launch_ps(), cluster, network, 2).timing.total_ps);
  };
  const std::string leaf_of_two = R"({"preset": "fat-tree", "nodes_per_leaf": 2, "oversubscription": )";
  EXPECT_GT(time(leaf_of_two + "8}"), 1.5 * time(leaf_of_two + "1}"));
}

}  // namespace
}  // namespace moesim::replay
