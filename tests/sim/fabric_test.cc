// Fabrics: links, routes and presets.
#include "sim/network/fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/input_error.h"
#include "sim/network/fabric_file.h"
#include "sim/network/fabric_presets.h"
#include "sim/network/router.h"
#include "tests/message_of.h"
#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

using moesim::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> way(const Fabric& fabric, std::size_t from, std::size_t to) {
  Router router(fabric);
  Route route;
  router.find(from, to, route);
  std::vector<std::string> names;
  for (const std::uint32_t link : route.links) names.push_back(fabric.nodes()[fabric.links()[link].to].name);
  return names;
}

// Two nodes of two GPUs with NVLink inside and a NIC per GPU.
Fabric two_nodes() {
  Fabric fabric;
  const std::uint32_t leaf = fabric.add_node(NodeKind::leaf, "leaf");
  for (std::uint32_t n = 0; n < 2; ++n) {
    const std::uint32_t nvswitch = fabric.add_node(NodeKind::nvswitch, "nvswitch" + std::to_string(n));
    for (std::uint32_t g = 0; g < 2; ++g) {
      const std::string id = std::to_string(2 * n + g);
      const std::uint32_t gpu = fabric.add_gpu("gpu" + id, n),
                          nic = fabric.add_node(NodeKind::nic, "nic" + id);
      fabric.add_cable(gpu, nvswitch, 400e9, us(1));
      fabric.add_cable(gpu, nic, 50e9, us(0.5));
      fabric.add_cable(nic, leaf, 50e9, us(1), 20e9);
    }
  }
  return fabric;
}

TEST(Fabric, RoutesStayInTheNodeAndLeaveThroughTheNic) {
  const Fabric fabric = two_nodes();
  EXPECT_THAT(way(fabric, 0, 1), ElementsAre("nvswitch0", "gpu1"));
  EXPECT_THAT(way(fabric, 0, 3), ElementsAre("nic0", "leaf", "nic3", "gpu3"));
  EXPECT_TRUE(way(fabric, 2, 2).empty());
  Router router(fabric);
  Route route;
  router.find(0, 3, route);
  EXPECT_EQ(route.latency, us(3));
  EXPECT_DOUBLE_EQ(route.cap, 20e9);
  EXPECT_THAT(fabric.problems(), ElementsAre());
}

TEST(Fabric, NothingIsForwardedThroughAGpuUnlessItForwards) {
  for (const bool forwards : {false, true}) {
    Fabric fabric;
    const std::uint32_t a = fabric.add_gpu("a"), b = fabric.add_gpu("b", 0, forwards),
                        c = fabric.add_gpu("c");
    fabric.add_cable(a, b, 1e9, us(1));
    fabric.add_cable(b, c, 1e9, us(1));
    Router router(fabric);
    Route route;
    router.find(0, 2, route);
    EXPECT_EQ(route.reaches, forwards);
    if (!forwards) {
      EXPECT_THAT(fabric.problems(), ElementsAre("no way from c to a", "no way from a to c"));
    }
    router.find(0, 1, route);
    EXPECT_TRUE(route.reaches);
  }
}

TEST(Fabric, EqualWaysAreSharedOutAndStayTheSame) {
  for (const Multipath multipath : {Multipath::hash, Multipath::destination}) {
    Fabric fabric;
    fabric.set_multipath(multipath);
    std::uint32_t leaf[2];
    for (std::uint32_t& l : leaf) {
      l = fabric.add_node(NodeKind::leaf, "leaf");
      for (int g = 0; g < 16; ++g) fabric.add_cable(fabric.add_gpu("gpu"), l, 1e9, us(1));
    }
    std::vector<std::uint32_t> spines;
    for (int s = 0; s < 4; ++s) {
      spines.push_back(fabric.add_node(NodeKind::spine, "spine" + std::to_string(s)));
      for (const std::uint32_t l : leaf) fabric.add_cable(l, spines.back(), 1e9, us(1));
    }
    std::map<std::string, int> uses;
    for (std::size_t from = 0; from < 16; ++from)
      for (std::size_t to = 16; to < 32; ++to) {
        const auto first = way(fabric, from, to);
        EXPECT_EQ(first, way(fabric, from, to));
        ++uses[first[1]];
      }
    ASSERT_EQ(uses.size(), 4u);
    for (const auto& [spine, count] : uses)
      EXPECT_NEAR(count, 64, multipath == Multipath::destination ? 0 : 32);
  }
}

