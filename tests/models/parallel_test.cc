// The printed groups of docs/spec.md 5, and a torch DeviceMesh as text and JSON with the groups of its grid (5.2).
#include "models/workload/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/workload/placement.h"
#include "models/workload/scenario.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using Groups = std::vector<std::vector<std::int32_t>>;
using moesim::testing::message_of;

// Megatron's two grids of the same ranks (docs/spec.md 5.1), from its order string: what placements are held
// against.
struct MegatronGrids {
  RankGrid dense;    // axes tp, cp, dp, pp
  RankGrid experts;  // axes tp (= ETP), ep, dp (= EDP), pp
};

MegatronGrids megatron_grids(const Parallel& p, std::string_view order = "tp-cp-ep-dp-pp") {
  const auto grid = [&](const std::map<std::string_view, std::int64_t>& sizes) {
    std::vector<Axis> axes;
    for (const std::string_view name : split(order, '-')) axes.push_back({std::string(name), sizes.at(name)});
    return RankGrid::fastest_first(std::move(axes));
  };
  return {grid({{"tp", p.tp}, {"cp", p.cp}, {"ep", 1}, {"dp", p.dp}, {"pp", p.pp}}),
          grid({{"tp", p.etp}, {"cp", 1}, {"ep", p.ep}, {"dp", p.edp()}, {"pp", p.pp}})};
}

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
  const MegatronGrids grids = megatron_grids(plan(2, 4, 2, 1, 4));
  EXPECT_EQ(grids.dense.groups("tp")[0], (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(grids.dense.groups("tp")[1], (std::vector<std::int32_t>{2, 3}));
  EXPECT_EQ(grids.dense.groups("dp"), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(grids.dense.groups("pp"),
            (Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
}

TEST(MegatronGrids, ExpertsEp4Edp2Pp2) {
  const MegatronGrids grids = megatron_grids(plan(2, 4, 2, 1, 4));
  EXPECT_EQ(grids.experts.groups("ep"),
            (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(grids.experts.groups("dp"),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(grids.experts.groups("pp"), grids.dense.groups("pp"));
  EXPECT_EQ(grids.experts.groups("ep-pp"),
            (Groups{{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}}));
}

TEST(MegatronGrids, ExpertsEtp2Ep2Edp2Pp2) {
  const MegatronGrids grids = megatron_grids(plan(2, 4, 2, 2, 2));
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

Parallel expert_plan(std::int64_t ep, std::int64_t world, std::int64_t pp = 1) {
  Parallel p;
  p.ep = ep;
  p.pp = pp;
  p.dp = world / pp;
  return p;
}

TEST(Placement, GroupsThatLieAlikeAreOneClass) {
  const Cluster cluster = Cluster::load("dgx-h100x3");
  const Placement whole(expert_plan(8, 24), false, cluster, false);
  ASSERT_EQ(whole.dispatch_classes().size(), 1u);
  EXPECT_EQ(whole.dispatch_classes()[0].groups, 3);
  EXPECT_EQ(whole.dispatch_classes()[0].block(), 8);
  EXPECT_TRUE(whole.notes().empty());
  // GPUs 6 7 | 8 and 15 | 16 17.
  const Placement three(expert_plan(3, 24), false, cluster, false);
  ASSERT_EQ(three.dispatch_classes().size(), 3u);
  EXPECT_EQ(three.dispatch_classes()[0].groups, 6);
  EXPECT_EQ(three.dispatch_classes()[1].gpus, (std::vector<std::int32_t>{6, 7, 8}));
  EXPECT_EQ(three.dispatch_classes()[1].block(), 0);
  EXPECT_EQ(three.dispatch_classes()[2].shape.domain_of, (std::vector<std::int32_t>{0, 1, 1}));
  ASSERT_EQ(three.notes().size(), 1u);
  EXPECT_EQ(three.notes()[0],
            "placement: 2 of 8 dispatch groups of 3 ranks straddle NVLink domains of 8 GPUs; the slowest "
            "group counts");
}

TEST(Placement, RacksAreNotFilledByGroupsOf64) {
  const Cluster racks = Cluster::load("gb200-nvl72x2");
  const Placement placement(expert_plan(64, 128), false, racks, false);
  ASSERT_EQ(placement.dispatch_classes().size(), 2u);
  EXPECT_FALSE(placement.dispatch_classes()[0].shape.across_domains());
  EXPECT_TRUE(placement.dispatch_classes()[1].shape.across_domains());
}

TEST(Placement, EveryPairOfStagesStandsOnItsOwnGpus) {
  const Cluster cluster = Cluster::load("dgx-h100x4");
  const Placement placement(expert_plan(2, 32, 16), false, cluster, false);
  const auto across = [&](std::int64_t from, std::int64_t to) {
    const auto& pairs = placement.pipeline_pairs(from, to);
    return std::any_of(pairs.begin(), pairs.end(), [](const GroupShape& s) { return s.across_domains(); });
  };
  for (std::int64_t stage = 0; stage + 1 < 16; ++stage)
    EXPECT_EQ(across(stage, stage + 1), stage % 4 == 3) << stage;
  EXPECT_TRUE(across(15, 0));
}

// Every rank of a stage is in one dispatch group, one tensor group and one group of replicas.
// Megatron's TP-PP-DP mapping, held against the rank grid that its own order string gives.
RC_GTEST_PROP(PlacementProperty, StagesInsideAreMegatronsOrder, ()) {
  const auto power = [](int most) { return std::int64_t{1} << *rc::gen::inRange(0, most + 1); };
  Parallel p;
  p.tp = power(2), p.cp = power(1), p.pp = power(3), p.dp = power(3);
  p.ep = p.tp * p.cp;
  const Cluster cluster = Cluster::load("dgx-h100x64");
  const Placement placement(p, false, cluster, true);
  const MegatronGrids grids = megatron_grids(p, "tp-cp-ep-pp-dp");
  std::vector<std::vector<std::int32_t>> dispatch;
  for (std::int64_t stage = 0; stage < p.pp; ++stage)
    for (auto& group : placement.dispatch_groups(stage)) dispatch.push_back(group);
  std::sort(dispatch.begin(), dispatch.end());
  RC_ASSERT(dispatch == grids.experts.groups("tp-ep"));
  const auto shapes_of = [&](const std::vector<std::vector<std::int32_t>>& groups) {
    std::set<std::vector<int>> shapes;
    for (const auto& group : groups) {
      const GroupShape shape = GroupShape::of(cluster, group);
      shapes.insert({shape.ranks, shape.domains, shape.max_per_domain, shape.min_per_domain});
    }
    return shapes;
  };
  const auto shapes_in = [](const Placement::Shapes& all) {
    std::set<std::vector<int>> shapes;
    for (const GroupShape& shape : all)
      shapes.insert({shape.ranks, shape.domains, shape.max_per_domain, shape.min_per_domain});
    return shapes;
  };
  RC_ASSERT(shapes_in(placement.dense_replicas().all) == shapes_of(grids.dense.groups("cp-dp")));
  RC_ASSERT(shapes_in(placement.expert_replicas().all) == shapes_of(grids.experts.groups("dp")));
  RC_ASSERT(shapes_in(placement.pipelines()) == shapes_of(grids.dense.groups("pp")));
}

// Eight stages of one GPU: neighbours with stages inside, across every node where replicas are.
TEST(Placement, StagesInsideKeepPipelinesInANode) {
  const Cluster cluster = Cluster::load("dgx-h100x8");
  const auto across = [&](bool inside) {
    const Placement placement(expert_plan(1, 64, 8), false, cluster, inside);
    const auto& pairs = placement.pipeline_pairs(0, 1);
    return std::any_of(pairs.begin(), pairs.end(), [](const GroupShape& s) { return s.across_domains(); });
  };
  EXPECT_FALSE(across(true));
  EXPECT_TRUE(across(false));
}

RC_GTEST_PROP(PlacementProperty, GroupsCoverEveryRankOnce, ()) {
  Parallel p;
  p.tp = *rc::gen::inRange<std::int64_t>(1, 5);
  p.cp = *rc::gen::inRange<std::int64_t>(1, 4);
  p.etp = *rc::gen::element<std::int64_t>(1, p.tp);
  p.pp = *rc::gen::inRange<std::int64_t>(1, 4);
  p.ep = *rc::gen::inRange<std::int64_t>(1, 9);
  p.dp = p.ep * p.etp * *rc::gen::inRange<std::int64_t>(1, 3);
  const bool unfolded = *rc::gen::arbitrary<bool>();
  const Cluster cluster = Cluster::load("dgx-h100x256");
  const Placement placement(p, unfolded, cluster, false);
  std::int64_t groups = 0;
  for (const auto& c : placement.dispatch_classes()) groups += c.groups;
  RC_ASSERT(groups * p.etp * p.ep == p.world());
  for (std::int64_t stage = 0; stage < p.pp; ++stage) {
    std::vector<std::int32_t> seen;
    for (const auto& gpus : placement.dispatch_groups(stage))
      seen.insert(seen.end(), gpus.begin(), gpus.end());
    std::sort(seen.begin(), seen.end());
    RC_ASSERT(static_cast<std::int64_t>(seen.size()) == placement.stage_ranks());
    for (std::size_t i = 0; i < seen.size(); ++i)
      RC_ASSERT(seen[i] == stage * placement.stage_ranks() + static_cast<std::int32_t>(i));
  }
  RC_ASSERT(placement.expert_replicas().ranks == p.edp());
  RC_ASSERT(placement.dense_replicas().ranks == p.dp * p.cp);
}

// Moving a whole job by whole nodes changes no class.
RC_GTEST_PROP(PlacementProperty, ClassesKnowAllShapesOfReplicas, ()) {
  const auto ep = *rc::gen::element<std::int64_t>(1, 2, 3, 4, 6, 8, 16);
  const std::int64_t world = 96;
  const Cluster cluster = Cluster::load("dgx-h100x12");
  const Placement placement(expert_plan(ep, world), false, cluster, false);
  const Placement::Replicas& replicas = placement.expert_replicas();
  for (std::int64_t m = 0; m < ep; ++m) {
    const GroupShape shape = [&] {
      std::vector<std::int32_t> gpus;
      for (std::int64_t g = m; g < world; g += ep) gpus.push_back(static_cast<std::int32_t>(g));
      return GroupShape::of(cluster, gpus);
    }();
    RC_ASSERT(std::any_of(replicas.all.begin(), replicas.all.end(), [&](const GroupShape& known) {
      return known.domains == shape.domains && known.max_per_domain == shape.max_per_domain &&
             known.min_per_domain == shape.min_per_domain;
    }));
  }
}

}  // namespace
}  // namespace moesim::models
