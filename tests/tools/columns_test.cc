#include "tools/moesim/show/columns.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>

namespace moesim::tools {
namespace {

using nlohmann::ordered_json;

struct Wheel {
  int stage = 0;
  double us = 0;
};

Columns<Wheel> columns_of(Of<Wheel>) {
  return {{"stage", &Wheel::stage, "of the pipeline", "stage"},
          {"us", &Wheel::us, "", {"time [ms]", 2, 1e-3}}};
}

struct Cart {
  std::string name;
  std::optional<double> loss = {};
  std::optional<Wheel> spare = {};
  std::vector<Wheel> wheels = {};
  std::map<std::string, std::int64_t> counts = {};

  bool fits() const { return wheels.size() < 2; }
};

Columns<Cart> columns_of(Of<Cart>) {
  return {{"name", &Cart::name, one_of({"a", "b"}, "which of both")},
          {"loss", &Cart::loss},
          {"spare?", &Cart::spare},
          {"wheels", &Cart::wheels},
          {"counts", &Cart::counts},
          {"memory?",
           {{"wheels", [](const Cart& c) { return c.wheels.size(); }}},
           "where it does not fit",
           [](const Cart& c) { return !c.fits(); }},
          {"fits", &Cart::fits}};
}

TEST(Columns, OneListMakesJsonAndItsSchema) {
  const ordered_json small = json_of(Cart{"a", std::nullopt, std::nullopt, {{3, 1500}}, {{"x", 2}}});
  EXPECT_EQ(small.dump(),
            R"({"name":"a","loss":null,"wheels":[{"stage":3,"us":1500.0}],"counts":{"x":2},"fits":true})");
  const ordered_json large = json_of(Cart{"b", 0.5, Wheel{1, 2}, {{}, {}}, {}});
  EXPECT_EQ(large.dump(), R"({"name":"b","loss":0.5,"spare":{"stage":1,"us":2.0},)"
                          R"("wheels":[{"stage":0,"us":0.0},{"stage":0,"us":0.0}],"counts":{},)"
                          R"("memory":{"wheels":2},"fits":false})");

  const ordered_json schema = schema_of<Cart>();
  EXPECT_EQ(schema["required"], (ordered_json{"name", "loss", "wheels", "counts", "fits"}));
  EXPECT_EQ(schema["additionalProperties"], false);
  const ordered_json& of = schema["properties"];
  EXPECT_EQ(of.size(), large.size());
  for (const auto& [key, value] : large.items()) EXPECT_TRUE(of.contains(key)) << key;
  EXPECT_EQ(of["name"].dump(), R"({"type":"string","enum":["a","b"],"description":"which of both"})");
  EXPECT_EQ(of["loss"].dump(), R"({"type":["number","null"]})");
  EXPECT_EQ(of["counts"].dump(), R"({"type":"object","additionalProperties":{"type":"integer"}})");
  EXPECT_EQ(of["wheels"]["items"], schema_of<Wheel>());
  EXPECT_EQ(of["spare"], schema_of<Wheel>());
  EXPECT_EQ(of["memory"]["required"], ordered_json::array({"wheels"}));
}

TEST(Columns, OneListMakesATable) {
  const Columns<Wheel> columns = columns_of(Of<Wheel>{});
  const std::vector<Table::Column> heads = columns.heads({{"cart"}});
  ASSERT_EQ(heads.size(), 3U);
  EXPECT_EQ(heads[1].name, "stage");
  EXPECT_EQ(heads[2].name, "time [ms]");
  EXPECT_EQ(columns.cells({"a"}, {3, 1500}), (std::vector<std::string>{"a", "3", "1.50"}));
}

TEST(Columns, AListIsPartOfAnother) {
  struct Owner {
    Wheel wheel;
  };
  Columns<Owner> columns{{"owner", [](const Owner&) { return "nobody"; }}};
  columns.add(columns_of(Of<Wheel>{}), &Owner::wheel);
  EXPECT_EQ(columns.json({{7, 1}}).dump(), R"({"owner":"nobody","stage":7,"us":1.0})");
  EXPECT_EQ(columns.schema()["required"], (ordered_json{"owner", "stage", "us"}));
}

TEST(Columns, EitherListOfFiguresHolds) {
  Columns<Cart> columns{{"name", &Cart::name}};
  columns.either(&Cart::fits, {{"wheels", [](const Cart& c) { return c.wheels.size(); }}},
                 {{"error", [](const Cart&) { return "too many wheels"; }}});
  EXPECT_EQ(columns.json({"a"}).dump(), R"({"name":"a","wheels":0})");
  EXPECT_EQ(columns.json({"b", {}, {}, {{}, {}}, {}}).dump(), R"({"name":"b","error":"too many wheels"})");
  const ordered_json schema = columns.schema();
  EXPECT_EQ(schema["required"], ordered_json::array({"name"}));
  EXPECT_EQ(schema["anyOf"].dump(), R"([{"required":["wheels"]},{"required":["error"]}])");
  EXPECT_TRUE(schema["properties"].contains("wheels"));
  EXPECT_TRUE(schema["properties"].contains("error"));
}

TEST(Columns, APartMayBeMissing) {
  Columns<Cart> columns;
  columns.add(columns_of(Of<Wheel>{}), &Cart::spare);
  EXPECT_EQ(columns.json({"a", {}, Wheel{4, 1}}).dump(), R"({"stage":4,"us":1.0})");
  EXPECT_EQ(columns.json({"a"}).dump(), "{}");
  EXPECT_TRUE(columns.schema()["required"].empty());
}

TEST(Columns, SomeInAnotherOrderAndAListOfThem) {
  Columns<Cart> columns;
  columns.list("wheels", columns_of(Of<Wheel>{}).some({"us", "stage"}), &Cart::wheels, "of the cart");
  EXPECT_EQ(columns.json({"a", {}, {}, {{3, 2}}, {}}).dump(), R"({"wheels":[{"us":2.0,"stage":3}]})");
  const ordered_json of = columns.schema()["properties"]["wheels"];
  EXPECT_EQ(of["items"]["required"], (ordered_json{"us", "stage"}));
  EXPECT_EQ(of["description"], "of the cart");
}

TEST(Columns, ATableShowsWhatJsonDoesNot) {
  const Columns<Cart> columns{
      {"loss", &Cart::loss, "", {"loss", [](double loss) { return fmt::format("{:.0f} %", 100 * loss); }}},
      {"", &Cart::fits, "", "fits"}};
  EXPECT_EQ(table_of(columns, std::vector<Cart>{{"a", 0.5}, {"b", {}, {}, {{}, {}}, {}}}).csv(),
            "loss,fits\n50 %,yes\n-,no\n");
  EXPECT_EQ(columns.json({"a", 0.5}).dump(), R"({"loss":0.5})");
  EXPECT_EQ(columns.schema()["properties"].size(), 1U);
}

}  // namespace
}  // namespace moesim::tools
