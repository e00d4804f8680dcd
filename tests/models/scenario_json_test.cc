// Scenarios as files: keys and their places, older paths, short forms, and what stands in the place of what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "models/workload/fields.h"
#include "models/workload/scenario.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

Scenario scenario_of(const json& value) { return Scenario::parse(JsonNode::from_json(value, "s.json")); }
Scenario scenario_in(const std::string& text) { return Scenario::parse(JsonNode::parse(text, "s.json")); }

TEST(ScenarioJson, AnOlderPathStillReads) {
  EXPECT_EQ(to_json(scenario_in(R"({"recompute": "full"})")),
            to_json(scenario_in(R"({"training": {"recompute": "full"}})")));
  EXPECT_EQ(to_json(scenario_in(R"({"sharding": "hsdp:shard=4"})")),
            to_json(scenario_in(R"({"training": {"sharding": "hsdp", "shard_group": 4}})")));
  EXPECT_THAT(
      message_of([] { scenario_in("{\"recompute\": \"full\",\n \"training\": {\"recompute\": \"none\"}}"); }),
      AllOf(HasSubstr("s.json:2"), HasSubstr("both recompute and training.recompute")));
  EXPECT_EQ(
      scenario_in(R"({"training": {"shard_group": 2}, "sharding": "hsdp:shard=4"})").training.shard_group, 2);
}

TEST(ScenarioJson, UnknownKeysNameTheNearestAndTheLine) {
  EXPECT_THAT(message_of([] { scenario_in("{\"parallel\": {\n\"epp\": 8}}"); }),
              AllOf(HasSubstr("s.json:2: unknown key 'parallel.epp'"), HasSubstr("did you mean 'ep'")));
  EXPECT_THAT(message_of([] { scenario_in(R"({"training": {"overlap": {"gradient": true}}})"); }),
              AllOf(HasSubstr("training.overlap.gradient"), HasSubstr("did you mean 'gradients'")));
  EXPECT_THAT(message_of([] { scenario_in(R"({"faults": {"slow_gpu": []}})"); }), HasSubstr("slow_gpus"));
  EXPECT_THAT(message_of([] { scenario_in("{\n\"training\": {\"schedule\": \"zerobubble\"}}"); }),
              AllOf(HasSubstr("s.json:2"), HasSubstr("did you mean 'zero-bubble'")));
  EXPECT_THAT(message_of([] { scenario_in(R"({"parallel": 8})"); }), HasSubstr("expected an object"));
}

TEST(ScenarioJson, AGlobalBatchIsANumberOrAText) {
  const auto batch = [](const std::string& value) {
    return scenario_in(R"({"parallel": {"global_batch": )" + value + "}}").batch;
  };
  EXPECT_EQ(batch("1024").sequences, 1024);
  EXPECT_EQ(batch("1024").text(), batch(R"("1024")").text());
  EXPECT_THAT(message_of([&] { batch("-3"); }), HasSubstr("-3"));
  EXPECT_THAT(message_of([&] { batch("[3]"); }), HasSubstr("global_batch"));
}

TEST(ScenarioJson, SeedsOfAnySizeAreKept) {
  Scenario s;
  s.seed = 18446744073709551615ull;
  EXPECT_EQ(scenario_of(json(to_json(s))).seed, s.seed);
  EXPECT_EQ(scenario_in(R"({"seed": 9223372036854775807})").seed, 9223372036854775807ull);
  EXPECT_THAT(message_of([] { scenario_in(R"({"seed": "soon"})"); }), HasSubstr("expected a whole number"));
  EXPECT_THAT(message_of([] { scenario_in(R"({"seed": -1})"); }), HasSubstr("-1"));
}

TEST(ScenarioJson, WhatIsSaidIsGiven) {
  const Scenario s = scenario_in(R"({"model": "mixtral-8x7b", "parallel": {"ep": 8}})");
  EXPECT_EQ(s.parallel.ep, 8);
  EXPECT_TRUE(s.gave("parallel.ep"));
  EXPECT_TRUE(s.gave("model"));
  EXPECT_FALSE(s.gave("parallel.tp"));
}

// A value set later stands in the place of all that was said below it.
TEST(ScenarioJson, AnObjectReplacesWhatWasThere) {
  Scenario s = scenario_in(R"({"faults": {"jitter": 0.1, "slow_gpus": [{"gpu": 1, "factor": 2}]}})");
  ASSERT_EQ(s.faults.slow_gpus.size(), 1u);
  set_field(*find_field("faults"), s, R"({"jitter": 0.2})");
  EXPECT_EQ(s.faults.jitter, 0.2);
  EXPECT_TRUE(s.faults.slow_gpus.empty());
  EXPECT_FALSE(s.gave("faults.slow_gpus"));
  set_field(*find_field("faults.jitter"), s, "0.3");
  EXPECT_EQ(s.faults.jitter, 0.3);
}

TEST(ScenarioJson, TextsOfTheCommandLineNameTheirFlag) {
  Scenario s;
  set_field(*find_field("parallel.ep"), s, "16");
  EXPECT_EQ(s.parallel.ep, 16);
  EXPECT_THAT(message_of([&] { set_field(*find_field("parallel.ep"), s, "many"); }),
              AllOf(HasSubstr("--ep"), HasSubstr("found 'many', expected a whole number")));
  EXPECT_EQ(s.parallel.ep, 16);
}

// Faults alone are read by the same table.
TEST(ScenarioJson, FaultsAreOneOfItsObjects) {
  const Faults f = Faults::parse(JsonNode::parse(R"({"nics": [{"gpu": 3, "bandwidth": 0.5}]})", "f.json"));
  ASSERT_EQ(f.nics.size(), 1u);
  EXPECT_EQ(f.nics[0].share, 0.5);
  EXPECT_THAT(message_of([] { Faults::parse(JsonNode::parse("{\n\"nic\": []}", "f.json")); }),
              AllOf(HasSubstr("f.json:2"), HasSubstr("did you mean 'nics'")));
}

}  // namespace
}  // namespace moesim::models
