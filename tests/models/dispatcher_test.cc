// Dispatchers by name: their options, and the rule that holds for all of them.
#include "models/dispatchers/dispatcher.h"

#include <gtest/gtest.h>

#include <set>

#include "base/input_error.h"
#include "base/json_reader.h"
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

}  // namespace
}  // namespace moesim::models::testing
