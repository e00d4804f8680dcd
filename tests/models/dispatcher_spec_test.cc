// Requested dispatchers: texts and JSON that read back, and their mistakes.
#include "models/workload/dispatcher_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;

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

TEST(DispatcherSpec, MistakesAreOneLine) {
  EXPECT_EQ(message_of([] { DispatcherSpec::parse("alltoall:=3"); }),
            "--dispatcher: found 'alltoall:=3', expected name:key=value");
  EXPECT_EQ(message_of([] { DispatcherSpec::parse("alltoall:pad:pad=0"); }),
            "--dispatcher: found option 'pad' twice in 'alltoall:pad:pad=0'");
  EXPECT_THAT(message_of([] { from_json("{\n\"pad\": true}"); }),
              ::testing::HasSubstr("found no \"name\", expected the name of a dispatcher"));
  EXPECT_THAT(message_of([] { from_json("{\"name\": \"a\",\n\"pad\": [1]}"); }),
              ::testing::AllOf(::testing::HasSubstr("s.json:2"),
                               ::testing::HasSubstr("expected a string, number or boolean")));
  EXPECT_THAT(message_of([] { from_json("3"); }), ::testing::HasSubstr("a dispatcher's name or an object"));
}

}  // namespace
}  // namespace moesim::models
