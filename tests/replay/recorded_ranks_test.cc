// Overload factors that a recording's exchanges show, by hand.
#include "replay/run/recorded_ranks.h"

#include <gtest/gtest.h>

namespace moesim::replay {
namespace {

Call exchange(std::int64_t rows) {
  Call call;
  call.op = sim::CollectiveOp::all_to_all;
  call.group = GroupKind::expert;
  call.rows = rows;
  call.row_elements = 32;
  return call;
}

Step step_of(StepKind kind, int microbatch, std::vector<Call> calls = {}) {
  Step step;
  step.kind = kind;
  step.microbatch = microbatch;
  step.calls = std::move(calls);
  step.segments_us.assign(step.calls.size() + 1, 1);
  return step;
}

// A rank whose layers send 16 rows each and receive these, forward and backward of every microbatch in turn.
RankSteps plan(int rank, const std::vector<std::vector<std::int64_t>>& received) {
  RankSteps out;
  out.rank = rank;
  for (std::size_t m = 0; m < received.size(); ++m) {
    std::vector<Call> calls;
    for (const std::int64_t rows : received[m]) {
      calls.push_back(exchange(16));
      calls.push_back(exchange(rows));
    }
    out.steps.push_back(step_of(StepKind::forward, static_cast<int>(m), calls));
    out.steps.push_back(step_of(StepKind::backward, static_cast<int>(m)));
  }
  return out;
}

// Two ranks, one layer, two microbatches: 24 and 8 rows, then 16 and 16. f = 1.5, then 1.
TEST(RecordedOverload, IsOfTheRowsThatCombineBrings) {
  const std::vector<RankSteps> plans{plan(0, {{24}, {16}}), plan(1, {{8}, {16}})};
  const auto found = recorded_overload({.expert = 2}, plans, nullptr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->entries, 2);
  ASSERT_EQ(found->stages.size(), 1u);
  EXPECT_NEAR(found->stages[0].avg, 1.25, 1e-8);
  EXPECT_NEAR(found->stages[0].max, 1.5, 1e-8);
  EXPECT_NEAR(found->stages[0].max_cum, 1.5, 1e-8);  // one microbatch is held at a time
}

// Stage 1 has no layer with experts: it logs a mean of 0 and the pipeline's maximum.
TEST(RecordedOverload, AStageWithoutExpertsLogsZero) {
  std::vector<RankSteps> plans{plan(0, {{24, 20}}), plan(1, {{8, 12}}), plan(2, {{}}), plan(3, {{}})};
  const auto found = recorded_overload({.expert = 2, .pp = 2}, plans, nullptr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->entries, 2);
  EXPECT_NEAR(found->stages[0].avg, (1.5 + 1.25) / 2, 1e-8);
  EXPECT_EQ(found->stages[1].avg, 0);
  EXPECT_NEAR(found->stages[1].max, 1.5, 1e-8);
}

// Replicas of the experts are entries beside each other: their mean and their maximum count.
TEST(RecordedOverload, ReplicasAreAveraged) {
  const std::vector<RankSteps> plans{plan(0, {{24}}), plan(1, {{8}}), plan(2, {{16}}), plan(3, {{16}})};
  const auto found = recorded_overload({.expert = 2, .expert_dp = 2}, plans, nullptr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->replicas, 2);
  EXPECT_EQ(found->entries, 1);
  EXPECT_NEAR(found->stages[0].avg, 1.25, 1e-8);
  EXPECT_NEAR(found->stages[0].max, 1.5, 1e-8);
}

// Two expert ranks by two tensor ranks, 16 rows sent by each: 24 arrive at either member of the first expert
// rank and 8 at the second's, and the experts compute those of both members, 48 of a balanced 32.
TEST(RecordedOverload, TensorRanksComputeTheRowsOfTheirGroup) {
  for (const bool as_columns : {false, true}) {
    std::vector<RankSteps> plans;
    for (int rank = 0; rank < 4; ++rank) {
      const std::int64_t rows = rank < 2 ? 24 : 8;
      Call dispatch = exchange(16), combine = exchange(rows), reduction = exchange(2 * rows);
      reduction.op = sim::CollectiveOp::reduce_scatter;
      reduction.group = GroupKind::tp;
      // Or rows of both members travel, half the columns each.
      if (as_columns) {
        dispatch.rows *= 2, dispatch.row_elements /= 2;
        combine.rows *= 2, combine.row_elements /= 2;
      }
      RankSteps plan;
      plan.rank = rank;
      plan.steps = {step_of(StepKind::forward, 0, {dispatch, reduction, combine}),
                    step_of(StepKind::backward, 0)};
      plans.push_back(plan);
    }
    const auto found = recorded_overload({.tp = 2, .expert = 2}, plans, nullptr);
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->stages[0].avg, 1.5, 1e-8) << as_columns;
    EXPECT_NEAR(found->stages[0].max_cum, 1.5, 1e-8) << as_columns;
    // Megatron's log counts a row once, and the rows of both members as computed.
    EXPECT_NEAR(found->logged[0].avg, 3, 1e-8) << as_columns;
  }
}

// AllGather's calls do not show the routing; a given routing does.
TEST(RecordedOverload, AllGatherNeedsARouting) {
  Call combine;
  combine.op = sim::CollectiveOp::reduce_scatter;
  combine.group = GroupKind::tp_expert;
  std::vector<RankSteps> plans(2);
  for (int rank = 0; rank < 2; ++rank) {
    plans[static_cast<std::size_t>(rank)].rank = rank;
    plans[static_cast<std::size_t>(rank)].steps = {step_of(StepKind::forward, 0, {combine}),
                                                   step_of(StepKind::backward, 0)};
  }
  EXPECT_FALSE(recorded_overload({.expert = 2}, plans, nullptr));
  CleanJob clean;
  clean.topology = {.expert = 2};
  EXPECT_FALSE(recorded_overload({.expert = 2}, plans, &clean));
  // The received rows of another dispatcher's places serve as well: 20 and 12 of 16 each.
  clean.places[{0, 0, 0}].received_rows = 20;
  clean.places[{0, 0, 1}].received_rows = 12;
  EXPECT_NEAR(recorded_overload({.expert = 2}, plans, &clean)->stages[0].max, 20 / 16.0, 1e-8);
  clean.routing = models::Routing::from_counts(2, 2, 1, {16, 16}, {12, 4, 12, 4});
  const auto found = recorded_overload({.expert = 2}, plans, &clean);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->stages[0].max, 24 / 16.0, 1e-8);
}

}  // namespace
}  // namespace moesim::replay
