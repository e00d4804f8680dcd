// The printed groups of docs/spec.md 5, and a torch DeviceMesh as text and JSON with the groups of its grid (5.2).
#include "models/workload/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/workload/scenario.h"
#include "tests/message_of.h"
#include "tests/models/megatron_grids.h"

namespace moesim::models {
namespace {

using Groups = std::vector<std::vector<std::int32_t>>;
using moesim::testing::message_of;

Parallel plan(std::int64_t tp, std::int64_t dp, std::int64_t pp, std::int64_t etp, std::int64_t ep) {
  Parallel p;
  p.tp = tp;
  p.dp = dp;
  p.pp = pp;
  p.etp = etp;
  p.ep = ep;
  return p;
}

TEST(MegatronGrids, DenseTp2Dp4Pp2) {
  const testing::MegatronGrids grids = testing::megatron_grids(plan(2, 4, 2, 1, 4));
  EXPECT_EQ(grids.dense.groups("tp")[0], (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(grids.dense.groups("tp")[1], (std::vector<std::int32_t>{2, 3}));
  EXPECT_EQ(grids.dense.groups("dp"), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(grids.dense.groups("pp"),
            (Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
}

TEST(MegatronGrids, ExpertsEp4Edp2Pp2) {
  const testing::MegatronGrids grids = testing::megatron_grids(plan(2, 4, 2, 1, 4));
  EXPECT_EQ(grids.experts.groups("ep"),
            (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(grids.experts.groups("dp"),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(grids.experts.groups("pp"), grids.dense.groups("pp"));
  EXPECT_EQ(grids.experts.groups("ep-pp"),
            (Groups{{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}}));
}

TEST(MegatronGrids, ExpertsEtp2Ep2Edp2Pp2) {
  const testing::MegatronGrids grids = testing::megatron_grids(plan(2, 4, 2, 2, 2));
  EXPECT_EQ(grids.experts.groups("tp")[0], (std::vector<std::int32_t>{0, 1}));
  const Groups ep = grids.experts.groups("ep");
  EXPECT_EQ((Groups{ep[0], ep[1], ep[2], ep[3]}), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(grids.experts.groups("tp-ep")[0], (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(grids.experts.groups("tp-ep")[1], (std::vector<std::int32_t>{4, 5, 6, 7}));
  const Groups dp = grids.experts.groups("dp");
  EXPECT_EQ((Groups{dp[0], dp[1], dp[2], dp[3]}), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(RankGrid, OrderTpPpDp) {
  const RankGrid grid = RankGrid::fastest_first({{"tp", 2}, {"pp", 2}, {"dp", 2}});
  EXPECT_EQ(grid.groups("dp"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(DeviceMesh, ReplicateShardTp) {
  const RankGrid mesh = RankGrid::fastest_last({{"replicate", 2}, {"shard", 2}, {"tp", 2}});
  EXPECT_EQ(mesh.groups("tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(mesh.groups("shard"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(mesh.groups("replicate"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  // The two-dimensional HSDP sub-mesh of rank 0, [[0, 2], [4, 6]].
  EXPECT_EQ(mesh.groups("replicate-shard")[0], (std::vector<std::int32_t>{0, 2, 4, 6}));
}

TEST(DeviceMesh, TwoRanks) {
  EXPECT_EQ(RankGrid::fastest_last({{"replicate", 1}, {"shard", 2}, {"tp", 1}}).groups("shard"),
            (Groups{{0, 1}}));
  EXPECT_EQ(RankGrid::fastest_last({{"replicate", 2}, {"shard", 1}, {"tp", 1}}).groups("shard"),
            (Groups{{0}, {1}}));
  EXPECT_EQ(RankGrid::fastest_last({{"replicate", 1}, {"shard", 1}, {"tp", 2}}).groups("tp"),
            (Groups{{0, 1}}));
}

TEST(DeviceMesh, MegaBlocksOnTwoRanks) {
  const RankGrid mesh = RankGrid::fastest_last({{"weight_parallel", 1}, {"expert_parallel", 2}});
  EXPECT_EQ(mesh.groups("expert_parallel"), (Groups{{0, 1}}));
  EXPECT_EQ(mesh.groups("weight_parallel"), (Groups{{0}, {1}}));
}

TEST(Parallel, NamesTheBrokenRule) {
  const auto message = [](Parallel p, std::int64_t experts) -> std::string {
    return message_of([&] { p.validate(experts); });
  };
  EXPECT_THAT(message(plan(1, 3, 1, 1, 3), 8), ::testing::HasSubstr("divisor"));
  EXPECT_THAT(message(plan(1, 4, 1, 1, 3), 9), ::testing::HasSubstr("etp 1 x ep 3"));
  EXPECT_THAT(message(plan(0, 4, 1, 1, 1), 8), ::testing::HasSubstr("parallel.tp: found 0"));
  EXPECT_THAT(message(plan(1 << 20, 1 << 20, 1, 1, 1), 8), ::testing::HasSubstr("2^31"));
  EXPECT_EQ(message(plan(2, 4, 2, 1, 4), 8), "");
}

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

}  // namespace
}  // namespace moesim::models
