#include "sim/network/fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/network/router.h"
#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

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

}  // namespace
}  // namespace moesim::sim
