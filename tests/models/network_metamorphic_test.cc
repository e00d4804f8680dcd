// Relations that hold whatever the laws say: the same network is the same, however it is said and timed. That
// a better one is never slower is a law of tests/laws.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>

#include "base/json_reader.h"
#include "models/answers/answer.h"
#include "models/costs/collectives.h"
#include "models/hardware/cluster.h"
#include "models/hardware/cluster_fabric.h"

namespace moesim::models {
namespace {

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
