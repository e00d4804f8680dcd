// Scenarios: what follows from others, and as files: keys and their places, older paths, short forms, and what stands in
// the place of what. What contradicts stands in tests/cases/scenarios/refused.json.
#include "models/workload/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "models/workload/fields.h"
#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::small_job;

TEST(Resolve, FillsTheCluster) {
  Scenario s = small_job("dgx-h100x4");
  s.parallel.pp = 2;
  s.resolve();
  EXPECT_EQ(s.parallel.dp, 16);
  EXPECT_EQ(s.topk, 2);
  EXPECT_TRUE(s.resolved);
  // Without a cluster the smallest that holds the plan.
  Scenario alone = small_job();
  alone.cluster = nullptr;
  alone.parallel.ep = 4;
  alone.parallel.pp = 4;
  alone.resolve();
  EXPECT_EQ(alone.parallel.dp, 4);
  EXPECT_EQ(alone.cluster->name, "dgx-h100x2");
  // tp 4 x dp must be a multiple of ep 6.
  Scenario odd = small_job();
  odd.cluster = nullptr;
  odd.model.experts = 12;
  odd.parallel.tp = 4;
  odd.parallel.ep = 6;
  odd.resolve();
  EXPECT_EQ(odd.parallel.dp, 3);
  Scenario dense = small_job();
  dense.model.experts = 0;
  dense.parallel.ep = 1;
  dense.resolve();
  EXPECT_EQ(dense.dispatchers.front().name, kNoDispatcher);
}

// Whatever the plan: both grids fit a stage, and as many GPUs are used as a multiple of the plan allows.
RC_GTEST_PROP(Resolve, DataParallelismFillsWhatThePlanLeaves, ()) {
  Scenario s = small_job("dgx-h100x4");
  s.parallel.tp = *rc::gen::element<std::int64_t>(1, 2, 4);
  s.parallel.ep = *rc::gen::element<std::int64_t>(1, 2, 4, 8);
  s.parallel.pp = *rc::gen::element<std::int64_t>(1, 2, 4);
  s.resolve();
  RC_ASSERT(s.parallel.world() == 32);
  RC_ASSERT(s.parallel.tp * s.parallel.dp % s.parallel.ep == 0);
}

// A path in a file is taken from the file's folder where something stands there, else as it stands.
TEST(Beside, LooksIntoTheFoldersOfFiles) {
  const std::string source = MOESIM_SOURCE_DIR;
  EXPECT_EQ(beside(source + "/docs/none.json", "contributing.md"), source + "/docs/contributing.md");
  EXPECT_EQ(beside(source + "/docs/none.json", "nothing-here.md"), "nothing-here.md");
  EXPECT_EQ(beside(source + "/docs/none.json", "/etc/passwd"), "/etc/passwd");
}

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
