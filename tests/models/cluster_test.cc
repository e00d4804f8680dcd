#include "models/hardware/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"

namespace moesim::models {
namespace {

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

}  // namespace
}  // namespace moesim::models
