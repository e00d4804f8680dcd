#include "models/routing/routing_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/input_error.h"

namespace moesim::models {
namespace {

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

}  // namespace
}  // namespace moesim::models
