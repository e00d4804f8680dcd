#include "sim/run/streaming.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/run/simulator.h"
#include "tests/sim/random_graph.h"

namespace moesim::sim {
namespace {

// Streams a graph whose tasks are numbered in an order that streams and dependencies respect and whose
// collectives are added whole, as random_graph() makes them.
Timeline stream(const TaskGraph& graph, const TestCosts& costs) {
  StreamingRun run;
  for (std::size_t r = 0; r < graph.rank_count(); ++r) run.add_rank();
  for (std::uint32_t s = 0; s < graph.stream_count(); ++s)
    run.add_stream(graph.rank_of(StreamId(s)), graph.kind_of(StreamId(s)));
  std::vector<Point> after(graph.task_count());
  const auto ended = [&](TaskId task, const Point& point) {
    for (const TaskId next : graph.successors(task)) after[index(next)] = later(after[index(next)], point);
  };
  for (std::uint32_t i = 0; i < graph.task_count(); ++i) {
    const TaskId task(i);
    if (graph.kind(task) != TaskKind::member) {
      ended(task, run.add(graph.kind(task), graph.stream(task), graph.work_times()[index(graph.work(task))],
                          graph.label(task).category, after[i]));
      continue;
    }
    if (graph.member_index(task) != 0) continue;
    const CollectiveId collective = graph.collective(task);
    std::vector<StreamingRun::Member> members;
    std::vector<Time> durations;
    for (const TaskId member : graph.members(collective)) {
      members.push_back({graph.stream(member), after[index(member)]});
      durations.push_back(costs.duration(graph.shape(collective), durations.size()));
    }
    std::vector<Point> ends(members.size());
    run.add_collective(graph.shape(collective).op, members, durations, graph.label(task).category, ends);
    for (std::size_t m = 0; m < ends.size(); ++m) ended(graph.members(collective)[m], ends[m]);
  }
  return run.finish();
}

RC_GTEST_PROP(Streaming, EndsEveryRankWhenTheWholeGraphDoes, ()) {
  const TaskGraph graph = *random_graph();
  const TestCosts costs = member_dependent_costs();
  const Timeline streamed = stream(graph, costs), whole = run(graph, costs);
  RC_ASSERT(streamed.iteration() == whole.iteration());
  for (std::uint32_t r = 0; r < graph.rank_count(); ++r) {
    RC_ASSERT(streamed.rank(RankId(r)).end == whole.rank(RankId(r)).end);
    Time sum;
    for (const Time part : streamed.rank(RankId(r)).breakdown) sum += part;
    RC_ASSERT(sum == streamed.iteration());
    RC_ASSERT(streamed.rank(RankId(r)).busy == whole.rank(RankId(r)).busy);
  }
}

TEST(Streaming, BooksIdleTimeAsWhatItWaitsFor) {
  StreamingRun run;
  const RankId a = run.add_rank(), b = run.add_rank();
  const StreamId compute_a = run.add_stream(a, StreamKind::compute),
                 comm_a = run.add_stream(a, StreamKind::comm);
  const StreamId comm_b = run.add_stream(b, StreamKind::comm),
                 compute_b = run.add_stream(b, StreamKind::compute);
  const Point slow = run.add(TaskKind::compute, compute_b, us(30), Category::expert);
  const Point quick = run.add(TaskKind::compute, compute_a, us(10), Category::expert);
  const StreamingRun::Member members[] = {{comm_a, quick}, {comm_b, slow}};
  const Time duration = us(5);
  Point ends[2];
  run.add_collective(CollectiveOp::all_to_all, members, std::span(&duration, 1), Category::dispatch, ends);
  run.add(TaskKind::compute, compute_a, us(1), Category::unpermute, ends[0]);
  const Timeline timeline = run.finish();
  EXPECT_EQ(timeline.iteration(), us(36));
  EXPECT_EQ(timeline.rank(a).straggler_wait, us(20));
  EXPECT_EQ(timeline.rank(a).exposed_comm, us(5));
  EXPECT_EQ(timeline.rank(a).busy, us(11));
  EXPECT_EQ(timeline.rank(b).bubble, us(6));
}

}  // namespace
}  // namespace moesim::sim
