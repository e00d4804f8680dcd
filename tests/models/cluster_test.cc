// Clusters, their fabrics and the shapes of groups of ranks on them.
#include "models/hardware/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/hardware/cluster_fabric.h"
#include "models/hardware/group_shape.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::ElementsAre;

Cluster from(const std::string& json) { return Cluster::load(JsonNode::parse(json, "cluster.json")); }

TEST(Cluster, BuiltInNamesTakeAnyNodeCount) {
  for (const Cluster::Pattern& pattern : Cluster::patterns()) {
    const std::string prefix = pattern.name.substr(0, pattern.name.size() - 1);
    const std::string profile = Cluster::load(prefix + "1").profile.name();
    EXPECT_EQ(Cluster::load(prefix + "37").nodes, 37) << profile;
  }
  const Cluster dgx = Cluster::load(std::string("dgx-h100x4"));
  EXPECT_EQ(dgx.ranks(), 32);
  EXPECT_EQ(dgx.node_of(8), 1);
  EXPECT_EQ(dgx.local_gpu(17), 1);
  EXPECT_EQ(dgx.domain_of(31), 3);
  EXPECT_DOUBLE_EQ(dgx.nvlink.bandwidth, dgx.profile.device().scaleup_bandwidth);
}

TEST(Cluster, EchoHasSevenPortsAndUnevenPairs) {
  const Cluster echo = Cluster::load(std::string("echo-h800x2"));
  EXPECT_EQ(echo.nic.ports_per_node, 7);
  ASSERT_EQ(echo.nic.gpu_bandwidth.size(), 8u);
  EXPECT_LT(echo.nic.gpu_bandwidth[0], echo.nic.gpu_bandwidth[2]);
}

TEST(Cluster, AnotherPortScalesWhatWasMeasuredThroughTheBases) {
  const Cluster echo = Cluster::load(std::string("echo-h800x2"));
  const Cluster slow = from(R"({"base": "echo-h800x2", "nic": {"bandwidth": "5GBps"}})");
  EXPECT_EQ(slow.nic.bandwidth, 5e9);
  ASSERT_EQ(slow.nic.gpu_bandwidth.size(), 8u);
  for (std::size_t gpu = 0; gpu < 8; ++gpu)
    EXPECT_DOUBLE_EQ(slow.nic.gpu_bandwidth[gpu], 0.1 * echo.nic.gpu_bandwidth[gpu]) << gpu;
  // Values given in the file stay.
  const Cluster given = from(R"({"base": "echo-h800x2",
    "nic": {"gpu_bandwidth": [1e9, 1e9, 1e9, 1e9, 1e9, 1e9, 1e9, 2e9], "per_connection_cap": "3GBps", "bandwidth": "5GBps"}})");
  EXPECT_EQ(given.nic.gpu_bandwidth.back(), 2e9);
  EXPECT_EQ(given.nic.per_connection_cap, 3e9);
}

TEST(Cluster, ObjectsTakeUnitsAndDefaultsFromTheProfile) {
  const Cluster cluster =
      from(R"({"profile": "h100-sxm", "nodes": 3, "nic": {"bandwidth": "100GBps", "ports_per_gpu": 2}})");
  EXPECT_DOUBLE_EQ(cluster.nic.bandwidth, 100e9);
  EXPECT_EQ(cluster.nic.ports_per_node, 16);
  EXPECT_EQ(cluster.gpus_per_node, 8);
  const Cluster changed = from(R"({"base": "dgx-h100x4", "nvlink": {"bandwidth": 9e11}})");
  EXPECT_EQ(changed.nodes, 4);
  EXPECT_DOUBLE_EQ(changed.nvlink.bandwidth, 9e11);
}

TEST(Cluster, IsWrittenAsANameOnlyWhereNothingWasChanged) {
  for (const Cluster::Pattern& pattern : Cluster::patterns()) {
    const std::string name = pattern.name.substr(0, pattern.name.size() - 1) + "2";
    EXPECT_EQ(Cluster::load(name).to_json(), nlohmann::ordered_json(name));
    const nlohmann::json other{{"base", name}, {"gpu", {{"memory", 50e9}}}};
    EXPECT_TRUE(Cluster::load(JsonNode::from_json(other, "c.json")).to_json().is_object()) << name;
  }
}

