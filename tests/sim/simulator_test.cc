#include "sim/run/simulator.h"

#include <gtest/gtest.h>

#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

struct TwoRanks {
  TaskGraphBuilder b = with_ranks(2);
  RankId r0{0}, r1{1};
  StreamId compute0 = b.add_stream(r0, StreamKind::compute), compute1 = b.add_stream(r1, StreamKind::compute);
  StreamId comm0 = b.add_stream(r0, StreamKind::comm), comm1 = b.add_stream(r1, StreamKind::comm);
  GroupId both = b.add_group(std::vector<RankId>{r0, r1});
  LabelId gemm = b.add_label("gemm", Category::expert);
  LabelId dispatch = b.add_label("dispatch", Category::dispatch);
  TestCosts costs;
};

TEST(Simulator, StreamsRunInOrderAndDependenciesCrossThem) {
  TwoRanks t;
  const TaskId a = t.b.add_compute(t.compute0, us(5), t.gemm);
  const TaskId b = t.b.add_compute(t.compute0, us(7), t.gemm);
  const TaskId c = t.b.add_compute(t.comm0, us(1), t.gemm);
  t.b.add_dependency(a, c);
  const TaskGraph graph = t.b.finalize();
  const Timeline timeline = run(graph, t.costs);
  EXPECT_EQ(timeline.start(b), us(5));
  EXPECT_EQ(timeline.cause(b), Cause::stream);
  EXPECT_EQ(timeline.start(c), us(5));
  EXPECT_EQ(timeline.cause(c), Cause::dependency);
  EXPECT_EQ(timeline.cause_task(c), a);
  EXPECT_EQ(timeline.iteration(), us(12));
}

TEST(Simulator, ACollectiveBeginsWithItsLastMemberAndMembersEndAlone) {
  TwoRanks t;
  t.costs.duration = [](const CollectiveShape&, std::size_t member) { return us(member == 0 ? 10 : 25); };
  t.b.add_compute(t.compute0, us(3), t.gemm);
  t.b.add_compute(t.compute1, us(40), t.gemm);
  const CollectiveId c =
      t.b.add_collective(CollectiveOp::all_to_all, t.both, uniform_traffic(1000), t.dispatch);
  const TaskId m0 = t.b.add_member(t.compute0, c, 0), m1 = t.b.add_member(t.compute1, c, 1);
  const TaskGraph graph = t.b.finalize();
  const Timeline timeline = run(graph, t.costs);
  EXPECT_EQ(timeline.start(m0), us(3));
  EXPECT_EQ(timeline.begin(c), us(40));
  EXPECT_EQ(timeline.last_arrival(c), m1);
  EXPECT_EQ(timeline.end(m0), us(50));
  EXPECT_EQ(timeline.end(m1), us(65));
  EXPECT_EQ(timeline.rank(t.r0).straggler_wait, us(37));
  EXPECT_EQ(timeline.rank(t.r0).exposed_comm, us(10));
  EXPECT_EQ(timeline.rank(t.r0).busy, us(3));
  EXPECT_EQ(timeline.rank(t.r0).bubble, us(15));
}

TEST(Simulator, AWaitingMemberBlocksItsStreamOnly) {
  TwoRanks t;
  t.b.add_compute(t.compute1, us(50), t.gemm);
  const CollectiveId c = t.b.add_collective(CollectiveOp::all_gather, t.both, uniform_traffic(8), t.dispatch);
  t.b.add_member(t.comm0, c, 0);
  t.b.add_member(t.compute1, c, 1);
  const TaskId behind = t.b.add_compute(t.comm0, us(1), t.gemm);
  const TaskId free = t.b.add_compute(t.compute0, us(1), t.gemm);
  const TaskGraph graph = t.b.finalize();
  const Timeline timeline = run(graph, t.costs);
  EXPECT_EQ(timeline.start(behind), us(60));
  EXPECT_EQ(timeline.start(free), us(0));
}

TEST(Simulator, FusedSendsAndReceivesOfNeighboursDoNotLock) {
  // Rank 0 sends forward and receives backward, rank 1 sends backward and receives forward: in this order the
  // four calls one by one would wait in a circle.
  for (const bool fused : {true, false}) {
    TwoRanks t;
    const GroupId back = t.b.add_group(std::vector<RankId>{t.r1, t.r0});
    const CollectiveId f =
        t.b.add_collective(CollectiveOp::send_recv, t.both, uniform_traffic(8), t.dispatch);
    const CollectiveId g = t.b.add_collective(CollectiveOp::send_recv, back, uniform_traffic(8), t.dispatch);
    t.b.add_compute(t.comm0, us(2), t.gemm);
    t.b.add_member(t.comm0, f, 0);
    const TaskId g0 = fused ? t.b.add_fused_member(t.comm0, g, 1) : t.b.add_member(t.comm0, g, 1);
    t.b.add_member(t.comm1, g, 0);
    fused ? t.b.add_fused_member(t.comm1, f, 1) : t.b.add_member(t.comm1, f, 1);
    const TaskId after = t.b.add_compute(t.comm0, us(1), t.gemm);
    const TaskGraph graph = t.b.finalize();
    if (!fused) {
      EXPECT_ANY_THROW(run(graph, t.costs));
      continue;
    }
    const Timeline timeline = run(graph, t.costs);
    EXPECT_EQ(timeline.start(g0), us(2));
    EXPECT_EQ(timeline.start(after), us(12));
  }
}

TEST(Simulator, ABlockingHostSyncHoldsBackWhatIsLaunchedLater) {
  TwoRanks t;
  const StreamId host = t.b.add_stream(t.r0, StreamKind::host);
  const LabelId sync = t.b.add_label("sync", Category::host_sync);
  const TaskId counts = t.b.add_compute(t.compute0, us(30), t.gemm);
  const TaskId wait = t.b.add_host(host, us(8), sync);
  t.b.add_dependency(counts, wait);
  const TaskId later = t.b.add_compute(t.compute0, us(5), t.gemm);
  t.b.add_dependency(wait, later);
  const TaskGraph graph = t.b.finalize();
  const Timeline timeline = run(graph, t.costs);
  EXPECT_EQ(timeline.start(later), us(38));
  EXPECT_EQ(timeline.cause(later), Cause::host);
  EXPECT_EQ(timeline.rank(t.r0).host, us(8));
  EXPECT_EQ(timeline.rank(t.r0).breakdown[static_cast<std::size_t>(Category::host_sync)], us(8));
}

TEST(Simulator, AsksForEveryDistinctPriceOnce) {
  TwoRanks t;
  for (int i = 0; i < 10; ++i) {
    const CollectiveId c =
        t.b.add_collective(CollectiveOp::all_reduce, t.both, uniform_traffic(64), t.dispatch);
    t.b.add_member(t.comm0, c, 0);
    t.b.add_member(t.comm1, c, 1);
  }
  const TaskGraph graph = t.b.finalize();
  EXPECT_EQ(graph.shape_count(), 1u);
  const Timeline timeline = run(graph, t.costs);
  EXPECT_EQ(t.costs.collective_questions, 1);
  EXPECT_EQ(timeline.iteration(), us(100));
}

TEST(Simulator, AnEmptyGraphTakesNoTime) {
  EXPECT_EQ(run(with_ranks(1).finalize(), TestCosts()).iteration(), Time::kZero);
}

}  // namespace
}  // namespace moesim::sim
