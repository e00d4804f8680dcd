#include "sim/run/events.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/network/fabric.h"
#include "sim/run/longest_path.h"
#include "tests/sim/random_graph.h"

namespace moesim::sim {
namespace {

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

}  // namespace
}  // namespace moesim::sim