TEST(Cluster, AWordWithItsNumberOfNodesIsTheMachineOfThatWord) {
  const std::map<std::string, std::string> names{{"h100x4", "dgx-h100x4"},   {"H100x4", "dgx-h100x4"},
                                                 {"b200x16", "dgx-b200x16"}, {"h20x2", "hgx-h20x2"},
                                                 {"p5enx8", "aws-p5enx8"},   {"gb200x2", "gb200-nvl72x2"},
                                                 {"mi300xx2", "mi300x-x2"},  {"h100-sxmx2", "dgx-h100x2"}};
  for (const auto& [said, name] : names) {
    const Cluster cluster = Cluster::load(said);
    EXPECT_EQ(cluster.name, name);
    EXPECT_EQ(cluster.node_count, Cluster::NodeCount::kGiven) << said;
    EXPECT_EQ(cluster.to_json(), nlohmann::ordered_json(name));
  }
}

// Words for machines: their names without a number of nodes, and what people call them.
TEST(Cluster, AWordLeavesTheNumberOfNodesOpen) {
  const std::map<std::string, std::string> words{
      {"dgx-h100", "dgx-h100x3"}, {"h100", "dgx-h100x3"},     {"h100-sxm", "dgx-h100x3"},
      {"h20", "hgx-h20x3"},       {"gb200", "gb200-nvl72x1"}, {"gb200-nvl72", "gb200-nvl72x1"},
      {"mi300x", "mi300x-x3"},    {"p5en", "aws-p5enx3"},     {"p6-b200", "aws-p6-b200x3"},
      {"b200", "dgx-b200x3"}};
  for (const auto& [word, held] : words) {
    const Cluster open = Cluster::load(word);
    EXPECT_EQ(open.node_count, Cluster::NodeCount::kOpen) << word;
    EXPECT_EQ(open.holding(24).name, held);
    EXPECT_EQ(open.holding(24).to_json(), nlohmann::ordered_json(held));
    // Written as it was said, so that it is still open when it is read again.
    EXPECT_EQ(Cluster::load(open.to_json().get<std::string>()).node_count, Cluster::NodeCount::kOpen);
  }
  // A file without nodes has one, until the number of GPUs is given.
  const Cluster one = Cluster::load(JsonNode::from_json({{"profile", "h100-sxm"}}, "c.json"));
  EXPECT_EQ(one.node_count, Cluster::NodeCount::kOne);
  EXPECT_EQ(one.nodes, 1);
  EXPECT_EQ(one.holding(20).nodes, 3);
  const Cluster changed =
      Cluster::load(JsonNode::from_json({{"base", "h100"}, {"nvlink", {{"domain", 16}}}}, "c.json"));
  EXPECT_EQ(changed.node_count, Cluster::NodeCount::kOpen);
  EXPECT_EQ(changed.holding(16).nvlink.domain, 16);
}

// The network of a cluster as a fabric: what comes from the cluster, what is refused.

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
    return message_of([&] { cluster_fabric(cluster); });
  };
  EXPECT_NE(refused(R"("rail-tre")").find("did you mean"), std::string::npos) << refused(R"("rail-tre")");
  EXPECT_NE(refused(R"({"preset": "single-node", "node": {"gpus": 4}})")
                .find("found a fabric of 4 GPUs, expected the cluster's 32"),
            std::string::npos);
  EXPECT_NE(refused(R"({"preset": "rail-tree", "oversubscribed": 2})").find("oversubscribed"),
            std::string::npos);
}

// A DGX of 8 GPUs with 8 ports is a node with a port per GPU; 72 GPUs of NVLink are one node.
TEST(ClusterFabric, NodesAreWhatReachesEachOtherWithoutTheNetwork) {
  const Cluster dgx = Cluster::load("dgx-h100x2");
  const sim::Fabric rails = cluster_fabric(dgx);
  EXPECT_EQ(rails.gpu_count(), 16u);
  double slowest = 1e30;
  for (const sim::FabricLink& link : rails.links()) slowest = std::min(slowest, link.capacity);
  EXPECT_DOUBLE_EQ(slowest, dgx.nic.bandwidth);  // NVLink and PCIe are faster than a port
  const Cluster rack = Cluster::load("gb200-nvl72x1");
  EXPECT_EQ(cluster_fabric(rack).gpu_count(), 72u);
}

