// Text, tables, units and JSON: what is read, and where a mistake stands.
#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include <nlohmann/json.hpp>

#include "base/csv.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/units.h"
#include "tests/message_of.h"

namespace moesim {
namespace {

using moesim::testing::message_of;
using ::testing::ElementsAre;

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

TEST(Csv, CellsAreNoFormulas) {
  EXPECT_EQ(csv_cell("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
  EXPECT_EQ(csv_cell("@SUM(1,2)"), "\"'@SUM(1,2)\"");
  EXPECT_EQ(csv_cell("-1+cmd|x"), "'-1+cmd|x");
  for (const std::string same : {"-1.5", "+3.1 %", "-", "alltoall:capacity=1", "1e-3", ""})
    EXPECT_EQ(csv_cell(same), same);
  EXPECT_EQ(csv_cell("a,\"b\"\nc"), "\"a,\"\"b\"\" c\"");
}

TEST(Csv, CellsAreReadBack) {
  EXPECT_THAT(csv_cells("a,,\"b,\"\"c\"\"\", d ", {}), ElementsAre("a", "", "b,\"c\"", " d "));
  EXPECT_THAT(csv_cells("", {}), ElementsAre(""));
  EXPECT_THAT(csv_cells("5\" disk,1", {}), ElementsAre("5\" disk", "1"));
  EXPECT_THAT(csv_cells(R"( "a,b",c)", {}), ElementsAre(" a,b", "c"));
  for (const char* text : {"plain", "a,b", "say \"so\"", ""})
    EXPECT_THAT(csv_cells(csv_cell(text), {}), ElementsAre(text));
  EXPECT_THROW(csv_cells("a,\"b", {"t.csv", 3}), InputError);
}

TEST(Units, BandwidthTellsBitsFromBytes) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("100GBps"), 100e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("100 GB/s"), 100e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("400Gbps"), 50e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("5e10"), 50e9);
}

TEST(Units, TimesSizesAndFractions) {
  EXPECT_DOUBLE_EQ(parse_seconds("2us"), 2e-6);
  EXPECT_DOUBLE_EQ(parse_bytes("64MiB"), 64.0 * 1048576);
  EXPECT_DOUBLE_EQ(parse_fraction("5%"), 0.05);
}

TEST(Units, WrongUnitIsNamed) {
  EXPECT_THROW(parse_bandwidth("100us"), InputError);
  EXPECT_THROW(parse_seconds("fast"), InputError);
  EXPECT_EQ(message_of([&] { parse_bandwidth("100 furlongs"); }),
            "found '100 furlongs', expected a bandwidth such as 100GBps or 400Gbps");
}

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(format_us(12.34), "12.3 us");
  EXPECT_EQ(format_us(1500), "1.50 ms");
  EXPECT_EQ(format_us(2.5e6), "2.500 s");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1067e6), "1.07 GB");
  EXPECT_EQ(format_bytes(-53.04 * 1048576), "-55.62 MB");
}

TEST(JsonReader, ReadsTypedValues) {
  JsonObject object(
      JsonNode::parse(R"({"a": 1, "b": 2.5, "c": "x", "d": [true, null], "e": 1e6})", "t.json"));
  EXPECT_EQ(object.at("a").integer(), 1);
  EXPECT_DOUBLE_EQ(object.at("b").number(), 2.5);
  EXPECT_EQ(object.at("c").string(), "x");
  EXPECT_TRUE(object.at("d").items()[0].boolean());
  EXPECT_EQ(object.at("e").integer(), 1000000);
  EXPECT_EQ(object.integer("missing", 7), 7);
  EXPECT_NO_THROW(object.finish());
}

TEST(JsonReader, UnknownKeyNamesLineAndClosestKey) {
  JsonObject object(JsonNode::parse("{\n  \"nodes\": 2,\n  \"gpus_per_nod\": 8\n}\n", "c.json"));
  object.integer("nodes", 1);
  object.integer("gpus_per_node", 8);
  EXPECT_EQ(message_of([&] { object.finish(); }),
            "c.json:3: unknown key 'gpus_per_nod'; did you mean 'gpus_per_node'?");
}

TEST(JsonReader, WrongTypeNamesPathLineFoundAndExpected) {
  const JsonNode root = JsonNode::parse("{\"nic\":\n {\n\"latency\": \"fast\"}}", "c.json");
  EXPECT_EQ(message_of([&] { root.find("nic")->find("latency")->number(); }),
            "c.json:3: found nic.latency 'fast', expected a number");
  EXPECT_EQ(message_of([&] { JsonNode::parse("[1,\n2,\n-3\n]", "x").items()[2].integer(0); }),
            "x:3: found [2] -3, expected a whole number of at least 0");
}

// nlohmann's lexer takes a zero for the end of the text.
TEST(JsonReader, NothingStandsBehindAZero) {
  for (const std::string& text : {std::string("{}\0", 3), std::string("{}\0 and {more}", 14)})
    EXPECT_EQ(message_of([&] { JsonNode::parse(text, "x"); }),
              "x:1:3: found the byte 0x00, expected text in UTF-8");
}

