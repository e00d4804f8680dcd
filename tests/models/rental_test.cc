#include "models/hardware/rental.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

PriceTable parse(const std::string& json) { return PriceTable::parse(JsonNode::parse(json, "p.json")); }

std::string error_of(const std::string& json) {
  return message_of([&] { parse(json); });
}

TEST(Rental, NodesArePaidWhole) {
  const PriceTable gpus = parse(R"({"gpu_hour": 2.5})"), nodes = parse(R"({"node_hour": 20})");
  EXPECT_DOUBLE_EQ(gpus.per_hour("h100-sxm", 12, 8), 30);
  EXPECT_DOUBLE_EQ(nodes.per_hour("h100-sxm", 8, 8), 20);
  EXPECT_DOUBLE_EQ(nodes.per_hour("h100-sxm", 9, 8), 40);
  EXPECT_DOUBLE_EQ(nodes.per_hour("h100-sxm", 12, 4), 60);
  EXPECT_EQ(gpus.currency, "USD");
  EXPECT_FALSE(PriceTable().given());
  EXPECT_TRUE(nodes.given());
}

TEST(Rental, AProfileHasItsOwnPrice) {
  const PriceTable table = parse(R"({"gpu_hour": {"h100-sxm": 2.5, "gb200": 6}, "currency": "EUR"})");
  EXPECT_TRUE(table.given());
  EXPECT_DOUBLE_EQ(table.per_hour("gb200", 72, 4), 432);
  EXPECT_EQ(table.currency, "EUR");
  EXPECT_THAT(message_of([&] { table.per_hour("b200-sxm", 8, 8); }), HasSubstr("found none for 'b200-sxm'"));
}

TEST(Rental, MistakesAreNamed) {
  EXPECT_THAT(error_of(R"({"gpu_hour": 2, "node_hour": 20})"), HasSubstr("both gpu_hour and node_hour"));
  EXPECT_THAT(error_of(R"({"currency": "EUR"})"), HasSubstr("no price"));
  EXPECT_THAT(error_of(R"({"gpu_hour": 0})"), HasSubstr("p.json:1"));
  EXPECT_THAT(error_of(R"({"gpu_hour": -2})"), HasSubstr("p.json:1"));
  EXPECT_THAT(error_of(R"({"gpu_hour": {}})"), HasSubstr("an empty table"));
  EXPECT_THAT(error_of(R"({"gpu_hour": {"h100-smx": 2}})"), HasSubstr("did you mean 'h100-sxm'"));
  EXPECT_THAT(error_of(R"({"gpu_hour": 2, "curency": "EUR"})"), HasSubstr("curency"));
}

}  // namespace
}  // namespace moesim::models
