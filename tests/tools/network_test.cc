// `compare --timing flow`: the network of a cluster as the user describes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_text;
using testing::run_moesim;
using testing::TempFolder;

Outcome compare(const std::string& cluster, const std::vector<std::string>& more = {},
                const std::string& ep = "32") {
  std::vector<std::string> words{"compare", "--model",  "qwen3-30b-a3b", "--cluster", cluster,
                                 "--ep",    ep,         "--dispatcher",  "alltoall",  "--draws",
                                 "0",       "--format", "json"};
  words.insert(words.end(), more.begin(), more.end());
  return run_moesim(words);
}

double time_us(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out)["scenarios"][0]["time_us"]["value"].get<double>();
}

TEST(Network, FlowAgreesWithCalibratedOnANetworkThatNothingFills) {
  const double calibrated = time_us(compare("dgx-h100x8"));
  const double flow = time_us(compare("dgx-h100x8", {"--timing", "flow"}));
  EXPECT_NEAR(flow / calibrated, 1.0, 0.01);
}

TEST(Network, AnOversubscribedTreeCostsTimeAndNamesItsBusiestLink) {
  const TempFolder folder;
  folder.write("tight.json", R"({ "base": "dgx-h100x8",
  "fabric": { "preset": "fat-tree", "nodes_per_leaf": 2, "spines": 2, "oversubscription": 8 } })");
  const Outcome blind = compare(folder / "tight.json");
  EXPECT_THAT(blind.err, HasSubstr("--timing flow"));
  const Outcome flow = compare(folder / "tight.json", {"--timing", "flow"});
  EXPECT_GT(time_us(flow), 1.2 * time_us(blind));
  const json network = json::parse(flow.out)["scenarios"][0]["network"];
  EXPECT_EQ(network["groups"], 2);
  EXPECT_THAT(
      network["busiest_link"]["from"].get<std::string>() + network["busiest_link"]["to"].get<std::string>(),
      HasSubstr("spine"));
}

// On links as slow as allowed, transfers exceed the clocks: no abort, no answer of months.
TEST(Network, AFabricBeyondAllClocksIsRefused) {
  const TempFolder folder;
  json nodes = json::array(), links = json::array();
  nodes.push_back({{"name", "leaf"}, {"kind", "leaf"}});
  for (int gpu = 0; gpu < 16; ++gpu) {
    const std::string name = "gpu" + std::to_string(gpu);
    nodes.push_back({{"name", name}, {"kind", "gpu"}});
    links.push_back({{"from", name}, {"to", "leaf"}, {"bandwidth", "1kBps"}, {"latency", "1us"}});
  }
  json cluster{{"name", "slow"},
               {"profile", "h100-sxm"},
               {"nodes", 2},
               {"gpus_per_node", 8},
               {"fabric", {{"nodes", nodes}, {"links", links}}}};
  folder.write("slow.json", cluster.dump());
  for (const char* seq : {"4096", "65536"}) {
    const Outcome outcome = compare(folder / "slow.json", {"--timing", "flow", "--seq", seq}, "8");
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
  }
  const Outcome replayed = run_moesim({"replay", testing::scaling(), "--cluster", folder / "slow.json",
                                       "--timing", "flow", "--microbatches", "4", "--quiet"});
  EXPECT_EQ(replayed.exit_code, 2);
  EXPECT_THAT(replayed.err, HasSubstr("which no clock here counts"));
  cluster["fabric"]["links"][0]["cap"] = "1Bps";
  folder.write("slow.json", cluster.dump());
  EXPECT_THAT(compare(folder / "slow.json", {"--timing", "flow"}, "8").err,
              HasSubstr("connection cap 1 B/s"));
}

TEST(Network, AFabricBesideItsClusterFileIsFoundFromAnywhere) {
  const TempFolder folder;
  folder.write("own.json", R"({ "base": "dgx-h100x1", "gpus_per_node": 2, "fabric": "two.graphml" })");
  folder.write("two.graphml", R"(<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="kind" for="node" attr.name="kind" attr.type="string"/>
  <key id="bandwidth" for="edge" attr.name="bandwidth" attr.type="double"/>
  <key id="latency" for="edge" attr.name="latency" attr.type="double"/>
  <graph id="G" edgedefault="undirected">
    <node id="n0"><data key="kind">gpu</data></node>
    <node id="n1"><data key="kind">gpu</data></node>
    <edge source="n0" target="n1"><data key="bandwidth">5e9</data><data key="latency">1e-6</data></edge>
  </graph>
</graphml>
)");
  const double blind = time_us(compare(folder / "own.json", {}, "2"));
  EXPECT_GT(time_us(compare(folder / "own.json", {"--timing", "flow"}, "2")), 1.5 * blind);
}

// Times by operation and timelines are those of the answer.
TEST(Network, TheTimelineFollowsTheFlow) {
  const TempFolder folder;
  folder.write("tight.json", R"({ "base": "dgx-h100x8",
  "fabric": { "preset": "fat-tree", "nodes_per_leaf": 2, "spines": 2, "oversubscription": 8 } })");
  const double us =
      time_us(compare(folder / "tight.json", {"--timing", "flow", "--timeline", folder / "t.json"}));
  double end = 0;
  const json timeline = json::parse(read_text(folder.path() / "t.json"));
  for (const json& event : timeline["traceEvents"])
    if (event.contains("dur")) end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
  EXPECT_NEAR(end, us, 0.01 * us);
}

TEST(Network, AStepTakesLongerOnATightNetwork) {
  const TempFolder folder;
  folder.write("tight.json", R"({ "base": "dgx-h100x8",
  "fabric": { "preset": "fat-tree", "nodes_per_leaf": 2, "spines": 2, "oversubscription": 8 } })");
  const std::vector<std::string> step{"--scope", "step", "--pp", "2", "--microbatches", "4"};
  const Outcome blind = compare(folder / "tight.json", step);
  EXPECT_THAT(blind.err, HasSubstr("--timing flow"));
  std::vector<std::string> words = step;
  words.insert(words.end(), {"--timing", "flow"});
  const Outcome flow = compare(folder / "tight.json", words);
  EXPECT_GT(time_us(flow), 1.1 * time_us(blind));
  const json network = json::parse(flow.out)["scenarios"][0]["network"];
  EXPECT_NEAR(network["calibrated_us"].get<double>(), time_us(blind), 1e-6 * time_us(blind));
}

}  // namespace
}  // namespace moesim::tools
