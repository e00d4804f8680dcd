// Distributed Shampoo: which steps do what, and how long its products and roots take.
#include <gtest/gtest.h>

#include "models/hardware/profile.h"
#include "models/step/optimizers.h"

namespace moesim::models {
namespace {

TEST(Shampoo, WorkOfAStepAndOfAPeriod) {
  EXPECT_EQ(shampoo_work({5, 5, 10}).roots, 1);
  EXPECT_EQ(shampoo_work({5, 5, 11}).roots, 0);
  EXPECT_EQ(shampoo_work({5, 5, 4}).roots, 0);
  EXPECT_LT(shampoo_work({5, 5, 4}).products, shampoo_work({5, 5, 6}).products);
  EXPECT_DOUBLE_EQ(shampoo_work({5, 0, 0}).roots, 0.2);
}

// Linear in the elements, and in the work; the roots are 2 * 11 * d^3 FLOPs of a block at the fp32 rate.
TEST(Shampoo, SecondsAreThoseOfItsBlocks) {
  const Profile profile = Profile::load("h100-sxm");
  const GemmModel gemms(profile);
  const double rate = 50e12, d = 1024;
  const double product = gemms.seconds({1024, 1024, 1024}, DType::kFp32);
  const double roots = shampoo_seconds(3 * d * d, 1024, {0, 1}, gemms, rate),
               products = shampoo_seconds(3 * d * d, 1024, {4, 0}, gemms, rate);
  EXPECT_DOUBLE_EQ(roots, 3 * 22 * d * d * d / rate);
  EXPECT_DOUBLE_EQ(products, 3 * 4 * product);
  EXPECT_DOUBLE_EQ(shampoo_seconds(6 * d * d, 1024, {4, 1}, gemms, rate), 2 * (roots + products));
}

}  // namespace
}  // namespace moesim::models
