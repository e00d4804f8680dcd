// Routing: what is drawn, kept, placed, redirected and overloaded.
#include "models/routing/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/dispatchers/parts/balanced.h"
#include "models/routing/expert_placement.h"
#include "models/routing/overload.h"
#include "models/routing/routing_cache.h"
#include "tests/message_of.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Rows = std::vector<std::int64_t>;
using moesim::testing::message_of;

TEST(Routing, GroupLimitBoundsNodes) {
  // DeepSeek-V3: 8 groups of 32 experts, a token uses 4 of them.
  Routing routing = make_routing(RoutingSpec(), 64, 4096, 256, 8, 1);
  const auto nodes = [&] {
    const auto D = routing.dedup_matrix(8);
    return static_cast<double>(std::accumulate(D.begin(), D.begin() + 8, std::int64_t{0})) / 4096;
  };
  EXPECT_NEAR(nodes(), 5.295, 0.01);  // C(224,8)/C(256,8)
  routing.set_group_limit(8, 4);
  EXPECT_LE(nodes(), 4);
  EXPECT_NEAR(nodes(), 4 * (1 - 0.0898), 0.05);  // C(96,8)/C(128,8)
}

// docs/spec.md 6.3, example 1.
TEST(Routing, CountsSplitsAndCopiesOfExample1) {
  const Routing routing = example_1();
  const Numbers n{5, 3, 2, 2, 1, 1, 1, 1, 5, 3, 3, 1, 1, 1, 1, 1,
                  4, 2, 2, 1, 2, 2, 2, 1, 5, 3, 2, 1, 2, 1, 1, 1};
  for (int r = 0; r < 4; ++r)
    for (int e = 0; e < 8; ++e) EXPECT_EQ(routing.count(r, e), n[r * 8 + e]);
  EXPECT_EQ(routing.expert_totals(), (Numbers{19, 11, 9, 5, 6, 5, 5, 4}));
  EXPECT_EQ(routing.split_matrix(4), (Numbers{8, 4, 2, 2, 8, 4, 2, 2, 6, 3, 4, 3, 8, 3, 3, 2}));
  EXPECT_EQ(routing.dedup_matrix(4), (Numbers{7, 4, 2, 2, 6, 3, 1, 2, 4, 3, 4, 3, 6, 3, 3, 2}));
  EXPECT_DOUBLE_EQ(routing.rank_imbalance(4), 1.875);
}

// Example 3: both experts of a token are on the same rank.
TEST(Routing, RoundRobinIsBalancedAndItsCopiesAreKnown) {
  const Routing routing = example_3();
  EXPECT_EQ(routing.split_matrix(4), Numbers(16, 4));
  EXPECT_EQ(routing.dedup_matrix(4), Numbers(16, 2));
}

TEST(Routing, CapacityDropsByPosition) {
  const Routing routing = Routing::from_choices(2, 1, {{0, 0, 1, 0}});
  const Routing limited = routing.limited_to({2});
  EXPECT_EQ(limited.count(0, 0), 2);
  EXPECT_THAT(limited.choices(0), ::testing::ElementsAre(0, 0, 1, -1));
  EXPECT_EQ(routing.padded_to(4).count(0, 1), 4);
}

TEST(Routing, RejectsImpossibleCounts) {
  EXPECT_THROW(Routing::from_counts(1, 2, 1, {4}, {5, 0}), InputError);
  EXPECT_THROW(Routing::from_counts(1, 2, 1, {4}, {-1, 0}), InputError);
  EXPECT_THROW(Routing::from_counts(1, 2, 1, {4}, {4, 4}), InputError);
  EXPECT_THROW(Routing::from_choices(2, 2, {{0, 0}}), InputError);
  EXPECT_THROW(Routing::from_choices(2, 2, {{0, 2}}), InputError);
}

// Named routings of models/routing/routing_draw.cc: their names, and what they draw.

