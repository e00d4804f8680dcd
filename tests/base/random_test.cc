#include "base/random.h"

#include <gtest/gtest.h>

namespace moesim {
namespace {

TEST(Random, FirstDrawsAreFixedForEver) {
  Random random(0);
  EXPECT_EQ(random.next(), 0xe220a8397b1dcdafULL);  // the published splitmix64 sequence for seed 0
  EXPECT_EQ(random.next(), 0x6e789e6aa1b965f4ULL);
}

TEST(Random, MomentsOfTheDistributions) {
  Random random(1);
  double uniform = 0, normal = 0, square = 0, gamma = 0;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) {
    uniform += random.uniform();
    const double z = random.normal();
    normal += z;
    square += z * z;
    gamma += random.gamma(0.7);
  }
  EXPECT_NEAR(uniform / kDraws, 0.5, 0.005);
  EXPECT_NEAR(normal / kDraws, 0.0, 0.01);
  EXPECT_NEAR(square / kDraws, 1.0, 0.02);
  EXPECT_NEAR(gamma / kDraws, 0.7, 0.01);
}

TEST(Random, ItemsHaveStreamsOfTheirOwn) {
  EXPECT_NE(Random::for_item(1, 0).next(), Random::for_item(1, 1).next());
  EXPECT_EQ(Random::for_item(1, 5).next(), Random::for_item(1, 5).next());
}

}  // namespace
}  // namespace moesim
