// A torch DeviceMesh as text and JSON, and the groups of its grid (docs/spec.md 5.2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "models/workload/scenario.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using Groups = std::vector<std::vector<std::int32_t>>;

DeviceMesh mesh_of(const std::string& json) { return DeviceMesh::parse(JsonNode::parse(json, "m.json")); }

TEST(DeviceMeshInput, TextAndObjectSayTheSame) {
  const DeviceMesh text = mesh_of(R"("replicate=2, shard=2,tp=2")"),
                   object = mesh_of(R"({"replicate": 2, "shard": 2, "tp": 2})");
  EXPECT_EQ(text.to_json(), object.to_json());
  EXPECT_EQ(text.to_json(), nlohmann::ordered_json::parse(R"({"replicate": 2, "shard": 2, "tp": 2})"));
  EXPECT_TRUE(text.given);
  EXPECT_TRUE(DeviceMesh().to_json().is_null());
  EXPECT_EQ(mesh_of("{}").to_json(), nlohmann::ordered_json::object());  // a mesh of one rank is still given
}

// Eight ranks as [[[0,1],[2,3]],[[4,5],[6,7]]]: the last axis is the fastest.
TEST(DeviceMeshInput, GridHasTheGroupsOfTheDocument) {
  const RankGrid grid = mesh_of(R"("replicate=2,shard=2,tp=2")").grid();
  EXPECT_EQ(grid.groups("tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(grid.groups("shard"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(grid.groups("replicate"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  // Axes of one rank that are not in use are absent; the three of the document always exist.
  std::vector<std::string> names;
  const RankGrid few = mesh_of(R"("pp=2,ep=4")").grid();
  for (const Axis& axis : few.axes()) names.push_back(axis.name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("pp", "replicate", "shard", "ep", "tp"));
}

TEST(DeviceMeshInput, MistakesAreOneLine) {
  EXPECT_EQ(message_of([] { mesh_of(R"("replicat=2")"); }),
            "mesh: found axis 'replicat', expected one of pp, replicate, shard, cp, ep, tp; did you mean "
            "'replicate'?");
  EXPECT_EQ(message_of([] { mesh_of(R"("shard")"); }),
            "mesh: found 'shard', expected axis=size, such as replicate=2,shard=2,tp=2");
  EXPECT_EQ(message_of([] { mesh_of(R"("shard=0")"); }),
            "mesh: found 'shard=0', expected a size of at least 1");
  EXPECT_THAT(message_of([] { mesh_of("{\n\"shards\": 2}"); }), ::testing::HasSubstr("m.json:2"));
}

}  // namespace
}  // namespace moesim::models