TEST(MakeRouting, EveryNamedRoutingConservesTokens) {
  for (const std::string& name : RoutingSpec::names())
    for (const int topk : {1, 2, 8}) {
      const Routing routing = make_routing(RoutingSpec::parse(name), 4, 1000, 16, topk, 3);
      for (int r = 0; r < 4; ++r) {
        EXPECT_EQ(routing.rows(r), 1000 * topk) << name;
        for (int e = 0; e < 16; ++e) EXPECT_LE(routing.count(r, e), 1000) << name;
      }
    }
}

TEST(MakeRouting, SeedsReproduceAndDiffer) {
  const RoutingSpec spec = RoutingSpec::parse("zipf:1.2");
  const auto counts = [&](std::uint64_t seed, int layer, int microbatch) {
    return make_routing(spec, 2, 4096, 8, 2, seed, layer, microbatch).expert_totals();
  };
  EXPECT_EQ(counts(1, 0, 0), counts(1, 0, 0));
  EXPECT_NE(counts(1, 0, 0), counts(2, 0, 0));
  EXPECT_NE(counts(1, 0, 0), counts(1, 1, 0));
  EXPECT_NE(counts(1, 0, 0), counts(1, 0, 1));
}

TEST(MakeRouting, MicrobatchesOfALayerShareItsPopularity) {
  const RoutingSpec spec = RoutingSpec::parse("zipf:1.2");
  const auto a = make_routing(spec, 2, 4096, 8, 2, 1, 0, 0).expert_totals();
  const auto b = make_routing(spec, 2, 4096, 8, 2, 1, 0, 1).expert_totals();
  for (int e = 0; e < 8; ++e) EXPECT_NEAR(static_cast<double>(a[e]), static_cast<double>(b[e]), 500);
}

TEST(MakeRouting, GiniIsHit) {
  for (const double target : {0.1, 0.25, 0.4})
    EXPECT_NEAR(make_routing(RoutingSpec::parse("gini:" + std::to_string(target)), 8, 65536, 64, 4, 1).gini(),
                target, 0.01);
}

TEST(MakeRouting, BalancedIsEvenOverTheGroup) {
  const auto totals = make_routing(RoutingSpec(), 4, 10, 8, 2, 1).expert_totals();
  for (const std::int64_t n : totals) EXPECT_EQ(n, 10);
}

TEST(RoutingSpec, NamesWhatIsWrong) {
  const auto error = [](const std::string& text) -> std::string {
    return message_of([&] { RoutingSpec::parse(text); });
  };
  EXPECT_THAT(error("zipff:1"), HasSubstr("did you mean 'zipf'"));
  EXPECT_THAT(error("zipf:x"), HasSubstr("expected a number"));
  EXPECT_THAT(error("gini:1.5"), HasSubstr("0.99"));
  EXPECT_THAT(error("balanced:2"), HasSubstr("no parameter"));
  EXPECT_EQ(RoutingSpec::parse("some/file").kind, RoutingSpec::Kind::kFile);
  EXPECT_EQ(RoutingSpec::parse(JsonNode::parse(R"({"name": "zipf", "exponent": 1.2})", "s")).parameter, 1.2);
  EXPECT_THROW(RoutingSpec::parse(JsonNode::parse(R"({"name": "zipf", "exponnt": 1.2})", "s")), InputError);
}

// 10 tokens of top-2 are 20 rows for 8 experts: two each, and four more: from the first on, or from where the
// rank before left off.
TEST(MakeRouting, RoundRobinAndBalancedByHand) {
  const Routing turns = make_routing(RoutingSpec::parse("round-robin"), 2, 10, 8, 2, 1);
  const Routing even = make_routing(RoutingSpec::parse("balanced"), 2, 10, 8, 2, 1);
  EXPECT_THAT(turns.counts(0), ElementsAre(3, 3, 3, 3, 2, 2, 2, 2));
  EXPECT_THAT(turns.counts(1), ElementsAre(3, 3, 3, 3, 2, 2, 2, 2));
  EXPECT_THAT(even.counts(0), ElementsAre(3, 3, 3, 3, 2, 2, 2, 2));
  EXPECT_THAT(even.counts(1), ElementsAre(2, 2, 2, 2, 3, 3, 3, 3));
}