// Random small networks against a search from every GPU.
RC_GTEST_PROP(Fabric, ProblemsAreThePairsWithoutAWay, ()) {
  Fabric fabric;
  const int gpus = *rc::gen::inRange(1, 6), switches = *rc::gen::inRange(0, 5);
  for (int i = 0; i < gpus; ++i)
    fabric.add_gpu("g" + std::to_string(i), 0, *rc::gen::element(false, false, true));
  for (int i = 0; i < switches; ++i) fabric.add_node(NodeKind::leaf, "s" + std::to_string(i));
  const int links = *rc::gen::inRange(0, 3 * (gpus + switches));
  for (int i = 0; i < links; ++i) {
    const auto from = *rc::gen::inRange<std::uint32_t>(0, gpus + switches),
               to = *rc::gen::inRange<std::uint32_t>(0, gpus + switches);
    if (from == to) continue;
    if (*rc::gen::arbitrary<bool>())
      fabric.add_cable(from, to, 1e9, us(1));
    else
      fabric.add_link(from, to, 1e9, us(1));
  }
  std::size_t pairs = 0;
  for (std::size_t to = 0; to < fabric.gpu_count(); ++to) {
    const std::vector<std::uint32_t> distance = fabric.distances_to(fabric.gpu_node(to));
    for (std::size_t from = 0; from < fabric.gpu_count(); ++from)
      pairs += distance[fabric.gpu_node(from)] == Fabric::kNoWay ? 1 : 0;
  }
  RC_CLASSIFY(pairs == 0, "all reach each other");
  const std::vector<std::string> problems = fabric.problems();
  RC_ASSERT(problems.size() == (pairs <= 5 ? pairs : 6));
  if (pairs > 5)
    RC_ASSERT(problems.back() == "no way between " + std::to_string(pairs - 5) + " more pairs of GPUs");
}

TEST(Fabric, AbsurdValuesAreNamed) {
  Fabric fabric;
  const std::uint32_t a = fabric.add_gpu("a"), b = fabric.add_gpu("b");
  fabric.add_link(a, b, 3.0, us(1));
  fabric.add_link(b, a, 1e9, us(5e6));
  EXPECT_THAT(fabric.problems(),
              ElementsAre(HasSubstr("link a -> b: bandwidth 3"), HasSubstr("link b -> a: latency")));
}

std::vector<NodeKind> kinds_between(const Fabric& fabric, std::size_t from, std::size_t to) {
  Router router(fabric);
  Route route;
  router.find(from, to, route);
  std::vector<NodeKind> kinds;
  for (const std::uint32_t link : route.links) kinds.push_back(fabric.nodes()[fabric.links()[link].to].kind);
  return kinds;
}

TEST(FabricPresets, RailTreeKeepsRailsOnOneLeaf) {
  const Fabric fabric = rail_tree(8, {}, {});
  EXPECT_EQ(fabric.gpu_count(), 64u);
  EXPECT_THAT(fabric.problems(), ElementsAre());
  EXPECT_THAT(kinds_between(fabric, 0, 7), ElementsAre(NodeKind::nvswitch, NodeKind::gpu));
  // One rail of another node under the same leaf, another rail, and another leaf group.
  EXPECT_THAT(kinds_between(fabric, 0, 8), ElementsAre(NodeKind::pcie, NodeKind::nic, NodeKind::leaf,
                                                       NodeKind::nic, NodeKind::pcie, NodeKind::gpu));
  EXPECT_EQ(kinds_between(fabric, 0, 9).size(), 8u);
  EXPECT_EQ(kinds_between(fabric, 0, 32).size(), 8u);
}

TEST(FabricPresets, OversubscriptionIsWhatALeafPassesUp) {
  TreeShape tree;
  tree.oversubscription = 2;
  for (const Fabric& fabric : {rail_tree(8, {}, tree), fat_tree(8, {}, tree)}) {
    double down = 0, up = 0;
    for (const FabricLink& link : fabric.links()) {
      if (fabric.nodes()[link.from].kind != NodeKind::leaf) continue;
      (fabric.nodes()[link.to].kind == NodeKind::spine ? up : down) += link.capacity;
    }
    EXPECT_NEAR(down / up, 2.0, 1e-9);
  }
}

