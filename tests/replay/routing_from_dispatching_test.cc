// Routings from what was recorded: files of dispatching, and sizes of exchanges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "replay/recording/recorded_routing.h"
#include "tests/message_of.h"
#include "traces/dispatching.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

traces::Dispatching file_of(std::int64_t ep, std::int64_t experts, traces::DispatchingTable table) {
  traces::Dispatching file;
  file.ep = ep;
  file.experts = experts;
  file.entries.push_back({std::nullopt, std::nullopt, std::move(table)});
  return file;
}

// Two ranks, four experts, three tokens of top-2 each.
traces::DispatchingTable sent() {
  traces::DispatchingTable table;
  table.sent = {3, 2, 1, 0, 1, 1, 1, 3};
  table.received = {4, 3, 2, 3};
  return table;
}

TEST(RoutingFromDispatching, TokensAreRowsOverTopK) {
  const LoadedRouting loaded = routing_from_dispatching(file_of(2, 4, sent()), "d.json", 2, 1, 4, 2);
  EXPECT_THAT(loaded.warnings, ElementsAre());
  EXPECT_THAT(loaded.routing.counts(0), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(loaded.routing.counts(1), ElementsAre(1, 1, 1, 3));
  EXPECT_EQ(loaded.routing.tokens(0), 3);
  // Five rows of top-2 are of three tokens, one of which was dropped.
  traces::DispatchingTable dropped = sent();
  dropped.sent[0] = 2;
  const LoadedRouting warned = routing_from_dispatching(file_of(2, 4, dropped), "d.json", 2, 1, 4, 2);
  EXPECT_EQ(warned.routing.tokens(0), 3);
  EXPECT_THAT(warned.warnings,
              ElementsAre(HasSubstr("d.json: rank 0 sends 5 rows, not a multiple of top-2")));
}

TEST(RoutingFromDispatching, ChoicesAreTakenAsTheyAre) {
  traces::DispatchingTable table = sent();
  table.topk = {{3, 2, {0, 1, 0, 1, 0, 2}}, {3, 2, {0, 3, 1, 3, 2, 3}}};
  const LoadedRouting loaded = routing_from_dispatching(file_of(2, 4, table), "d.json", 2, 1, 4, 2);
  EXPECT_TRUE(loaded.routing.has_choices());
  EXPECT_THAT(loaded.routing.choices(1), ElementsAre(0, 3, 1, 3, 2, 3));
  EXPECT_THAT(loaded.routing.counts(0), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(message_of([&] { routing_from_dispatching(file_of(2, 4, table), "d.json", 2, 1, 4, 1); }),
              HasSubstr("d.json: found top-2 choices, expected top-1"));
  EXPECT_EQ(routing_from_dispatching(file_of(2, 4, table), "d.json", 2, 1, 4, 0).routing.topk(), 2);
}

TEST(RoutingFromDispatching, RanksOfAnEtpGroupRouteAlike) {
  const LoadedRouting loaded = routing_from_dispatching(file_of(2, 4, sent()), "d.json", 4, 2, 4, 2);
  EXPECT_THAT(loaded.warnings, ElementsAre(HasSubstr("2 ranks for etp 2 x ep 2")));
  for (int r = 0; r < 4; ++r) EXPECT_EQ(loaded.routing.count(r, 0), r < 2 ? 3 : 1) << r;
}

// Ranks are dealt what was received as evenly as whole rows allow, expert by expert and in total.
RC_GTEST_PROP(RoutingFromDispatching, ReceivedRowsAreSpreadEvenly, ()) {
  const int ranks = *rc::gen::inRange(1, 6), experts = ranks * *rc::gen::inRange(1, 4);
  traces::DispatchingTable table;
  std::int64_t total = 0;
  for (int e = 0; e < experts; ++e) {
    table.received.push_back(*rc::gen::inRange<std::int64_t>(0, 50));
    total += table.received.back();
  }
  const LoadedRouting loaded =
      routing_from_dispatching(file_of(ranks, experts, table), "d.json", ranks, 1, experts, 1);
  RC_ASSERT(loaded.warnings.at(0).find("received counts only") != std::string::npos);
  RC_ASSERT(loaded.routing.expert_totals() == table.received);
  for (int r = 0; r < ranks; ++r) {
    for (int e = 0; e < experts; ++e)
      RC_ASSERT(std::abs(loaded.routing.count(r, e) * ranks - table.received[static_cast<std::size_t>(e)]) <
                ranks);
    RC_ASSERT(std::abs(loaded.routing.rows(r) * ranks - total) < ranks);
  }
}

// Loads of experts are shares: of any number of ranks and tokens, every rank sends all its rows, and experts
// keep their popularity as far as tokens allow.
RC_GTEST_PROP(RoutingFromDispatching, LoadsBecomeRoutingOfAnySize, ()) {
  const auto ranks = *rc::gen::inRange(1, 9);
  const auto experts = *rc::gen::inRange<std::int64_t>(2, 20);
  const auto topk = *rc::gen::inRange<std::int64_t>(1, experts + 1);
  const auto tokens = *rc::gen::inRange<std::int64_t>(1, 500);
  traces::Dispatching file;
  file.ep = 1;
  file.loads = true;
  file.experts = experts;
  file.entries.push_back({});
  for (std::int64_t e = 0; e < experts; ++e)
    file.entries[0].table.received.push_back(*rc::gen::inRange<std::int64_t>(0, 1000));
  file.entries[0].table.received[0] += 1;
  const models::Routing routing =
      routing_from_dispatching(file, "loads.json", ranks, 1, experts, topk, 0, 0, {tokens, true}).routing;
  const auto& loads = file.entries[0].table.received;
  const std::int64_t all = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  const auto totals = routing.expert_totals();
  for (int r = 0; r < ranks; ++r) {
    RC_ASSERT(routing.tokens(r) == tokens);
    RC_ASSERT(routing.rows(r) == tokens * topk);
  }
  for (std::size_t e = 0; e < loads.size(); ++e) {
    const double wanted =
        static_cast<double>(ranks * tokens * topk) * static_cast<double>(loads[e]) / static_cast<double>(all);
    // No expert was popular beyond all tokens: then shares are kept to the row.
    const bool capped = static_cast<double>(*std::ranges::max_element(loads)) * static_cast<double>(topk) >
                        static_cast<double>(all);
    if (!capped) RC_ASSERT(std::abs(static_cast<double>(totals[e]) - wanted) < 2.0);
  }
}

// Rows sum to tokens x top-k x ranks: 4 x 40 x 3, of which three ranks have 379.
TEST(RoutingFromDispatching, AMissingRankReceivesTheRest) {
  const auto file_with = [](const std::string& settings, const std::string& first_rank) {
    return traces::parse_dispatching("{" + settings +
                                         R"("expert_model_parallel_size": 4, "num_moe_experts": 8,
    "per_rank_dispatching_results": {
    "0": {"tokens_per_local_expert": [100, 83])" +
                                         first_rank + R"(},
    "1": {"tokens_per_local_expert": [61, 61]}, "3": {"tokens_per_local_expert": [74, 0]}}})",
                                     "d.json");
  };
  const std::string chosen = R"(, "num_local_tokens_per_expert": [20, 20, 20, 20, 30, 10, 0, 0])";
  for (const std::string settings : {"", R"("is_scaling_mode": true, )"})
    for (const std::string& histogram : {std::string(), chosen}) {
      const traces::Dispatching file = file_with(settings, histogram);
      const LoadedRouting loaded = routing_from_dispatching(file, "d.json", 4, 1, 8, 3, 0, 0, {40, true});
      EXPECT_TRUE(loaded.routing.equal_tokens());  // as AllGather dispatchers require
      EXPECT_EQ(loaded.routing.max_tokens(), 40);
      const std::vector<std::int64_t> rows = loaded.routing.expert_totals();
      EXPECT_THAT(std::vector(rows.begin(), rows.begin() + 4), ElementsAre(100, 83, 61, 61));
      EXPECT_EQ(rows[4] + rows[5], 101);
      // Split as the histogram of the recorded rank, 30 to 10, or evenly.
      EXPECT_EQ(rows[4], histogram.empty() ? 50 : 75);
      EXPECT_THAT(loaded.warnings,
                  Contains(HasSubstr("d.json: EP rank 2 without an entry: the rest of 480 rows")));
      EXPECT_THAT(message_of([&] {
                    routing_from_dispatching(file, "d.json", 4, 1, 8, 3, 0, 0, {30, true});
                  }),
                  HasSubstr("found 379 rows received by the ranks with an entry, expected at most 360"));
      EXPECT_EQ(traces::parse_dispatching(traces::write_dispatching(file), "written.json"), file);
    }
}

