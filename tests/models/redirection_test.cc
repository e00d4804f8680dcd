// Least-loaded redirection: who computes which rows, and whose weights travel.
#include "models/routing/redirection.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/models/layers.h"

namespace moesim::models {
namespace {

using testing::Numbers;

// Rows per rank of a routing whose experts (or slots) are dealt out in equal blocks.
Numbers rows_of(const Routing& routing, int ranks) {
  Numbers rows(static_cast<std::size_t>(ranks), 0);
  const Numbers totals = routing.expert_totals();
  for (std::size_t e = 0; e < totals.size(); ++e)
    rows[e * static_cast<std::size_t>(ranks) / totals.size()] += totals[e];
  return rows;
}

// A log of 8 GPUs with 8 experts each (NousResearch/torchtitan, llep.md of its documents): experts 23, 18 and
// 1 of the counts that it prints; of the others only their sums per GPU are known, so that they stand in
// equal parts.
Routing published() {
  const Numbers loads{44579, 25139, 54981, 22581, 29444, 29702, 25659, 30059};
  Numbers totals(64, 0);
  const std::vector<std::pair<int, std::int64_t>> known{{1, 8887}, {18, 11874}, {23, 13341}};
  for (const auto& [expert, rows] : known) totals[static_cast<std::size_t>(expert)] = rows;
  for (std::size_t d = 0; d < 8; ++d) {
    std::int64_t left = loads[d];
    Numbers open;
    for (std::size_t e = 8 * d; e < 8 * d + 8; ++e) {
      left -= totals[e];
      if (totals[e] == 0) open.push_back(static_cast<std::int64_t>(e));
    }
    for (std::size_t i = 0; i < open.size(); ++i)
      totals[static_cast<std::size_t>(open[i])] =
          left / static_cast<std::int64_t>(open.size()) +
          (static_cast<std::int64_t>(i) < left % static_cast<std::int64_t>(open.size()) ? 1 : 0);
  }
  Numbers counts(8 * 64), tokens(8, 32768);
  for (std::size_t e = 0; e < 64; ++e)
    for (std::size_t r = 0; r < 8; ++r)
      counts[r * 64 + e] = totals[e] / 8 + (static_cast<std::int64_t>(r) < totals[e] % 8 ? 1 : 0);
  return Routing::from_counts(8, 64, 8, tokens, counts);
}

TEST(LeastLoaded, MovesWhatTheLogMoves) {
  const Redirection moved = least_loaded(published(), 8, {1.1, 1, 0});
  EXPECT_EQ(rows_of(moved.routing, 8), (Numbers{36044, 30735, 36044, 35922, 29444, 29702, 34194, 30059}));
  // Expert 23 goes from GPU 2 to 3, a part of 18 from 2 to 1, a part of 1 from 0 to 6.
  Numbers copies(64, 0);
  copies[2 * 8 + 3] = copies[2 * 8 + 1] = copies[0 * 8 + 6] = 1;
  EXPECT_EQ(moved.copies, copies);
  EXPECT_EQ(moved.foreign, (Numbers{0, 1, 0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(moved.slots, 9);
  const Numbers totals = moved.routing.expert_totals();
  EXPECT_EQ(totals[3 * 9 + 8], 13341);         // all of expert 23
  EXPECT_EQ(totals[2 * 9 + 18 % 8], 6278);     // what stays of expert 18
  EXPECT_EQ(totals[1 * 9 + 8], 11874 - 6278);  // and what goes
  EXPECT_EQ(totals[0 * 9 + 1], 352);
  EXPECT_EQ(totals[6 * 9 + 8], 8887 - 352);
}

TEST(LeastLoaded, LeavesWhatIsTooSmallOrBalancedEnough) {
  // 5,596 and 8,535 rows are no longer worth a helper; 13,341 are.
  const Redirection coarse = least_loaded(published(), 8, {1.1, 10000, 0});
  EXPECT_EQ(coarse.foreign, (Numbers{0, 0, 0, 1, 0, 0, 0, 0}));
  // The busiest has 1.68 balanced shares.
  const Redirection idle = least_loaded(published(), 8, {1.1, 1, 1.7});
  EXPECT_EQ(idle.slots, 8);
  EXPECT_EQ(idle.routing.expert_totals(), published().expert_totals());
}

// Nothing is lost, every rank sends what it sent, and no rank is above the limit that was not forced to be.
RC_GTEST_PROP(LeastLoaded, KeepsEveryRow, ()) {
  const int ranks = *rc::gen::inRange(2, 9), local = *rc::gen::inRange(1, 5);
  const int topk = *rc::gen::inRange(1, ranks * local + 1);
  RoutingSpec spec = RoutingSpec::parse(*rc::gen::element<std::string>("zipf:1.2", "uniform", "hot:0.8"));
  const Routing before = make_routing(spec, ranks, *rc::gen::inRange(1, 300), ranks * local, topk,
                                      *rc::gen::inRange(1, 1 << 30));
  const double limit = *rc::gen::element(1.0, 1.1, 2.0);
  const Redirection moved = least_loaded(before, ranks, {limit, 1, 0});
  for (int r = 0; r < ranks; ++r) RC_ASSERT(moved.routing.rows(r) == before.rows(r));
  const Numbers a = rows_of(before, ranks), b = rows_of(moved.routing, ranks);
  const std::int64_t all = std::accumulate(a.begin(), a.end(), std::int64_t{0});
  RC_ASSERT(std::accumulate(b.begin(), b.end(), std::int64_t{0}) == all);
  // Rounding down leaves less than a row of every rank without a place.
  const auto most = static_cast<std::int64_t>(limit * static_cast<double>(all) / ranks);
  RC_ASSERT(*std::max_element(b.begin(), b.end()) <= most + ranks);
  for (std::size_t d = 0; d < a.size(); ++d) RC_ASSERT(moved.copies[d * a.size() + d] == 0);
}

TEST(LeastLoaded, TokensKeepTheirExperts) {
  const Routing before = testing::example_1();  // choices are known
  const Redirection moved = least_loaded(before, 4, {1.0, 1, 0});
  ASSERT_TRUE(moved.routing.has_choices());
  // 30 14 11 9 rows on two experts each: all ranks come to 16.
  EXPECT_EQ(rows_of(moved.routing, 4), Numbers(4, 16));
  // Expert 0 (19 rows) goes first: 16 - 11 = 5 stay beside expert 1's 11; 7 go to rank 3, 7 to ... the least
  // loaded.
  const Numbers totals = moved.routing.expert_totals();
  EXPECT_EQ(totals[0], 5);
  EXPECT_EQ(totals[1], 11);
}

}  // namespace
}  // namespace moesim::models