TEST(FabricPresets, AllReachAll) {
  NodeShape mesh;
  mesh.mesh = true;
  NodeShape rack;
  rack.gpus = rack.nics = 72;
  NodeShape few_nics;
  few_nics.nics = 3;
  for (const Fabric& fabric : {single_node(mesh), fat_tree(3, rack, {}), fat_tree(9, few_nics, {}),
                               pod_tree(20, {}, {}, 2), dragonfly(40, {}, 4, 2, 100e9, 100e9)})
    EXPECT_THAT(fabric.problems(), ElementsAre());
}

RC_GTEST_PROP(FabricPresets, CablesAreCountedBeforeTheyAreBuilt, ()) {
  const auto from_1_to = [](std::uint32_t most) { return *rc::gen::inRange<std::uint32_t>(1, most + 1); };
  NodeShape node;
  node.gpus = from_1_to(5);
  node.nics = from_1_to(node.gpus);
  node.mesh = *rc::gen::arbitrary<bool>();
  TreeShape tree;
  tree.nodes_per_leaf = from_1_to(4);
  tree.spines = from_1_to(3);
  const std::uint32_t nodes = from_1_to(20), more = from_1_to(3), hosts = from_1_to(3);
  const auto built = [](const Fabric& fabric) { return static_cast<double>(fabric.links().size()) / 2; };
  RC_ASSERT(single_node_cables(node) == built(single_node(node)));
  RC_ASSERT(leaf_tree_cables(nodes, node, tree, node.nics) == built(rail_tree(nodes, node, tree)));
  RC_ASSERT(leaf_tree_cables(nodes, node, tree, 1) == built(fat_tree(nodes, node, tree)));
  RC_ASSERT(pod_tree_cables(nodes, node, tree, more) == built(pod_tree(nodes, node, tree, more)));
  RC_ASSERT(dragonfly_cables(nodes, node, more, hosts) ==
            built(dragonfly(nodes, node, more, hosts, 1e9, 1e9)));
}

TEST(FabricPresets, WithoutGpudirectTrafficIsStaged) {
  NodeShape node;
  node.without_gpudirect = {0};
  const Fabric fabric = rail_tree(2, node, {});
  Router router(fabric);
  Route staged, direct;
  router.find(0, 8, staged);
  router.find(1, 9, direct);
  EXPECT_EQ(staged.latency - direct.latency, us(20));
  EXPECT_DOUBLE_EQ(fabric.links()[staged.links.front()].capacity, 12e9);
  EXPECT_DOUBLE_EQ(fabric.links()[direct.links.front()].capacity, 64e9);
}

Fabric read(const std::string& text) { return read_fabric(JsonNode::parse(text, "fabric.json")); }

TEST(FabricFile, PresetsTakeTheirNumbers) {
  const Fabric fabric =
      read(R"({"preset": "fat-tree", "nodes": 4, "nodes_per_leaf": 2, "multipath": "destination",
                                 "node": {"gpus": 4, "nic_bandwidth": "400Gbps", "connection_cap": "20GBps"}})");
  EXPECT_EQ(fabric.gpu_count(), 16u);
  EXPECT_EQ(fabric.multipath(), Multipath::destination);
  Router router(fabric);
  Route route;
  router.find(0, 15, route);
  EXPECT_DOUBLE_EQ(route.cap, 20e9);
}

TEST(FabricFile, OwnNetworksInJsonAndGraphml) {
  const Fabric json = read(R"({"nodes": [{"name": "a", "kind": "gpu"}, {"name": "s", "kind": "leaf"},
                                         {"name": "b", "kind": "gpu", "domain": 1}],
                               "links": [{"from": "a", "to": "s", "bandwidth": "50GBps", "latency": "2us"},
                                         {"from": "s", "to": "b", "bandwidth": 25e9, "cap": "10GBps"}]})");
  EXPECT_EQ(json.links().size(), 4u);
  EXPECT_EQ(json.domain(1), 1u);

  const auto path = std::filesystem::temp_directory_path() / "moesim_fabric_test.graphml";
  std::ofstream(path) << R"(<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="k" for="node" attr.name="kind" attr.type="string"/>
  <key id="b" for="edge" attr.name="bandwidth" attr.type="double"/>
  <key id="l" for="edge" attr.name="latency" attr.type="double"/>
  <graph id="G" edgedefault="undirected">
    <node id="n0"><data key="k">gpu</data></node>
    <node id="n1"><data key="k">leaf</data></node>
    <node id="n2"><data key="k">gpu</data></node>
    <edge source="n0" target="n1"><data key="b">5e10</data><data key="l">1e-6</data></edge>
    <edge source="n1" target="n2"><data key="b">5e10</data><data key="l">1e-6</data></edge>
  </graph>