TEST(RoutingFromDispatching, RefusesAFileOfAnotherJob) {
  traces::Dispatching file = file_of(2, 4, sent());
  EXPECT_THAT(message_of([&] { routing_from_dispatching(file, "d.json", 2, 1, 8, 2); }),
              HasSubstr("found routing of 4 experts, expected the model's 8 experts"));
  EXPECT_THAT(message_of([&] { routing_from_dispatching(file, "d.json", 4, 1, 4, 2); }),
              HasSubstr("found routing of 2 ranks, expected 4 ranks"));
  EXPECT_THAT(message_of([&] { routing_from_dispatching(file, "d.json", 8, 2, 4, 2); }),
              HasSubstr("8 ranks"));
  file.entries.front().layer = 1;
  EXPECT_THAT(message_of([&] { routing_from_dispatching(file, "d.json", 2, 1, 4, 2, 0, 3); }),
              HasSubstr("found nothing for layer 0, microbatch 3"));
  EXPECT_EQ(routing_from_dispatching(file, "d.json", 2, 1, 4, 2, 1, 3).routing.ranks(), 2);
}

// The split matrix: margins exact, spread as evenly as whole rows allow.

// Column sums that add up to the rows sent: the rows are dealt out to random ranks with random favourites.
std::vector<std::int64_t> deal(std::int64_t total, std::size_t n) {
  std::vector<std::int64_t> weights;
  for (std::size_t j = 0; j < n; ++j) weights.push_back(*rc::gen::inRange<std::int64_t>(0, 50));
  const std::int64_t sum = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  std::vector<std::int64_t> out(n, 0);
  if (sum == 0) {
    out[0] = total;
    return out;
  }
  std::int64_t left = total;
  for (std::size_t j = 0; j < n; ++j) left -= out[j] = total * weights[j] / sum;
  out[*rc::gen::inRange<std::size_t>(0, n)] += left;
  return out;
}

