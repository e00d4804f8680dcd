// Shared parts of DeepSpeed and Tutel (docs/spec.md 2.13): C rows from every rank to every expert.
#include "models/dispatchers/parts/fixed_capacity.h"

#include <gtest/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(FixedCapacity, SizesAreTheCapacitysWhateverTheRouting) {
  const Example skewed, one_rank(example_2());
  for (const Example* example : {&skewed, &one_rank}) {
    const FixedCapacity fixed(example->layer, 3);
    EXPECT_EQ(fixed.rows, 8 * 3);
    EXPECT_EQ(fixed.sizes.sent, Numbers(4, 24));
    EXPECT_EQ(fixed.sizes.arrived, Numbers(4, 24));
    EXPECT_EQ(fixed.sizes.computed, Numbers(4, 24));
    EXPECT_EQ(fixed.sizes.experts, Numbers(8, 4 * 3));  // EP * C of each of R * E_l
    EXPECT_EQ(fixed.sizes.tokens, Numbers(4, 8));
  }
  // n = [5 3 ..; 5 3 3 ..; 4 ..; 5 3 ..]: 2 + 2 + 1 + 2 rows are above 3; of example 2 two times 8 - 3 per
  // rank.
  EXPECT_EQ(FixedCapacity(skewed.layer, 3).dropped, 2 + 2 + 1 + 2);
  EXPECT_EQ(FixedCapacity(one_rank.layer, 3).dropped, 4 * 2 * 5);
}

TEST(FixedCapacity, TheLargestCountDropsNothing) {
  const Example example;
  EXPECT_EQ(FixedCapacity::largest_count(example.routing), 5);
  EXPECT_EQ(FixedCapacity(example.layer, 5).dropped, 0);
  EXPECT_EQ(FixedCapacity(example.layer, 4).dropped, 3);
}

TEST(FixedCapacity, NeedsOneCapacityOfWholeExperts) {
  const Example uneven(Routing::from_choices(8, 2, {{0, 1}, {0, 1, 2, 3}, {0, 1}, {0, 1}})),
      split(example_1(), 2, 2), fine;
  EXPECT_EQ(FixedCapacity::illegal(uneven.layer).value_or(""),
            "every rank must hold the same number of tokens: all must agree on the capacity");
  EXPECT_EQ(FixedCapacity::illegal(split.layer).value_or(""),
            "it does not split experts over etp where every rank holds its own tokens");
  EXPECT_FALSE(FixedCapacity::illegal(fine.layer));
}

}  // namespace
}  // namespace moesim::models::testing