TEST(ClusterFabric, WindowsOnlyBeyondTwentyThousandMessages) {
  EXPECT_EQ(flow_window(20'000), 0);
  EXPECT_EQ(flow_window(20'001), 0.1);
}

// Shapes of groups on clusters: counts of domains, nodes and members by hand.

TEST(GroupShape, CountsDomainsAndMembers) {
  const Cluster cluster = Cluster::load("dgx-h100x4");
  const std::vector<std::int32_t> members{6, 7, 8, 17, 16, 9};
  const GroupShape shape = GroupShape::of(cluster, members);
  EXPECT_EQ(shape.ranks, 6);
  EXPECT_EQ(shape.domains, 3);
  EXPECT_EQ(shape.nodes, 3);
  EXPECT_EQ(shape.max_per_domain, 2);
  EXPECT_EQ(shape.min_per_domain, 2);
  EXPECT_THAT(shape.domain_of, ElementsAre(0, 0, 1, 2, 2, 1));  // numbered as they appear
  EXPECT_TRUE(shape.across_domains());
  EXPECT_EQ(shape.pair_bandwidth, 0);
}

// On a rack NVLink joins nodes of four GPUs.
TEST(GroupShape, ARackIsOneDomainOfManyNodes) {
  const Cluster rack = Cluster::load(JsonNode::parse(
      R"({"profile": "gb200", "nodes": 36, "gpus_per_node": 4, "nvlink": {"domain": 72}})", "rack.json"));
  const GroupShape inside = GroupShape::strided(rack, 8, 1);
  EXPECT_EQ(inside.domains, 1);
  EXPECT_EQ(inside.nodes, 2);
  EXPECT_EQ(inside.max_per_node, 4);
  EXPECT_FALSE(inside.across_domains());
  EXPECT_EQ(GroupShape::strided(rack, 2, 72).domains, 2);
}

// Two ranks apart, or three in a row, eight ranks apart: {0,1,2, 8,9,10}.
TEST(GroupShape, StridesAndBlocks) {
  const Cluster cluster = Cluster::load("dgx-h100x4");
  EXPECT_EQ(GroupShape::strided(cluster, 4, 2).domains, 1);
  EXPECT_EQ(GroupShape::strided(cluster, 4, 8).domains, 4);
  const GroupShape blocks = GroupShape::strided(cluster, 6, 1, 3, 8);
  EXPECT_EQ(blocks.domains, 2);
  EXPECT_EQ(blocks.max_per_domain, 3);
  const GroupShape made = GroupShape::uniform(2, 3);
  EXPECT_EQ(made.ranks, blocks.ranks);
  EXPECT_EQ(made.domain_of, blocks.domain_of);
  EXPECT_EQ(made.max_per_node, blocks.max_per_node);
}

// Where ports are uneven, a pair across domains is as fast as its slower GPU.
TEST(GroupShape, PairsOnUnevenPortsKnowTheirBandwidth) {
  const Cluster echo = Cluster::load("echo-h800x2");
  ASSERT_FALSE(echo.nic.gpu_bandwidth.empty());
  for (const std::int32_t to : {8, 11, 15}) {
    const std::vector<std::int32_t> pair{0, to};
    EXPECT_EQ(GroupShape::of(echo, pair).pair_bandwidth,
              std::min(echo.nic.gpu_bandwidth[0], echo.nic.gpu_bandwidth[static_cast<std::size_t>(to - 8)]));
  }
  const std::vector<std::int32_t> inside{0, 1};
  EXPECT_EQ(GroupShape::of(echo, inside).pair_bandwidth, 0);
}

TEST(GroupShape, RefusesRanksThatAreNotThere) {
  const Cluster cluster = Cluster::load("dgx-h100x1");
  EXPECT_EQ(message_of([&] { GroupShape::of(cluster, {}); }),
            "found an empty group, expected at least one rank");
  EXPECT_EQ(message_of([&] { GroupShape::strided(cluster, 2, 8); }),
            "found rank 8, expected one of the 8 ranks of cluster dgx-h100x1");
}

RC_GTEST_PROP(GroupShape, MembersAddUp, ()) {
  static const Cluster cluster = Cluster::load("dgx-h100x4");
  std::vector<std::int32_t> members(32);
  std::iota(members.begin(), members.end(), 0);
  const int size = *rc::gen::inRange(1, 33);
  for (std::size_t i = members.size(); i > 1; --i)
    std::swap(members[i - 1], members[*rc::gen::inRange<std::size_t>(0, i)]);
  members.resize(static_cast<std::size_t>(size));
  const GroupShape shape = GroupShape::of(cluster, members);
  std::vector<int> count(static_cast<std::size_t>(shape.domains));
  for (const std::int32_t domain : shape.domain_of) ++count[static_cast<std::size_t>(domain)];
  RC_ASSERT(*std::max_element(count.begin(), count.end()) == shape.max_per_domain);
  RC_ASSERT(*std::min_element(count.begin(), count.end()) == shape.min_per_domain);
  RC_ASSERT(shape.min_per_domain >= 1);
  RC_ASSERT(shape.domains == shape.nodes);  // a DGX is a domain
  for (std::size_t i = 0; i < members.size(); ++i)
    for (std::size_t j = 0; j < members.size(); ++j)
      RC_ASSERT((shape.domain_of[i] == shape.domain_of[j]) == (members[i] / 8 == members[j] / 8));
}

}  // namespace
}  // namespace moesim::models
