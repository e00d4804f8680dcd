// Capacity of an expert (docs/spec.md 2.2.3) and what it drops.
#include "models/dispatchers/parts/capacity.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(Capacity, IsRoundedUpButNotForRounding) {
  EXPECT_EQ(capacity(8, 2, 8, 1), 2);      // 16 / 8
  EXPECT_EQ(capacity(8, 2, 8, 1.25), 3);   // 2.5
  EXPECT_EQ(capacity(10, 1, 1, 1.1), 11);  // 11.000000000000002 in doubles
  EXPECT_EQ(capacity(0, 2, 8, 1), 0);
  EXPECT_EQ(capacity(1, 1, 64, 0.01), 1);
}

RC_GTEST_PROP(Capacity, HoldsAllRowsAndNotARowMore, ()) {
  const std::int64_t tokens = *rc::gen::inRange(0, 5000), topk = *rc::gen::inRange(1, 9),
                     experts = *rc::gen::inRange(1, 300), quarters = *rc::gen::inRange(1, 40);
  const std::int64_t C = capacity(tokens, topk, experts, static_cast<double>(quarters) / 4);
  RC_ASSERT(4 * C * experts >= tokens * topk * quarters);
  RC_ASSERT(4 * (C - 1) * experts < tokens * topk * quarters || C == 0);
}

TEST(Capacity, IsOfEveryRanksOwnTokens) {
  const Routing uneven = Routing::from_choices(2, 2, {{0, 1}, {0, 1, 0, 1, 0, 1}, {}});
  EXPECT_EQ(capacities(uneven, 1), (Numbers{1, 3, 0}));
  EXPECT_EQ(capacities(uneven, 0.5), (Numbers{1, 2, 0}));
}

TEST(TotalDropped, CountsWhatIsLessAndNothingElse) {
  const Routing routing = example_1();
  EXPECT_EQ(total_dropped(routing, routing), 0);
  EXPECT_EQ(total_dropped(routing, routing.limited_to({2, 2, 2, 2})), 64 - 49);
  EXPECT_EQ(total_dropped(routing, routing.limited_to({5, 5, 5, 4})), 1);
  EXPECT_EQ(total_dropped(routing, routing.padded_to(4)), 0);  // more rows are no dropped ones
}

}  // namespace
}  // namespace moesim::models::testing
