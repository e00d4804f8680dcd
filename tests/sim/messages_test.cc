#include "sim/run/messages.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

std::vector<RankId> ranks(std::size_t n) {
  std::vector<RankId> result;
  for (std::uint32_t i = 0; i < n; ++i) result.emplace_back(i);
  return result;
}

FlowPlan plan_of(Algorithm algorithm) {
  FlowPlan plan;
  plan.algorithm = algorithm;
  plan.step = us(2);
  plan.bandwidth = 50e9;
  return plan;
}

// W1 and W2 of the workloads have the closed form (N-1)(L + B/bw) on a flat network.
TEST(Messages, EqualStepsMatchTheClosedForm) {
  constexpr std::uint64_t kBytes = 1 << 20;
  for (const std::size_t n : {2u, 3u, 64u, 256u}) {
    const auto members = ranks(n);
    const Time expected = (us(2) + Time::from_seconds(kBytes / 50e9)) * static_cast<std::int64_t>(n - 1);
    std::vector<Time> ends;
    message_times({CollectiveOp::all_to_all, members, {.bytes = kBytes * n}}, plan_of(Algorithm::pairwise),
                  ends);
    EXPECT_EQ(*std::max_element(ends.begin(), ends.end()), expected);
    EXPECT_EQ(*std::min_element(ends.begin(), ends.end()), expected);
    message_times({CollectiveOp::all_gather, members, {.bytes = kBytes}}, plan_of(Algorithm::ring), ends);
    EXPECT_EQ(ends.front(), expected);
  }
  std::vector<Time> ends;
  message_times({CollectiveOp::all_to_all, ranks(64), {.bytes = kBytes * 64}}, plan_of(Algorithm::pairwise),
                ends);
  EXPECT_NEAR(ends[0].us(), 1447.2, 0.1);
}

// The rendezvous recurrence, written as recursion on (rank, step).
RC_GTEST_PROP(Messages, UnequalPairwiseStepsFollowTheRendezvousRecurrence, ()) {
  const auto n = *rc::gen::inRange<std::size_t>(2, 12);
  const auto rows =
      *rc::gen::container<std::vector<std::uint32_t>>(n * n, rc::gen::inRange<std::uint32_t>(0, 5000));
  const auto members = ranks(n);
  Traffic traffic{.kind = Traffic::Kind::matrix, .bytes = 1000, .rows = rows};
  traffic.transposed = *rc::gen::arbitrary<bool>();
  std::vector<Time> ends;
  message_times({CollectiveOp::all_to_all, members, traffic}, plan_of(Algorithm::pairwise), ends);

  const auto cost = [&](std::size_t from, std::size_t to) {
    return us(2) + Time::from_seconds(static_cast<double>(traffic.between(from, to, n)) / 50e9);
  };
  std::function<Time(std::size_t, std::size_t)> reached = [&](std::size_t rank, std::size_t step) {
    if (step == 0) return Time::kZero;
    const std::size_t to = (rank + step) % n, from = (rank + n - step) % n;
    const Time sent = std::max(reached(rank, step - 1), reached(to, step - 1)) + cost(rank, to);
    const Time received = std::max(reached(rank, step - 1), reached(from, step - 1)) + cost(from, rank);
    return std::max(sent, received);
  };
  if (n > 7) return;  // the recursion is exponential; larger ones are only run for crashes
  for (std::size_t i = 0; i < n; ++i) RC_ASSERT(std::abs(ends[i].ps() - reached(i, n - 1).ps()) <= 8);
}

TEST(Messages, UnequalPiecesTravelTheWholeRing) {
  const std::vector<std::uint64_t> pieces{0, 50'000, 100'000, 50'000};
  const auto members = ranks(4);
  std::vector<Time> ends;
  message_times({CollectiveOp::all_gather, members, {.kind = Traffic::Kind::pieces, .pieces = pieces}},
                plan_of(Algorithm::ring), ends);
  // In every step some message carries the largest piece, and steps synchronise neighbours.
  EXPECT_EQ(*std::max_element(ends.begin(), ends.end()), us(12));
}

TEST(Messages, AGroupOfOneTakesNoTime) {
  std::vector<Time> ends;
  message_times({CollectiveOp::all_reduce, ranks(1), {.bytes = 1000}}, plan_of(Algorithm::ring), ends);
  EXPECT_EQ(ends.front(), Time::kZero);
}

}  // namespace
}  // namespace moesim::sim