// Half of all rows to two of sixteen experts; a third of them would be more than a row per token and expert.
TEST(MakeRouting, HotExpertsGetTheirShare) {
  const auto hottest = [](const char* routing, int topk) {
    auto totals = make_routing(RoutingSpec::parse(routing), 4, 65536, 16, topk, 1).expert_totals();
    std::sort(totals.begin(), totals.end(), std::greater<>());
    return static_cast<double>(totals[0] + totals[1]) / (4 * 65536.0 * topk);
  };
  EXPECT_NEAR(hottest("hot:0.5", 2), 0.5, 0.01);
  EXPECT_NEAR(hottest("hot:0.125", 2), 1.0 / 8, 0.01);  // their fair share
  EXPECT_NEAR(hottest("hot:0.5", 8), 0.25, 0.01);       // every token to both: 2 of 8
}

TEST(RoutingSpec, HotIsAtLeastAFairShare) {
  EXPECT_THAT(message_of([] { RoutingSpec::parse("hot:0.1"); }),
              HasSubstr("found share '0.1', expected a number from 0.125 to 1"));
}

TEST(RoutingSpec, EveryNameSaysWhatItMeans) {
  for (const std::string& name : RoutingSpec::names())
    EXPECT_GT(RoutingSpec::about(name).size(), 20U) << name;
  EXPECT_THAT(RoutingSpec::about("zipf"), HasSubstr("(zipf:1; 0 to 20)"));
  EXPECT_THAT(RoutingSpec::about("measured:qwen3-30b"), HasSubstr("as gini with 0.2"));
}

// Popularity falls with the place to the given power: expert k of four gets 1 / k of 25 / 12 parts.
TEST(MakeRouting, ZipfByHand) {
  auto totals = make_routing(RoutingSpec::parse("zipf:1"), 1, 1 << 20, 4, 1, 1).expert_totals();
  std::sort(totals.begin(), totals.end(), std::greater<>());
  for (int place = 1; place <= 4; ++place)
    EXPECT_NEAR(static_cast<double>(totals[static_cast<std::size_t>(place - 1)]) / (1 << 20),
                12.0 / 25 / place, 0.005);
}

TEST(MakeRouting, RefusesWhatCannotBeDrawn) {
  EXPECT_THROW(make_routing(RoutingSpec(), 1, 4, 2, 3, 1), InputError);
  EXPECT_THROW(make_routing(RoutingSpec(), 1, 4, 2, 0, 1), InputError);
  EXPECT_THROW(make_routing(RoutingSpec(), 1, -1, 2, 1, 1), InputError);
  EXPECT_THROW(make_routing(RoutingSpec(), 1 << 20, 4, 1 << 20, 1, 1), InputError);
}

// Cached routings equal drawn ones, in any order of requests.
RC_GTEST_PROP(RoutingCache, GivesWhatIsDrawn, ()) {
  RoutingCache cache;
  const std::vector<std::string> specs{"balanced",      "round-robin", "uniform",   "zipf:1.2",
                                       "dirichlet:0.5", "gini:0.3",    "gini:0.31", "hot:0.5"};
  for (int trial = 0; trial < 20; ++trial) {
    const RoutingSpec spec = RoutingSpec::parse(*rc::gen::elementOf(specs));
    const int ranks = *rc::gen::elementOf(std::vector<int>{1, 2, 4}),
              experts = *rc::gen::elementOf(std::vector<int>{8, 12}), topk = *rc::gen::inRange(1, 4);
    const std::int64_t tokens = *rc::gen::elementOf(std::vector<std::int64_t>{16, 100});
    const auto seed = *rc::gen::inRange<std::uint64_t>(1, 3);
    const Routing kept = cache.draw(spec, ranks, tokens, experts, topk, seed);
    const Routing drawn = make_routing(spec, ranks, tokens, experts, topk, seed);
    for (int r = 0; r < ranks; ++r)
      RC_ASSERT(std::equal(kept.counts(r).begin(), kept.counts(r).end(), drawn.counts(r).begin(),
                           drawn.counts(r).end()));
    // Round robin knows the copies of a token.
    RC_ASSERT(kept.dedup_matrix(4) == drawn.dedup_matrix(4));
  }
  EXPECT_THROW(cache.draw(RoutingSpec::parse("gini:0.3"), 2, 16, 8, 9, 1), InputError);
  EXPECT_THROW(cache.draw(RoutingSpec::parse("gini:0.3"), 1 << 20, 16, 1 << 20, 2, 1), InputError);
}

