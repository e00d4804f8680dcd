#include "base/text.h"

#include <gtest/gtest.h>

#include <array>

namespace moesim {
namespace {

TEST(Text, OneLineKeepsMessagesOnOneLine) { EXPECT_EQ(one_line("a\nb\tc\x01"), "a b c\\x01"); }

TEST(Text, WhatATerminalWouldObeyIsShown) {
  EXPECT_EQ(one_line("a\x1b]0;title\x07"), "a\\x1b]0;title\\x07");
  EXPECT_EQ(one_line("c1 \xc2\x9b"
                     "31m"),
            "c1 \\u009b31m");
  EXPECT_EQ(one_line("right \xe2\x80\xae left \xe2\x81\xa6"), "right \\u202e left \\u2066");
  EXPECT_EQ(one_line("line \xe2\x80\xa8 end"), "line \\u2028 end");
  EXPECT_EQ(one_line("latin \xe9, cut \xe2\x96"), "latin \\xe9, cut \\xe2\\x96");
  EXPECT_EQ(one_line("µs \u2588 \U0001f600 é"), "µs \u2588 \U0001f600 é");
  EXPECT_EQ(one_line("delete \x7f"), "delete \\u007f");
  EXPECT_EQ(printable("a\nb\x1b", "\n"), "a\nb\\x1b");
  EXPECT_EQ(one_line("no XML \xef\xbf\xbe"), "no XML \\ufffe");
}

TEST(Text, IsCutBetweenCharacters) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc...");
  EXPECT_EQ(shortened("aé", 2), "a...");
  EXPECT_EQ(in_quotes("abcd", 3), "'abc...'");
}

TEST(Text, Utf8IsToldFromOtherBytes) {
  EXPECT_EQ(first_not_utf8("plain text of more than eight bytes, µs \u2588 \U0001f600"), std::string::npos);
  EXPECT_EQ(first_not_utf8(""), std::string::npos);
  EXPECT_EQ(first_not_utf8("12345678\xff"), 8U);
  EXPECT_EQ(first_not_utf8("a\xc0\xaf"), 1U);         // overlong
  EXPECT_EQ(first_not_utf8("\xed\xa0\x80"), 0U);      // a surrogate
  EXPECT_EQ(first_not_utf8("\xf4\x90\x80\x80"), 0U);  // beyond U+10FFFF
  EXPECT_EQ(first_not_utf8("abc\xe2\x96"), 3U);       // cut
}

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
