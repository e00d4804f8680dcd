#include "sim/run/deadlock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/run/simulator.h"
#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

using ::testing::HasSubstr;

struct StuckJob {
  TaskGraphBuilder b;
  std::vector<StreamId> comm;
  GroupId all;

  explicit StuckJob(std::uint32_t ranks) {
    b.add_ranks(ranks);
    std::vector<RankId> members;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      members.emplace_back(r);
      comm.push_back(b.add_stream(members.back(), StreamKind::comm));
    }
    all = b.add_group(members);
  }
  CollectiveId collective(const char* label) {
    return b.add_collective(CollectiveOp::all_gather, all, uniform_traffic(8),
                            b.add_label(label, Category::dispatch));
  }
};

Deadlock deadlock_of(TaskGraphBuilder& builder) {
  const TaskGraph graph = builder.finalize();
  try {
    run(graph, TestCosts());
  } catch (const Deadlock& deadlock) {
    return deadlock;
  }
  ADD_FAILURE() << "no deadlock found";
  return Deadlock("", {});
}

TEST(Deadlock, NamesRanksOperationsAndLinesOfAMismatchedOrder) {
  StuckJob job(2);
  const CollectiveId x = job.collective("x"), y = job.collective("y");
  job.b.set_origin(job.b.add_member(job.comm[0], x, 0), 11);
  job.b.add_member(job.comm[0], y, 0);
  job.b.set_origin(job.b.add_member(job.comm[1], y, 1), 22);
  job.b.add_member(job.comm[1], x, 1);
  const Deadlock deadlock = deadlock_of(job.b);
  EXPECT_THAT(deadlock.what(), HasSubstr("circle"));
  EXPECT_THAT(deadlock.what(),
              HasSubstr("rank 0, comm stream: all_gather 'x' (recorded operation 11) waits for rank 1"));
  EXPECT_THAT(deadlock.what(),
              HasSubstr("rank 1, comm stream: all_gather 'y' (recorded operation 22) waits for rank 0"));
  std::vector<std::uint32_t> origins;
  for (const StuckStream& s : deadlock.streams()) origins.push_back(s.origin);
  EXPECT_THAT(origins, ::testing::IsSupersetOf({11u, 22u}));
}

TEST(Deadlock, NamesTheRankThatNeverCalls) {
  StuckJob job(3);
  const CollectiveId x = job.collective("x");
  job.b.add_member(job.comm[0], x, 0);
  job.b.add_member(job.comm[2], x, 2);
  const Deadlock deadlock = deadlock_of(job.b);
  EXPECT_THAT(deadlock.what(), HasSubstr("all_gather 'x' waits for rank 1, which never calls it"));
  EXPECT_EQ(deadlock.streams().size(), 2u);
}

TEST(Deadlock, FollowsAChainOfRanksToTheMissingOne) {
  // Rank 0 waits for rank 1 in x, rank 1 for rank 2 in y, and rank 2 never calls y.
  TaskGraphBuilder b = with_ranks(3);
  std::vector<StreamId> s;
  for (std::uint32_t r = 0; r < 3; ++r) s.push_back(b.add_stream(RankId(r), StreamKind::comm));
  const auto label = [&](const char* n) { return b.add_label(n, Category::other); };
  const GroupId g01 = b.add_group(std::vector<RankId>{RankId(0), RankId(1)});
  const GroupId g12 = b.add_group(std::vector<RankId>{RankId(1), RankId(2)});
  const CollectiveId x = b.add_collective(CollectiveOp::all_reduce, g01, uniform_traffic(1), label("x"));
  const CollectiveId y = b.add_collective(CollectiveOp::all_reduce, g12, uniform_traffic(1), label("y"));
  b.add_member(s[0], x, 0);
  b.add_member(s[1], y, 0);
  b.add_member(s[1], x, 1);
  const Deadlock deadlock = deadlock_of(b);
  EXPECT_THAT(deadlock.what(), HasSubstr("all_reduce 'y' waits for rank 2, which never calls it"));
  EXPECT_THAT(deadlock.what(), HasSubstr("rank 0"));
}

TEST(Deadlock, FindsACycleOfDependencies) {
  TaskGraphBuilder b = with_ranks(1);
  const StreamId s = b.add_stream(RankId(0), StreamKind::compute);
  const LabelId l = b.add_label("gemm", Category::expert);
  const TaskId first = b.add_compute(s, us(1), l), second = b.add_compute(s, us(1), l);
  b.add_dependency(second, first);
  EXPECT_THAT(deadlock_of(b).what(), HasSubstr("circle"));
}

TEST(Deadlock, CountsTheStreamsThatWaitBehind) {
  StuckJob job(40);
  const CollectiveId x = job.collective("x");
  for (std::uint32_t r = 1; r < 40; ++r) job.b.add_member(job.comm[r], x, r);
  const Deadlock deadlock = deadlock_of(job.b);
  EXPECT_EQ(deadlock.streams().size(), 39u);
  EXPECT_THAT(deadlock.what(), HasSubstr("38 more streams"));
}

}  // namespace
}  // namespace moesim::sim
