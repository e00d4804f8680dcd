#include "sim/run/timeline.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "sim/run/simulator.h"
#include "tests/sim/random_graph.h"
#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

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

}  // namespace
}  // namespace moesim::sim
