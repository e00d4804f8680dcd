// Dispatchers by name: texts and JSON that read back, their options, and the rule that holds for all of them. Mistakes
// stand in tests/cases/scenarios/refused.json.
#include "models/dispatchers/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/workload/dispatcher_spec.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(DispatcherOptions, ListsAreReadWhole) {
  EXPECT_EQ(parse_dispatchers("all").size(), dispatcher_registry().size());
  EXPECT_EQ(parse_dispatchers("allgather, alltoall:pad_rows=16").size(), 2u);
}

TEST(DispatcherOptions, FromJson) {
  const DispatcherSpec spec = DispatcherSpec::parse(
      JsonNode::parse(R"({"name": "alltoall", "capacity_factor": 1.5, "pad": true})", "s.json"));
  EXPECT_EQ(spec.text(), "alltoall:capacity_factor=1.5:pad=true");
  EXPECT_NO_THROW(make_dispatcher(spec));
  const DispatcherSpec bad =
      DispatcherSpec::parse(JsonNode::parse("{\"name\": \"alltoall\",\n \"pud\": true}", "s.json"));
  EXPECT_THROW(make_dispatcher(bad), InputError);
}

TEST(DispatcherRules, ARankHoldsWholeExpertsUnlessTheDispatcherSplitsThem) {
  const Routing routing = make_routing(RoutingSpec(), 4, 8, 2, 1, 1);
  const MoeLayer layer = example_layer(routing);
  int splitting = 0;
  for (const DispatcherEntry& entry : dispatcher_registry()) {
    const std::string name(entry.name);
    const bool splits = make_dispatcher(DispatcherSpec::parse(name))->splits_experts();
    const std::string whole = "ep 4 must divide the 2 experts: a rank holds whole experts";
    if (splits)
      EXPECT_NE(rule(name, layer), whole) << name;
    else
      EXPECT_EQ(rule(name, layer), whole) << name;
    splitting += splits ? 1 : 0;
  }
  EXPECT_EQ(splitting, 4);  // MegaBlocks' and expert tensor parallelism
}

TEST(DispatcherRegistry, NamesAreDistinctAndSummariesOneLine) {
  std::set<std::string_view> names;
  for (const DispatcherEntry& entry : dispatcher_registry()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_FALSE(entry.summary.empty()) << entry.name;
    EXPECT_EQ(entry.summary.find('\n'), std::string_view::npos) << entry.name;
  }
}

DispatcherSpec from_json(const std::string& text) {
  return DispatcherSpec::parse(JsonNode::parse(text, "s.json"));
}

TEST(DispatcherSpec, TextIsANameAndOptions) {
  const DispatcherSpec spec = DispatcherSpec::parse(" alltoall:pad: capacity_factor=1.5");
  EXPECT_EQ(spec.name, "alltoall");
  EXPECT_EQ(spec.options.at("pad"), "true");  // a key alone switches something on
  EXPECT_EQ(spec.text(), "alltoall:capacity_factor=1.5:pad=true");
  EXPECT_EQ(DispatcherSpec::parse(spec.text()).text(), spec.text());
  const auto list = DispatcherSpec::parse_list("allgather, alltoall:pad=false");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].options.at("pad"), "false");
}

TEST(DispatcherSpec, UnderstandsCommonWordsAndAnswersByItsName) {
  const auto list = DispatcherSpec::parse_list("a2a,ag,deepep:transport=uccl,hybrid-ep");
  std::vector<std::string> names;
  for (const DispatcherSpec& spec : list) names.push_back(spec.text());
  EXPECT_EQ(names, (std::vector<std::string>{"alltoall", "allgather", "flex-deepep:transport=uccl",
                                             "flex-hybridep"}));
  EXPECT_EQ(from_json(R"({"name": "deepep"})").name, "flex-deepep");
}

TEST(DispatcherSpec, JsonIsATextOrAnObjectWithItsPlace) {
  const DispatcherSpec text = from_json(R"("alltoall:pad=true")"),
                       object = from_json("{\n\"name\": \"alltoall\", \"pad\": true}");
  EXPECT_EQ(text.text(), object.text());
  EXPECT_EQ(object.origin, "s.json:1");
  EXPECT_EQ(from_json(R"({"name": "a", "n": 3, "x": 1.5, "s": "t"})").text(), "a:n=3:s=t:x=1.5");
}

TEST(DispatcherSpec, IsWrittenAsATextWhereThatReadsBack) {
  EXPECT_EQ(from_json(R"({"name": "alltoall", "pad": true})").to_json(), "alltoall:pad=true");
  // A value with a colon would be read as two options.
  const DispatcherSpec odd = from_json(R"({"name": "own", "path": "a:b"})");
  ASSERT_TRUE(odd.to_json().is_object());
  EXPECT_EQ(from_json(odd.to_json().dump()).options, odd.options);
}

}  // namespace
}  // namespace moesim::models::testing
