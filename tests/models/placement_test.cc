#include "models/workload/placement.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "models/hardware/cluster.h"
#include "tests/models/megatron_grids.h"

namespace moesim::models {
namespace {

Parallel plan(std::int64_t ep, std::int64_t world, std::int64_t pp = 1) {
  Parallel p;
  p.ep = ep;
  p.pp = pp;
  p.dp = world / pp;
  return p;
}

TEST(Placement, GroupsThatLieAlikeAreOneClass) {
  const Cluster cluster = Cluster::load("dgx-h100x3");
  const Placement whole(plan(8, 24), false, cluster, false);
  ASSERT_EQ(whole.dispatch_classes().size(), 1u);
  EXPECT_EQ(whole.dispatch_classes()[0].groups, 3);
  EXPECT_EQ(whole.dispatch_classes()[0].block(), 8);
  EXPECT_TRUE(whole.notes().empty());
  // GPUs 6 7 | 8 and 15 | 16 17.
  const Placement three(plan(3, 24), false, cluster, false);
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
  const Placement placement(plan(64, 128), false, racks, false);
  ASSERT_EQ(placement.dispatch_classes().size(), 2u);
  EXPECT_FALSE(placement.dispatch_classes()[0].shape.across_domains());
  EXPECT_TRUE(placement.dispatch_classes()[1].shape.across_domains());
}

TEST(Placement, EveryPairOfStagesStandsOnItsOwnGpus) {
  const Cluster cluster = Cluster::load("dgx-h100x4");
  const Placement placement(plan(2, 32, 16), false, cluster, false);
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
  const testing::MegatronGrids grids = testing::megatron_grids(p, "tp-cp-ep-pp-dp");
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
    const Placement placement(plan(1, 64, 8), false, cluster, inside);
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
  const Placement placement(plan(ep, world), false, cluster, false);
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