TEST(JsonReader, TextsAndKeysAreOnOneLine) {
  EXPECT_EQ(message_of([] { JsonNode::parse("{\"name\":\n \"x\\nFORGED\"}", "c").find("name")->string(); }),
            "c:1: found name 'x FORGED' of several lines, expected one line");
  EXPECT_EQ(message_of([] { JsonNode::parse(R"({"a\nb": 1})", "c"); }),
            "c:1: found key 'a b' of several lines, expected one line");
}

// White space, numbers and texts of a hostile file neither fill the memory nor the message.
TEST(JsonReader, MessagesAreShortWhateverAFileHolds) {
  const std::string blanks(1 << 20, '\n');
  EXPECT_EQ(message_of([&] { JsonNode::parse("{" + blanks + "x}", "c"); }),
            "c:1048577: not JSON: invalid literal; last read: '{<U+000A>x'; expected string literal");
  const JsonNode read = JsonNode::parse("[1," + blanks + "  \t 2]", "c");
  EXPECT_EQ(read.items()[1].place().line, 1048577);
  EXPECT_LT(message_of([] { JsonNode::parse("[" + std::string(1 << 20, '1') + "]", "c"); }).size(), 400U);
  EXPECT_LT(message_of([] { JsonNode::parse("[\"" + std::string(1 << 20, 'a'), "c"); }).size(), 400U);
  for (const char* begins : {"[\"", "[1"})
    EXPECT_EQ(message_of([&] { JsonNode::parse(begins + std::string(kMaxJsonToken, '1') + "]", "c"); }),
              "c:1: found a text or number of more than 16777216 characters, expected fewer");
}

TEST(JsonReader, ReadsArraysOfWholeNumbersAtOnce) {
  EXPECT_EQ(JsonNode::parse("[1, 2e3, -3]", "x").integers(-3, 2000),
            (std::vector<std::int64_t>{1, 2000, -3}));
  EXPECT_TRUE(JsonNode::parse("[]", "x").integers(0, 1).empty());
  EXPECT_EQ(message_of([] { JsonNode::parse("[1,\n2,\n-3\n]", "x").integers(0, 9); }),
            "x:3: found [2] -3, expected a whole number from 0 to 9");
  EXPECT_EQ(message_of([] { JsonNode::parse("7", "x").integers(0, 9); }),
            "x:1: found 7, expected an array of whole numbers");
}

TEST(JsonReader, RefusesDuplicatesDepthAndGarbage) {
  EXPECT_EQ(message_of([] { JsonNode::parse("{\"a\":1,\n\"a\":2}", "f"); }),
            "f:2: found key 'a' twice, expected each key once");
  EXPECT_NE(message_of([] { JsonNode::parse(std::string(100000, '['), "f"); }).find("deeper than 64"),
            std::string::npos);
  EXPECT_EQ(message_of([] { JsonNode::parse("{\"a\": 1", "f"); }).substr(0, 14), "f:1: not JSON:");
  EXPECT_EQ(message_of([] { JsonNode::parse("", "f"); }).substr(0, 14), "f:1: not JSON:");
  EXPECT_NE(message_of([] { JsonNode::parse("{\"a\": 1e999}", "f"); }), "");
}

TEST(JsonReader, HugeIntegersAreNotWrapped) {
  const JsonNode node = JsonNode::parse("18446744073709551615", "f");
  EXPECT_NE(message_of([&] { node.integer(); }), "");
  EXPECT_DOUBLE_EQ(node.number(), 18446744073709551615.0);
}

// Looking for a key takes as long in a large object as in a small one.
TEST(JsonReader, FindsAmongManyKeys) {
  constexpr int kKeys = 200'000;
  std::string text = "{";
  for (int i = 0; i < kKeys; ++i)
    text += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":" + std::to_string(i);
  JsonObject object(JsonNode::parse(text + "}", "many.json"));
  for (int i = 0; i < kKeys; ++i) ASSERT_EQ(object.integer("k" + std::to_string(i), -1), i);
  EXPECT_FALSE(object.find("k"));
  object.finish();
  EXPECT_EQ(object.node().keys().front(), "k0");
  EXPECT_EQ(object.node().keys().back(), "k199999");
}

TEST(JsonReader, OrderedJsonHasTheSameLimits) {
  EXPECT_EQ(parse_ordered(R"({"b": 1, "a": [2.5, "x", null]})", "f").dump(), R"({"b":1,"a":[2.5,"x",null]})");
  EXPECT_EQ(message_of([] { parse_ordered(std::string(100'000, '['), "f"); }),
            "f:1: found JSON nested deeper than 64 levels, expected less");
  EXPECT_THAT(message_of([] { parse_ordered("{\"a\": 1,\n\"a\": 2}", "f"); }),
              ::testing::StartsWith("f:2: found key 'a' twice"));
}

}  // namespace
}  // namespace moesim
