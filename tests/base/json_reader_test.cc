#include "base/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "base/json_chars.h"
#include "tests/message_of.h"

namespace moesim {
namespace {

using moesim::testing::message_of;

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
