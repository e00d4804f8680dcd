// Named routings of models/routing/routing_draw.cc: their names, and what they draw.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/routing/routing.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace moesim::models
