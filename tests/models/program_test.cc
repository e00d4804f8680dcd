// Programs: who is in which group, what operations are called, who issues them.
#include "models/programs/program.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>

#include "models/programs/program_builder.h"

namespace moesim::models {
namespace {

constexpr GroupKind kEveryKind[] = {GroupKind::kTpEp, GroupKind::kEp, GroupKind::kTp, GroupKind::kDense};

// rank = etp + ETP * ep: with ETP 2 and EP 3 the EP groups are {0,2,4} and {1,3,5}, the ETP groups {0,1}...
TEST(Program, GroupsOfExpertTensorParallelRanks) {
  const Program p(3, 2, 2);
  EXPECT_EQ(p.ranks(), 6);
  EXPECT_EQ(p.group_size(GroupKind::kEp), 3);
  EXPECT_EQ(p.group_count(GroupKind::kEp), 2);
  EXPECT_EQ(p.rank_of(GroupKind::kEp, 1, 2), 5);
  EXPECT_EQ(p.rank_of(GroupKind::kTp, 1, 0), 2);
  EXPECT_EQ(p.group_count(GroupKind::kTp), 3);
  EXPECT_EQ(p.group_count(GroupKind::kTpEp), 1);
  EXPECT_EQ(p.rank_of(GroupKind::kDense, 2, 1), 5);  // consecutive blocks of the tensor-parallel size
}

RC_GTEST_PROP(Program, RanksAndMembersAreInverse, ()) {
  const int ep = *rc::gen::inRange(1, 6), etp = *rc::gen::inRange(1, 5);
  const Program p(ep, etp, *rc::gen::element(1, etp, ep * etp));
  for (const GroupKind kind : kEveryKind) {
    if (p.ranks() % p.group_size(kind) != 0) continue;
    std::set<int> all;
    for (int group = 0; group < p.group_count(kind); ++group)
      for (int member = 0; member < p.group_size(kind); ++member) {
        const int rank = p.rank_of(kind, group, member);
        RC_ASSERT(all.insert(rank).second);
        RC_ASSERT(p.group_index(kind, rank) == group);
        RC_ASSERT(p.member_index(kind, rank) == member);
      }
    RC_ASSERT(static_cast<int>(all.size()) == p.ranks());
  }
}

// A dispatch group that the tensor-parallel groups do not divide stands in one group.
TEST(Program, ALargerTensorParallelGroupIsOneGroup) {
  const Program p(2, 1, 8);
  EXPECT_EQ(p.group_size(GroupKind::kDense), 8);
  EXPECT_EQ(p.group_count(GroupKind::kDense), 1);
  for (const int rank : {0, 1}) EXPECT_EQ(p.group_index(GroupKind::kDense, rank), 0);
}

TEST(Program, KindsHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const CommKind kind :
       {CommKind::kAllGather, CommKind::kReduceScatter, CommKind::kAllReduce, CommKind::kAllToAll,
        CommKind::kAllToAllV, CommKind::kAllGatherV, CommKind::kReduceScatterV})
    EXPECT_TRUE(names.insert(name_of(kind)).second);
  EXPECT_EQ(names.count("reduce_scatter_v"), 1u);
  for (const GroupKind kind : kEveryKind) EXPECT_TRUE(names.insert(name_of(kind)).second);
  EXPECT_EQ(name_of(ExchangeLibrary::kDeepEp), "DeepEP");
  EXPECT_EQ(name_of(ExchangeLibrary::kNone), "");
  // The simulator tells equal and unequal pieces apart by their traffic.
  EXPECT_EQ(simulated(CommKind::kAllToAllV), simulated(CommKind::kAllToAll));
  EXPECT_EQ(simulated(CommKind::kAllGatherV), sim::CollectiveOp::all_gather);
  EXPECT_EQ(simulated(CommKind::kReduceScatterV), sim::CollectiveOp::reduce_scatter);
}

// Two waits of all ranks, one more of rank 1 only.
TEST(Program, HostSyncsAreThoseOfTheRankWithMost) {
  ProgramBuilder b(2, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  b.host_sync("a", sim::Category::host_sync, b.uniform(8));
  b.host_sync("b", sim::Category::host_sync, b.uniform(8));
  const std::vector<std::int64_t> second{0, 1};
  b.only_on(second);
  b.host_sync("c", sim::Category::host_sync, b.uniform(8));
  const Program p = b.finish();
  EXPECT_EQ(p.host_syncs(p.forward()), 3);
  EXPECT_FALSE(p.issues(p.forward().back(), 0));
  EXPECT_TRUE(p.issues(p.forward().back(), 1));
}

}  // namespace
}  // namespace moesim::models
