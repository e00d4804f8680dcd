// Shapes of groups on clusters: counts of domains, nodes and members by hand.
#include "models/hardware/group_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "base/json_reader.h"
#include "models/hardware/cluster.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::ElementsAre;

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