// Power laws of place whose Gini coefficient is asked for, at most one row per token and expert, top-k in
// sum.
RC_GTEST_PROP(PopularityWithGini, HitsItsTarget, ()) {
  const int experts = *rc::gen::elementOf(std::vector<int>{16, 64, 256}), topk = *rc::gen::inRange(1, 9);
  // Top-k experts with one row each limit the unevenness to 1 - k / E.
  const double target = *rc::gen::inRange(0, 90) / 100.0 * (1 - static_cast<double>(topk) / experts);
  const std::vector<double> popularity = popularity_with_gini(experts, topk, target);
  RC_ASSERT(std::abs(gini_of(popularity) - target) < 1e-6);
  double sum = 0;
  for (const double p : popularity) {
    RC_ASSERT(p >= 0 && p <= 1);
    sum += p;
  }
  RC_ASSERT(std::abs(sum - topk) < 1e-9);
  RC_ASSERT(std::is_sorted(popularity.rbegin(), popularity.rend()));
}

// The worked example of docs/spec.md 4.2. Entries: L0,m0; L1,m0; L0,m1; L1,m1.
OverloadStage worked_example(std::vector<OverloadEvent> order) {
  const Rows u(4, 16);
  return {{{{{28, 14, 12, 10}, u}, {{16, 16, 16, 16}, u}, {{20, 20, 12, 12}, u}, {{40, 8, 8, 8}, u}},
           {{{16, 16, 16, 16}, u}, {{24, 16, 12, 12}, u}, {{32, 16, 8, 8}, u}, {{18, 18, 14, 14}, u}}},
          std::move(order)};
}

const std::vector<OverloadEvent> kBothInFlight{{0, true},  {1, true},  {2, true},  {3, true},
                                               {1, false}, {0, false}, {3, false}, {2, false}};
const std::vector<OverloadEvent> kOneByOne{{0, true}, {1, true}, {1, false}, {0, false},
                                           {2, true}, {3, true}, {3, false}, {2, false}};

TEST(Overload, WorkedExample) {
  const OverloadStage stage = worked_example(kBothInFlight);
  const std::vector<double> f0{1.75, 1.00, 1.25, 2.50}, f1{1.00, 1.50, 2.00, 1.125};
  for (std::size_t x = 0; x < 4; ++x) {
    EXPECT_NEAR(overload_factor(stage.replicas[0][x]), f0[x], 1e-8);
    EXPECT_NEAR(overload_factor(stage.replicas[1][x]), f1[x], 1e-8);
  }
  const std::vector<Overload> result = overload_of({&stage, 1});
  EXPECT_NEAR(result[0].avg, 1.515625, 1e-8);
  EXPECT_NEAR(result[0].max, 2.5, 1e-8);
  EXPECT_NEAR(result[0].max_cum, 1.625, 1e-8);
  const OverloadStage sequential = worked_example(kOneByOne);
  EXPECT_NEAR(overload_of({&sequential, 1})[0].max_cum, 1.875, 1e-8);
}

TEST(Overload, StageWithoutExpertsLogsZeroAverageAndTheSameMaxima) {
  const std::vector<OverloadStage> stages{worked_example(kBothInFlight), {}};
  const std::vector<Overload> result = overload_of(stages);
  EXPECT_EQ(result[1].avg, 0);
  EXPECT_EQ(result[1].max, result[0].max);
  EXPECT_EQ(result[1].max_cum, result[0].max_cum);
}

