// The simulator: graphs of tasks, events, times and timelines.
#include "sim/run/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "sim/graph/task_graph.h"
#include "sim/network/fabric.h"
#include "sim/run/events.h"
#include "sim/run/timeline.h"
#include "tests/sim/random_graph.h"
#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

using ::testing::ElementsAre;

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

RC_GTEST_PROP(Timeline, BreakdownOfEveryRankAddsUpToTheIteration, ()) {
  const TaskGraph graph = *random_graph();
  const Timeline timeline = run(graph, member_dependent_costs());
  for (const RankSummary& rank : timeline.ranks()) {
    Time sum;
    for (const Time part : rank.breakdown) sum += part;
    RC_ASSERT(sum == timeline.iteration());
    RC_ASSERT(rank.busy + rank.exposed_comm + rank.straggler_wait + rank.bubble + rank.host ==
              timeline.iteration());
  }
}

RC_GTEST_PROP(Timeline, CriticalPathCoversTheIterationWithoutGaps, ()) {
  const TaskGraph graph = *random_graph();
  const Timeline timeline = run(graph, member_dependent_costs());
  Time now;
  for (const PathStep& step : timeline.critical_path(graph)) {
    RC_ASSERT(step.from == now);
    RC_ASSERT(step.to >= step.from);
    now = step.to;
  }
  RC_ASSERT(now == timeline.iteration());
}

RC_GTEST_PROP(Timeline, EveryTaskStartsWhenItsCauseEnds, ()) {
  const TaskGraph graph = *random_graph();
  const Timeline timeline = run(graph, member_dependent_costs());
  for (std::uint32_t i = 0; i < graph.task_count(); ++i) {
    const TaskId task(i);
    if (timeline.cause(task) == Cause::none) {
      RC_ASSERT(timeline.start(task) == Time::kZero);
    } else {
      RC_ASSERT(timeline.start(task) == timeline.end(timeline.cause_task(task)));
    }
    for (const TaskId after : graph.successors(task)) RC_ASSERT(timeline.start(after) >= timeline.end(task));
  }
}

TEST(Timeline, WaitingForTheOtherSideOfASendIsBubble) {
  TaskGraphBuilder b;
  b.add_ranks(2);
  const StreamId s0 = b.add_stream(RankId(0), StreamKind::compute),
                 s1 = b.add_stream(RankId(1), StreamKind::compute);
  const LabelId l = b.add_label("p2p", Category::p2p), gemm = b.add_label("gemm", Category::attention);
  b.add_compute(s0, us(20), gemm);
  const GroupId g = b.add_group(std::vector<RankId>{RankId(0), RankId(1)});
  const CollectiveId c = b.add_collective(CollectiveOp::send_recv, g, uniform_traffic(1), l);
  b.add_member(s0, c, 0);
  b.add_member(s1, c, 1);
  b.add_compute(s1, us(5), gemm);
  const Timeline timeline = run(b.finalize(), TestCosts());
  EXPECT_EQ(timeline.critical_rank(), RankId(1));
  const Breakdown& parts = timeline.breakdown();
  EXPECT_EQ(parts[static_cast<std::size_t>(Category::bubble)], us(20));
  EXPECT_EQ(parts[static_cast<std::size_t>(Category::p2p)], us(10));
  EXPECT_EQ(parts[static_cast<std::size_t>(Category::attention)], us(5));
}

RC_GTEST_PROP(Events, GiveTheTimesAndCausesOfTheSweepWhereNothingOverlaps, ()) {
  const TaskGraph graph = *random_graph();
  const Prices prices = price(graph, member_dependent_costs(), true);
  const TaskTimes swept = longest_path(graph, prices);
  const TaskTimes timed = run_events(graph, prices, {}).times;
  RC_ASSERT(swept.start == timed.start);
  RC_ASSERT(swept.end == timed.end);
  RC_ASSERT(swept.cause == timed.cause);
  RC_ASSERT(swept.cause_task == timed.cause_task);
  RC_ASSERT(swept.last_arrival == timed.last_arrival);
}

RC_GTEST_PROP(Events, OverlapNeverMakesARunFasterAndKeepsTheBreakdown, ()) {
  const TaskGraph graph = *random_graph();
  TestCosts costs = member_dependent_costs();
  const Time alone = run(graph, costs).iteration();
  costs.slowdown = {1.3, 1.7};
  const Timeline slowed = run(graph, costs);
  RC_ASSERT(slowed.iteration() >= alone);
  RC_ASSERT(slowed.iteration().us() <= alone.us() * 1.7 + 0.001);
  for (const RankSummary& rank : slowed.ranks()) {
    Time sum;
    for (const Time part : rank.breakdown) sum += part;
    RC_ASSERT(sum == slowed.iteration());
  }
}

struct OverlappingPair {
  TaskGraphBuilder b;
  TaskId gemm;
  TaskId member;

  // One rank computes for 100 us while both are in a collective of 40 us.
  explicit OverlappingPair(Time starts_at) {
    b.add_ranks(2);
    const StreamId compute = b.add_stream(RankId(0), StreamKind::compute);
    const StreamId comm0 = b.add_stream(RankId(0), StreamKind::comm),
                   comm1 = b.add_stream(RankId(1), StreamKind::comm);
    const LabelId l = b.add_label("x", Category::expert);
    gemm = b.add_compute(compute, us(100), l);
    b.add_delay(comm1, starts_at, l);
    const GroupId g = b.add_group(std::vector<RankId>{RankId(0), RankId(1)});
    const CollectiveId c = b.add_collective(CollectiveOp::all_gather, g, uniform_traffic(4'000'000), l);
    member = b.add_member(comm0, c, 0);
    b.add_member(comm1, c, 1);
  }
};