</graphml>)";
  const Fabric graphml = read_fabric_file(path);
  std::filesystem::remove(path);
  EXPECT_EQ(graphml.gpu_count(), 2u);
  Router router(graphml);
  Route route;
  router.find(0, 1, route);
  EXPECT_EQ(route.latency, us(2));
}

std::string refusal(const std::string& text) {
  return message_of([&] { read(text); });
}

TEST(FabricFile, MoreThanTheLargestNetworkIsRefusedAtOnce) {
  const auto graphml = [](const std::string& inside) -> std::string {
    return message_of([&] {
      parse_graphml_fabric("<?xml version=\"1.0\"?>\n<graphml><graph edgedefault=\"undirected\">\n" + inside,
                           "f");
    });
  };
  std::string deep, many;
  for (int i = 0; i < 100'000; ++i) deep += "<a b='>'>";
  EXPECT_EQ(graphml(deep), "f:3: found XML nested deeper than 64 levels, expected less");
  for (int i = 0; i < (1 << 20) + 1; ++i) many += "<node id=\"n\"/>\n";
  EXPECT_THAT(graphml(many), HasSubstr("found more than 1048576 nodes, expected fewer"));
  // Text that is not XML is refused, wherever it stops.
  for (const char* cut : {"<!-- ", "<![CDATA[", "<node id=\"", "<?x", "<!D", "<", "</graph>"})
    EXPECT_THAT(graphml(cut), HasSubstr("not a GraphML fabric")) << cut;
}

TEST(FabricFile, BadFilesAreRefusedInOneLine) {
  EXPECT_THAT(refusal(R"({"preset": "fat-tre"})"), HasSubstr("did you mean 'fat-tree'"));
  EXPECT_THAT(refusal(R"({"preset": "fat-tree", "nods": 4})"), HasSubstr("nods"));
  EXPECT_THAT(refusal(R"({"preset": "fat-tree", "nodes": 1000000000})"), HasSubstr("nodes"));
  // Few numbers that ask for billions of cables, or whose products do not fit into 32 bits.
  for (
      const char* claim :
      {R"({"preset": "dragonfly", "nodes": 7303, "routers": 1, "nodes_per_router": 1})",
       R"({"preset": "dragonfly", "nodes": 16384, "routers": 4096, "nodes_per_router": 1})",
       R"({"preset": "fat-tree", "nodes": 16384, "nodes_per_leaf": 1, "spines": 4096})",
       R"({"preset": "rail-tree", "nodes": 16384, "nodes_per_leaf": 1, "spines": 4096})",
       R"({"preset": "pod-tree", "nodes": 16384, "nodes_per_leaf": 1, "spines": 4096, "leaves_per_pod": 4096})",
       R"({"preset": "single-node", "node": {"gpus": 4096, "mesh": true}})"})
    EXPECT_THAT(refusal(claim), HasSubstr("cables, expected at most 4194304")) << claim;
  EXPECT_EQ(read(R"({"preset": "pod-tree", "nodes": 2, "nodes_per_leaf": 1048576,
                     "leaves_per_pod": 4096, "oversubscription": 1000})")
                .gpu_count(),
            16u);
  EXPECT_THAT(refusal(R"({"preset": "rail-tree", "node": {"nic_bandwidth": "fast"}})"), HasSubstr("fast"));
  EXPECT_THAT(
      refusal(R"({"nodes": [{"name": "a", "kind": "gpu"}, {"name": "b", "kind": "gpu"}], "links": []})"),
      HasSubstr("no way from"));
  EXPECT_THAT(refusal(R"({"nodes": [{"name": "a", "kind": "chip"}], "links": []})"),
              HasSubstr("no kind of node"));
  EXPECT_THAT(refusal(R"({"nodes": [{"name": "a", "kind": "gpu"}],
                          "links": [{"from": "a", "to": "x", "bandwidth": 1e9}]})"),
              HasSubstr("no node 'x'"));
}

}  // namespace
}  // namespace moesim::sim