TEST(Overload, QuirkMakesAllGatherFactorsRTimesLarger) {
  const OverloadEntry entry{{28, 14, 12, 10}, Rows(4, 16)};
  EXPECT_NEAR(overload_factor(entry, {.allgather_quirk = true}), 4 * 1.75, 1e-6);
  const OverloadEntry alone{{28}, {28}};
  EXPECT_NEAR(overload_factor(alone, {.allgather_quirk = true}), 1, 1e-8);
  // The balanced counts of the cumulative factor are the same ones.
  const OverloadStage stage = worked_example(kOneByOne);
  const Overload quirk = overload_of({&stage, 1}, {.allgather_quirk = true}).front();
  EXPECT_NEAR(quirk.avg, 4 * 1.515625, 1e-6);
  EXPECT_NEAR(quirk.max, 4 * 2.5, 1e-6);
  EXPECT_NEAR(quirk.max_cum, 4 * 1.875, 1e-6);
}

TEST(Overload, RejectsReplicasThatDiffer) {
  OverloadStage stage = worked_example(kOneByOne);
  stage.replicas[1].pop_back();
  EXPECT_THROW(overload_of({&stage, 1}), InputError);
  OverloadStage other = worked_example({{9, true}});
  EXPECT_THROW(overload_of({&other, 1}), InputError);
}

TEST(Overload, BuffersFollow) {
  const OverloadBuffers buffers = buffers_from({1.5, 2.5, 1.625}, 16, 64);
  EXPECT_DOUBLE_EQ(buffers.forward_rows, 40);
  EXPECT_DOUBLE_EQ(buffers.retained_rows, 104);
}

// Least-loaded redirection: who computes which rows, and whose weights travel.

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
  const Routing before = example_1();  // choices are known
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

TEST(ExpertPlacement, IdentityChangesNothing) {
  const Routing routing = example_1();
  ExpertPlacement identity{std::vector<std::int32_t>(8)};
  std::iota(identity.expert_of.begin(), identity.expert_of.end(), 0);
  const Routing same = placed(routing, identity);
  EXPECT_EQ(same.expert_totals(), routing.expert_totals());
  EXPECT_EQ(same.dedup_matrix(4), routing.dedup_matrix(4));
}

TEST(ExpertPlacement, BalancesLoadAndKeepsRows) {
  const Routing routing = make_routing(RoutingSpec::parse("zipf:1.0"), 8, 4096, 64, 4, 1);
  const auto totals = routing.expert_totals();
  const Routing spread = placed(routing, balanced_placement(totals, 8, 64));
  const Routing replicated = placed(routing, balanced_placement(totals, 8, 80));
  EXPECT_LT(spread.rank_imbalance(8), routing.rank_imbalance(8));
  EXPECT_LE(replicated.rank_imbalance(8), spread.rank_imbalance(8) + 1e-9);
  EXPECT_LT(replicated.rank_imbalance(8), 1.05);
  for (int r = 0; r < 8; ++r) EXPECT_EQ(replicated.rows(r), routing.rows(r));
  const Routing chosen = placed(example_1(), balanced_placement(example_1().expert_totals(), 4, 12));
  EXPECT_EQ(chosen.experts(), 12);
  EXPECT_TRUE(chosen.has_choices());
  EXPECT_EQ(chosen.rows(0), 16);
}