RC_GTEST_PROP(RoutingRecovery, MarginsAreExactAndRowsSpreadLikeTheColumns, ()) {
  const auto n = *rc::gen::inRange<std::size_t>(1, 33);
  std::vector<std::int64_t> sent;
  for (std::size_t i = 0; i < n; ++i) sent.push_back(*rc::gen::inRange<std::int64_t>(0, 5000));
  const std::int64_t total = std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
  const std::vector<std::int64_t> received = deal(total, n);
  const auto rows = recover_split_matrix(sent, received);
  RC_ASSERT(rows.size() == n * n);
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t row = 0, column = 0;
    for (std::size_t j = 0; j < n; ++j) {
      row += rows[i * n + j];
      column += rows[j * n + i];
      const double independent =
          total == 0
              ? 0.0
              : static_cast<double>(sent[i]) * static_cast<double>(received[j]) / static_cast<double>(total);
      // Rounding of each row, and what the rows before left over for it.
      RC_ASSERT(std::abs(rows[i * n + j] - independent) <= static_cast<double>(n) + 1);
    }
    RC_ASSERT(row == sent[i]);
    RC_ASSERT(column == received[i]);
  }
}

TEST(RoutingRecovery, DividesEvenly) {
  EXPECT_THAT(recover_split_matrix(std::vector<std::int64_t>{8, 8}, std::vector<std::int64_t>{12, 4}),
              ElementsAre(6, 2, 6, 2));
  EXPECT_THAT(recover_split_matrix(std::vector<std::int64_t>{6, 2}, std::vector<std::int64_t>{0, 8}),
              ElementsAre(0, 6, 0, 2));
  EXPECT_THAT(recover_split_matrix(std::vector<std::int64_t>{0, 0}, std::vector<std::int64_t>{0, 0}),
              ElementsAre(0, 0, 0, 0));
}

TEST(RoutingRecovery, RefusesWhatDoesNotAddUp) {
  EXPECT_THROW(recover_split_matrix(std::vector<std::int64_t>{8, 8}, std::vector<std::int64_t>{12, 5}),
               InputError);
  EXPECT_THROW(recover_split_matrix(std::vector<std::int64_t>{8}, std::vector<std::int64_t>{4, 4}),
               InputError);
  const std::vector<std::int64_t> huge{std::int64_t{1} << 31};
  EXPECT_THROW(recover_split_matrix(huge, huge), InputError);
}

}  // namespace
}  // namespace moesim::replay
