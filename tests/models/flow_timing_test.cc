// Timing `flow` on the fabrics of clusters: what the profile says while nothing contends, more where it does.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "models/answers/answer.h"
#include "models/costs/cluster_costs.h"
#include "models/costs/collectives.h"
#include "models/hardware/cluster.h"
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

// Relations that hold whatever the laws say: the same network is the same, however it is said and timed. That
// a better one is never slower is a law of tests/laws.

constexpr const char* kDispatchers = "allgather,alltoall,flex-deepep,flex-hybridep";

// Microseconds of a layer by dispatcher; those that the plan forbids are not in it.
std::map<std::string, double> times(const std::string& cluster, std::int64_t ep) {
  Scenario s;
  s.set_model("deepseek-v2-lite");
  s.cluster = std::make_shared<const Cluster>(Cluster::load(JsonNode::parse(cluster, "cluster.json")));
  s.set_dispatchers(kDispatchers);
  s.parallel.ep = ep;
  AnswerOptions options;
  options.draws = 0;
  options.each = true;
  std::map<std::string, double> result;
  for (const Answer& a : answer(std::move(s), options).answers)
    if (a.ok()) result[a.dispatcher] = a.time_us.value;
  return result;
}

// Rounding to picoseconds, operation by operation.
constexpr double kEqual = 1e-6;

TEST(NetworkMetamorphic, LinksCountInsideALargerDomain) {
  const auto slow = times(R"({"base": "dgx-h100x8", "nvlink": {"domain": 32}})", 32);
  const auto fast = times(R"({"base": "dgx-h100x8", "nvlink": {"domain": 32, "bandwidth": "1800GBps"}})", 32);
  for (const auto& [dispatcher, us] : slow) EXPECT_LT(fast.at(dispatcher), 0.98 * us) << dispatcher;
}

TEST(NetworkMetamorphic, TheSameRateInOtherPortsIsTheSame) {
  for (const std::int64_t ep : {16, 64}) {
    const auto usual = times(R"({"base": "dgx-h100x8"})", ep);
    for (const char* ports : {R"("ports_per_node": 16, "bandwidth": "25GBps")",
                              R"("ports_per_node": 32, "bandwidth": "12.5GBps")"}) {
      const auto other = times(R"({"base": "dgx-h100x8", "nic": {)" + std::string(ports) + "}}", ep);
      for (const auto& [dispatcher, us] : usual)
        EXPECT_NEAR(other.at(dispatcher), us, kEqual * us) << dispatcher << " " << ports;
    }
  }
}

RC_GTEST_PROP(NetworkMetamorphic, PermutingNodesChangesNothing, ()) {
  const Cluster cluster = Cluster::load(std::string("dgx-h100x8"));
  const CollectiveModel model(cluster);
  std::vector<std::int32_t> nodes(8);
  std::iota(nodes.begin(), nodes.end(), 0);
  for (std::size_t i = 7; i > 0; --i) std::swap(nodes[i], nodes[*rc::gen::inRange<std::size_t>(0, i + 1)]);
  std::vector<std::int32_t> members, moved;
  for (std::int32_t gpu = 0; gpu < 64; ++gpu)
    if (*rc::gen::arbitrary<bool>()) {
      members.push_back(gpu);
      moved.push_back(nodes[static_cast<std::size_t>(gpu / 8)] * 8 + gpu % 8);
    }
  RC_PRE(members.size() >= 2);
  const GroupShape here = GroupShape::of(cluster, members), there = GroupShape::of(cluster, moved);
  const double bytes = *rc::gen::inRange(1, 1 << 28);
  for (const sim::CollectiveOp op : {sim::CollectiveOp::all_gather, sim::CollectiveOp::reduce_scatter,
                                     sim::CollectiveOp::all_reduce, sim::CollectiveOp::all_to_all})
    RC_ASSERT(model.seconds(op, here, bytes) == model.seconds(op, there, bytes));
  std::vector<double> matrix(members.size() * members.size());
  for (double& cell : matrix) cell = *rc::gen::inRange(0, 1 << 20);
  std::vector<double> a(members.size()), b(members.size());
  model.all_to_all_v(here, matrix, a);
  model.all_to_all_v(there, matrix, b);
  RC_ASSERT(a == b);
}

