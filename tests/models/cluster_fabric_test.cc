// The network of a cluster as a fabric: what comes from the cluster, what is refused.
#include "models/hardware/cluster_fabric.h"

#include <gtest/gtest.h>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/hardware/cluster.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;

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

}  // namespace
}  // namespace moesim::models
