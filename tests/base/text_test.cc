#include "base/text.h"

#include <gtest/gtest.h>

#include <array>

namespace moesim {
namespace {

TEST(Text, OneLineKeepsMessagesOnOneLine) { EXPECT_EQ(one_line("a\nb\tc\x01"), "a b c\\x01"); }

TEST(Text, ParseIntRefusesOverflowAndRest) {
  EXPECT_EQ(parse_int("-12"), -12);
  EXPECT_FALSE(parse_int("12x"));
  EXPECT_FALSE(parse_int(""));
  EXPECT_FALSE(parse_int("99999999999999999999"));
}

TEST(Text, ParseNumberRefusesNanAndInfinity) {
  EXPECT_DOUBLE_EQ(*parse_number("1.5e3"), 1500.0);
  EXPECT_FALSE(parse_number("nan"));
  EXPECT_FALSE(parse_number("inf"));
  EXPECT_FALSE(parse_number("1.5 "));
}

TEST(Text, ClosestFindsTyposOnly) {
  const std::array<std::string, 3> names{"allgather", "alltoall", "flex-deepep"};
  EXPECT_EQ(closest("allgater", names), "allgather");
  EXPECT_FALSE(closest("zzzzzzzz", names));
  EXPECT_EQ(did_you_mean("alltoal", names), "; did you mean 'alltoall'?");
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ',').size(), 3u);
  EXPECT_EQ(split("", ',').size(), 1u);
}

}  // namespace
}  // namespace moesim
