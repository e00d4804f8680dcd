#include "sim/graph/task_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

using ::testing::ElementsAre;

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