// Groups that straddle nodes count, and the contended network agrees where nothing is shared.
TEST(NetworkMetamorphic, StraddlingGroupsAreNotRankedByTheLuckyOne) {
  Scenario s;
  s.set_model("deepseek-v2-lite");
  s.model.experts = 72;
  s.set_cluster("dgx-h100x3");
  s.set_dispatchers("alltoall");
  s.parallel.ep = 3;
  AnswerOptions options;
  options.draws = 0;
  const Comparison three = answer(s, options);
  options.flow = true;
  const Comparison flow = answer(s, options);
  options.flow = false;
  s.parallel.ep = 8;
  const Comparison eight = answer(s, options);
  EXPECT_NE(std::find_if(three.warnings.begin(), three.warnings.end(),
                         [](const std::string& w) { return w.find("straddle") != std::string::npos; }),
            three.warnings.end());
  EXPECT_NEAR(flow.answers[0].time_us.value / three.answers[0].time_us.value, 1, 0.1);
  EXPECT_EQ(eight.warnings.end(),
            std::find_if(eight.warnings.begin(), eight.warnings.end(),
                         [](const auto& w) { return w.find("straddle") != std::string::npos; }));
}

// The network between the nodes does not change the links of a node's GPUs.
TEST(NetworkMetamorphic, AFabricBetweenNodesLeavesTheMesh) {
  const Cluster usual = Cluster::load(std::string("mi300x-x2"));
  const Cluster tree = Cluster::load(
      JsonNode::parse(R"({"base": "mi300x-x2", "fabric": {"preset": "fat-tree"}})", "cluster.json"));
  EXPECT_TRUE(links_are_mesh(tree));
  EXPECT_FALSE(links_are_mesh(Cluster::load(std::string("dgx-h100x2"))));
  const GroupShape two = GroupShape::uniform(1, 2);
  EXPECT_EQ(CollectiveModel(usual).seconds(sim::CollectiveOp::all_gather, two, 1e8),
            CollectiveModel(tree).seconds(sim::CollectiveOp::all_gather, two, 1e8));
}

// A ring over two nodes whose links inside are the tightest, at any rate of the ports.
TEST(NetworkMetamorphic, FlowOfOneGroupIsCalibrated) {
  for (const char* base : {"dgx-a100x2", "dgx-h100x2", "dgx-h800x2"})
    for (const int rate : {25, 50, 100, 400}) {
      SCOPED_TRACE(std::string(base) + " " + std::to_string(rate));
      Scenario s;
      s.set_model("deepseek-v2-lite");
      s.cluster = std::make_shared<const Cluster>(
          Cluster::load(JsonNode::parse(R"({"base": ")" + std::string(base) + R"(", "nic": {"bandwidth": ")" +
                                            std::to_string(rate) + R"(GBps"}})",
                                        "cluster.json")));
      s.set_dispatchers("allgather,alltoall");
      s.parallel.ep = 16;
      s.parallel.seq = 2048;
      AnswerOptions options;
      options.draws = 0;
      options.flow = true;
      for (const Answer& a : answer(std::move(s), options).answers)
        EXPECT_NEAR(a.time_us.value / a.network.calibrated_us, 1, 0.01) << a.dispatcher;
    }
}

TEST(NetworkMetamorphic, AStragglingPipelineBoundaryCosts) {
  const auto step = [](const char* bandwidth) {
    Scenario s;
    s.set_model("deepseek-v2-lite");
    s.cluster = std::make_shared<const Cluster>(Cluster::load(JsonNode::parse(
        R"({"base": "dgx-h100x4", "nic": {"bandwidth": ")" + std::string(bandwidth) + R"("}})",
        "cluster.json")));
    s.set_dispatchers("alltoall");
    s.scope = Scenario::Scope::kStep;
    s.parallel.pp = 16;
    s.parallel.ep = 2;
    s.parallel.microbatches = 16;
    s.model.layers = 32;
    AnswerOptions options;
    options.draws = 0;
    return answer(s, options).answers[0].time_us.value;
  };
  EXPECT_GT(step("1GBps"), 1.2 * step("500GBps"));
}

}  // namespace
}  // namespace moesim::models
