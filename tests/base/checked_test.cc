#include <gtest/gtest.h>

#include <limits>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim {
namespace {

TEST(Checked, ProductsUpToTheLargestSize) {
  EXPECT_EQ(checked_product("x", {3, 5, 7}), 105);
  EXPECT_EQ(checked_product("x", {}), 1);
  EXPECT_EQ(checked_product("x", {std::int64_t{1} << 40, 1 << 16}), kMostSize);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(checked_product("x", {kMost, kMost, 0}), 0);
}

TEST(Checked, LargerOnesAreRefused) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(checked_product("x", {(std::int64_t{1} << 40) + 1, 1 << 16}), InputError);
  EXPECT_THROW(checked_product("x", {kMost, kMost}), InputError);
  // Wraps to a small number.
  EXPECT_THROW(checked_product("x", {std::int64_t{1} << 33, (std::int64_t{1} << 31) + 1}), InputError);
}

}  // namespace
}  // namespace moesim