TEST(Events, ComputeAndCommunicationSlowEachOtherWhileBothRun) {
  OverlappingPair job(us(20));
  const TaskGraph graph = job.b.finalize();
  TestCosts costs;
  costs.duration = [](const CollectiveShape&, std::size_t) { return us(40); };
  costs.slowdown = {1.25, 1.5};
  const Timeline timeline = run(graph, costs);
  // The transfer takes 40 x 1.5 = 60 us next to the GEMM, which does 60 / 1.25 = 48 us of work meanwhile.
  EXPECT_EQ(timeline.end(job.member), us(80));
  EXPECT_EQ(timeline.end(job.gemm), us(20 + 60 + 32));
}

TEST(Events, SlowedFlowsTakeLessOfTheirLinks) {
  OverlappingPair job(us(20));
  const TaskGraph graph = job.b.finalize();
  Fabric fabric;
  const std::uint32_t hub = fabric.add_node(NodeKind::nvswitch, "switch");
  for (int i = 0; i < 2; ++i) fabric.add_cable(fabric.add_gpu("g"), hub, 100e9, Time::kZero);
  TestCosts costs;
  costs.slowdown = {1.25, 1.5};
  RunOptions options;
  options.timing = Timing::flow;
  options.fabric = &fabric;
  const Timeline timeline = run(graph, costs, options);
  EXPECT_EQ(timeline.end(job.member), us(80));
  EXPECT_EQ(timeline.end(job.gemm), us(112));
  ASSERT_EQ(timeline.links().size(), 4u);
  EXPECT_NEAR(timeline.links()[0].bytes, 4e6, 1);
  EXPECT_NEAR(timeline.links()[0].utilisation, 4e6 / (100e9 * 112e-6), 1e-6);
}

TEST(TaskGraph, InternsLabelsGroupsAndShapes) {
  TaskGraphBuilder b;
  b.add_ranks(3);
  const std::vector<RankId> two{RankId(0), RankId(2)};
  EXPECT_EQ(b.add_group(two), b.add_group(two));
  EXPECT_EQ(b.add_label("a", Category::expert), b.add_label("a", Category::expert));
  EXPECT_NE(b.add_label("a", Category::expert), b.add_label("a", Category::router));
  const GroupId g = b.add_group(two);
  const LabelId l = b.add_label("x", Category::combine);
  const MatrixId m = b.add_matrix(2, std::vector<std::uint32_t>{1, 2, 3, 4});
  const CollectiveId forth = b.add_collective(CollectiveOp::all_to_all, g, matrix_traffic(m, 10), l);
  const CollectiveId back = b.add_collective(CollectiveOp::all_to_all, g, matrix_traffic(m, 10, true), l);
  const CollectiveId again = b.add_collective(CollectiveOp::all_to_all, g, matrix_traffic(m, 10), l);
  const TaskGraph graph = b.finalize();
  EXPECT_EQ(graph.shape_count(), 2u);
  EXPECT_EQ(graph.shape_index(forth), graph.shape_index(again));
  EXPECT_EQ(graph.shape(forth).traffic.between(0, 1, 2), 20u);
  EXPECT_EQ(graph.shape(back).traffic.between(0, 1, 2), 30u);
}

TEST(TaskGraph, KeepsDependenciesInTheOrderTheyWereAdded) {
  TaskGraphBuilder b = with_ranks(1);
  const RankId r(0);
  const LabelId l = b.add_label("x", Category::other);
  const TaskId a = b.add_compute(b.add_stream(r, StreamKind::compute), us(1), l);
  const TaskId c = b.add_compute(b.add_stream(r, StreamKind::copy), us(1), l);
  const StreamId s = b.add_stream(r, StreamKind::comm);
  const TaskId d = b.add_compute(s, us(1), l), e = b.add_compute(s, us(1), l);
  b.add_dependency(a, e);
  b.add_dependency(a, d);
  b.add_dependency(c, e);
  b.set_origin(d, 42);
  const TaskGraph graph = b.finalize();
  EXPECT_THAT(graph.successors(a), ElementsAre(e, d));
  EXPECT_EQ(graph.predecessor_count(e), 3u);
  EXPECT_EQ(graph.next_on_stream(d), e);
  EXPECT_EQ(graph.origin(d), 42u);
  EXPECT_EQ(graph.origin(a), LabelId::kNone);
  EXPECT_EQ(b.task_count(), 0u);
}

TEST(TaskGraphDeathTest, RefusesWhatDoesNotFitTogether) {
  TaskGraphBuilder b;
  b.add_ranks(2);
  const StreamId s = b.add_stream(RankId(0), StreamKind::comm);
  const LabelId l = b.add_label("x", Category::other);
  const GroupId g = b.add_group(std::vector<RankId>{RankId(0), RankId(1)});
  const CollectiveId c = b.add_collective(CollectiveOp::all_gather, g, uniform_traffic(1), l);
  EXPECT_DEATH(b.add_member(s, c, 1), "stream of its rank");
  EXPECT_DEATH(b.add_compute(s, us(-1), l), "negative");
  EXPECT_DEATH(b.add_group(std::vector<RankId>{RankId(0), RankId(0)}), "once");
  EXPECT_DEATH(b.add_matrix(2, std::vector<std::uint32_t>{1}), "members");
}

}  // namespace
}  // namespace moesim::sim
