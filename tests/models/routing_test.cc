#include "models/routing/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/routing/routing_cache.h"

namespace moesim::models {
namespace {

using ::testing::HasSubstr;

TEST(Routing, EveryNamedRoutingConservesTokens) {
  for (const std::string& name : RoutingSpec::names())
    for (const int topk : {1, 2, 8}) {
      const Routing routing = make_routing(RoutingSpec::parse(name), 4, 1000, 16, topk, 3);
      for (int r = 0; r < 4; ++r) {
        EXPECT_EQ(routing.rows(r), 1000 * topk) << name;
        for (int e = 0; e < 16; ++e) EXPECT_LE(routing.count(r, e), 1000) << name;
      }
    }
}

TEST(Routing, SeedsReproduceAndDiffer) {
  const RoutingSpec spec = RoutingSpec::parse("zipf:1.2");
  const auto counts = [&](std::uint64_t seed, int layer, int microbatch) {
    return make_routing(spec, 2, 4096, 8, 2, seed, layer, microbatch).expert_totals();
  };
  EXPECT_EQ(counts(1, 0, 0), counts(1, 0, 0));
  EXPECT_NE(counts(1, 0, 0), counts(2, 0, 0));
  EXPECT_NE(counts(1, 0, 0), counts(1, 1, 0));
  EXPECT_NE(counts(1, 0, 0), counts(1, 0, 1));
}

TEST(Routing, MicrobatchesOfALayerShareItsPopularity) {
  const RoutingSpec spec = RoutingSpec::parse("zipf:1.2");
  const auto a = make_routing(spec, 2, 4096, 8, 2, 1, 0, 0).expert_totals();
  const auto b = make_routing(spec, 2, 4096, 8, 2, 1, 0, 1).expert_totals();
  for (int e = 0; e < 8; ++e) EXPECT_NEAR(static_cast<double>(a[e]), static_cast<double>(b[e]), 500);
}

TEST(Routing, GiniIsHit) {
  for (const double target : {0.1, 0.25, 0.4})
    EXPECT_NEAR(make_routing(RoutingSpec::parse("gini:" + std::to_string(target)), 8, 65536, 64, 4, 1).gini(),
                target, 0.01);
}

TEST(Routing, BalancedIsEvenOverTheGroup) {
  const auto totals = make_routing(RoutingSpec(), 4, 10, 8, 2, 1).expert_totals();
  for (const std::int64_t n : totals) EXPECT_EQ(n, 10);
}

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

TEST(Routing, CapacityDropsByPosition) {
  const Routing routing = Routing::from_choices(2, 1, {{0, 0, 1, 0}});
  const Routing limited = routing.limited_to({2});
  EXPECT_EQ(limited.count(0, 0), 2);
  EXPECT_THAT(limited.choices(0), ::testing::ElementsAre(0, 0, 1, -1));
  EXPECT_EQ(routing.padded_to(4).count(0, 1), 4);
}

TEST(RoutingSpec, NamesWhatIsWrong) {
  const auto error = [](const std::string& text) -> std::string {
    try {
      RoutingSpec::parse(text);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(error("zipff:1"), HasSubstr("did you mean 'zipf'"));
  EXPECT_THAT(error("zipf:x"), HasSubstr("expected a number"));
  EXPECT_THAT(error("gini:1.5"), HasSubstr("0.99"));
  EXPECT_THAT(error("balanced:2"), HasSubstr("no parameter"));
  EXPECT_EQ(RoutingSpec::parse("some/file").kind, RoutingSpec::Kind::kFile);
  EXPECT_EQ(RoutingSpec::parse(JsonNode::parse(R"({"name": "zipf", "exponent": 1.2})", "s")).parameter, 1.2);
  EXPECT_THROW(RoutingSpec::parse(JsonNode::parse(R"({"name": "zipf", "exponnt": 1.2})", "s")), InputError);
}

TEST(Routing, RejectsImpossibleCounts) {
  EXPECT_THROW(Routing::from_counts(1, 2, 1, {4}, {5, 0}), InputError);
  EXPECT_THROW(Routing::from_counts(1, 2, 1, {4}, {-1, 0}), InputError);
  EXPECT_THROW(Routing::from_counts(1, 2, 1, {4}, {4, 4}), InputError);
  EXPECT_THROW(Routing::from_choices(2, 2, {{0, 0}}), InputError);
  EXPECT_THROW(Routing::from_choices(2, 2, {{0, 2}}), InputError);
  EXPECT_THROW(make_routing(RoutingSpec(), 1, 4, 2, 3, 1), InputError);
}

// What is kept is what would be drawn, in any order of asking.
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
    // Of round robin the copies of a token are known.
    RC_ASSERT(kept.dedup_matrix(4) == drawn.dedup_matrix(4));
  }
  EXPECT_THROW(cache.draw(RoutingSpec::parse("gini:0.3"), 2, 16, 8, 9, 1), InputError);
  EXPECT_THROW(cache.draw(RoutingSpec::parse("gini:0.3"), 1 << 20, 16, 1 << 20, 2, 1), InputError);
}

}  // namespace
}  // namespace moesim::models