// The example of deepseek-ai/EPLB's README: two layers of 12 experts in 4 groups, 16 slots on 8 GPUs of 2
// nodes, and what it prints for them.
TEST(ExpertPlacement, KeepsGroupsOnANodeAsEplbDoes) {
  const auto of_ranks = [](std::vector<std::int32_t> slots) {
    for (std::size_t r = 0; r < slots.size(); r += 2)
      std::sort(slots.begin() + static_cast<std::ptrdiff_t>(r),
                slots.begin() + static_cast<std::ptrdiff_t>(r + 2));
    return slots;
  };
  const std::vector<std::int64_t> first{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
      second{20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};
  EXPECT_EQ(of_ranks(hierarchical_placement(first, 8, 16, 4, 2).expert_of),
            of_ranks({5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1}));
  EXPECT_EQ(of_ranks(hierarchical_placement(second, 8, 16, 4, 2).expert_of),
            of_ranks({7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}));
  // Nodes that do not divide the groups: as without groups.
  EXPECT_EQ(hierarchical_placement(first, 8, 16, 3, 2).expert_of, balanced_placement(first, 8, 16).expert_of);
}

TEST(ExpertPlacement, RefusesWhatDoesNotFit) {
  EXPECT_THROW(balanced_placement({1, 2, 3, 4}, 4, 3), InputError);
  EXPECT_THROW(balanced_placement({1, 2, 3, 4}, 4, 6), InputError);
  EXPECT_THROW(placed(example_1(), ExpertPlacement{{0, 1, 2}}), InputError);
  EXPECT_THROW(placed(example_1(), ExpertPlacement{{0, 1, 2, 3, 4, 5, 6, 8}}), InputError);
}

// Expert 0 has 12 of 24 rows. Six slots on three ranks: it gets both spare slots, so its copies carry 4 rows
// each and the others as many; every rank holds 8.
TEST(ExpertPlacement, ReplicatesTheBusiestByHand) {
  const ExpertPlacement placement = balanced_placement({12, 4, 4, 4}, 3, 6);
  EXPECT_EQ(std::count(placement.expert_of.begin(), placement.expert_of.end(), 0), 3);
  for (std::int32_t e = 1; e < 4; ++e)
    EXPECT_EQ(std::count(placement.expert_of.begin(), placement.expert_of.end(), e), 1);
  // Rows of a replicated expert are dealt out to its slots, starting one further on each source rank.
  const Routing routing = Routing::from_counts(2, 2, 1, {5, 5}, {3, 2, 4, 1});
  const Routing dealt = placed(routing, ExpertPlacement{{0, 1, 0, 0}});
  EXPECT_EQ(std::vector(dealt.counts(0).begin(), dealt.counts(0).end()), (Numbers{1, 2, 1, 1}));
  EXPECT_EQ(std::vector(dealt.counts(1).begin(), dealt.counts(1).end()), (Numbers{1, 1, 2, 1}));
}

// Slots of an expert together have its rows from every rank, and differ by one at most.
RC_GTEST_PROP(ExpertPlacement, EveryRowFindsASlotOfItsExpert, ()) {
  const RandomLayer random = random_layer(false);
  const int experts = random.routing.experts(), ranks = random.routing.ranks();
  const int extra = *rc::gen::inRange(0, 4) * ranks;
  const ExpertPlacement placement =
      balanced_placement(random.routing.expert_totals(), ranks, experts + extra);
  const Routing dealt = placed(random.routing, placement);
  for (int r = 0; r < ranks; ++r)
    for (int e = 0; e < experts; ++e) {
      Numbers slots;
      for (int s = 0; s < experts + extra; ++s)
        if (placement.expert_of[static_cast<std::size_t>(s)] == e) slots.push_back(dealt.count(r, s));
      RC_ASSERT(std::accumulate(slots.begin(), slots.end(), std::int64_t{0}) == random.routing.count(r, e));
      RC_ASSERT(
          *std::max_element(slots.begin(), slots.end()) - *std::min_element(slots.begin(), slots.end()) <= 1);
    }
}

TEST(PlacementSpec, ReadsWhatAUserWrites) {
  EXPECT_FALSE(PlacementSpec().given());
  EXPECT_EQ(PlacementSpec::parse("balanced").slots, 0);
  EXPECT_EQ(PlacementSpec::parse("balanced:slots=12").slots, 12);
  const PlacementSpec list =
      PlacementSpec::parse(JsonNode::parse("[0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 1, 2]", "p.json"));
  EXPECT_EQ(list.make(example_1(), 4).expert_of.size(), 12u);
  EXPECT_THROW(list.make(example_1(), 5), InputError);
  EXPECT_EQ(PlacementSpec::parse("balanced:slots=12").make(example_1(), 4).expert_of.size(), 12u);
  for (const char* wrong : {"", "even", "balanced:12", "balanced:slots=", "balanced:slots=0",
                            "balanced:slots=1x", "balanced:slots=9999999"})
    EXPECT_THROW(PlacementSpec::parse(std::string(wrong)), InputError) << wrong;
  for (const char* wrong : {"[]", "[-1]", "[0.5]", "{}", "\"even\""})
    EXPECT_THROW(PlacementSpec::parse(JsonNode::parse(wrong, "p.json")), InputError) << wrong;
}

}  // namespace
}  // namespace moesim::models::testing
