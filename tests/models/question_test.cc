// From what was said to the scenario that is answered: what stands before what, and what is taken where
// nothing was said.
#include "models/question/question.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/answers/answer.h"
#include "models/hardware/cluster.h"
#include "models/question/assumed.h"
#include "models/question/changes.h"
#include "models/workload/fields.h"
#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Question step(const std::string& cluster) {
  Question q;
  q.said.model = testing::small_model();
  q.said.cluster = testing::cluster_named(cluster);
  q.said.give("cluster", Origin::said("--cluster"));
  q.said.scope = Scenario::Scope::kStep;
  q.said.parallel.seq = 64;
  return q;
}

void say(Question& q, std::string_view path, const nlohmann::json& value) {
  set(q.said, find_path(path), value, Origin::said("--set"));
}

std::vector<std::string> names_of(const std::vector<DispatcherSpec>& specs) {
  std::vector<std::string> names;
  for (const DispatcherSpec& spec : specs) names.push_back(spec.name);
  return names;
}

TEST(Resolve, WhatWasSaidStandsBeforeTheRecipeAndThatBeforeTheDefault) {
  Question q = step("dgx-h100x1");
  say(q, "parallel.pp", 1);
  say(q, "recipe", "torchtitan");
  const Scenario by_recipe = resolve(q).scenario;
  EXPECT_EQ(by_recipe.training.sharding, ShardingScheme::kFsdp);
  EXPECT_EQ(by_recipe.origin_of("training.sharding").kind, Origin::Kind::kRecipe);
  say(q, "training.sharding", "ddp");
  const Scenario said = resolve(q).scenario;
  EXPECT_EQ(said.training.sharding, ShardingScheme::kDdp);
  EXPECT_EQ(said.origin_of("training.sharding").kind, Origin::Kind::kSaid);
  EXPECT_EQ(resolve(step("dgx-h100x1")).scenario.origin_of("training.sharding").kind, Origin::Kind::kDefault);
}

TEST(Resolve, TakesTheUsualBatchAsNearAsWholeMicrobatchesCome) {
  Question q = step("dgx-h100x1");
  say(q, "parallel.pp", 2);
  say(q, "parallel.vpp", 2);
  const Resolved r = resolve(q);
  Scenario s = r.scenario;
  s.resolve();
  EXPECT_EQ(s.parallel.microbatches % 2, 0) << "interleaved stages take them in groups";
  const double tokens =
      static_cast<double>(s.parallel.dp * s.parallel.microbatches * s.parallel.micro_batch * 64);
  EXPECT_NEAR(tokens / (1 << 22), 1, 0.01);
  EXPECT_EQ(r.scenario.origin_of("parallel.global_batch").kind, Origin::Kind::kModel);
  EXPECT_THAT(r.notes, Contains(HasSubstr("--global-batch says another")));
  say(q, "parallel.microbatches", 1);
  EXPECT_FALSE(resolve(q).scenario.batch.given());
}

TEST(Resolve, ASearchedPlanStaysUnderAChangeThatLeavesTheMachine) {
  Question q = step("dgx-h100x1");
  say(q, "parallel.global_batch", "64");
  open_plan(q);
  ASSERT_TRUE(q.search);
  Resolver resolver;
  const Resolved first = resolver.resolve(q);
  EXPECT_EQ(first.scenario.origin_of("parallel.tp").kind, Origin::Kind::kSearched);
  Question slower = q;
  say(slower, "cluster.nic.bandwidth", 1e9);
  EXPECT_EQ(resolver.resolve(slower).chosen.options, first.chosen.options);
  Question larger = q;
  say(larger, "cluster.nodes", 2);
  Scenario on_two = resolver.resolve(larger).scenario;
  on_two.resolve();
  EXPECT_EQ(on_two.parallel.world(), 16);
  // A size that is said stays, the others stay searched.
  Question wide = q;
  say(wide, "parallel.tp", 2);
  const Resolved two = resolver.resolve(wide);
  EXPECT_EQ(two.scenario.parallel.tp, 2);
  EXPECT_EQ(two.scenario.parallel.ep, first.scenario.parallel.ep);
}

TEST(Resolve, AJobsLauncherSaysTheGpusWhereTheMachineLeavesThemOpen) {
  Question q = step("h100");
  q.job = JobSource{"train.sh", {16, 8}};
  say(q, "parallel.global_batch", "64");
  EXPECT_EQ(resolve(q).scenario.gpus, 16);
  q.said.cluster = testing::cluster_named("dgx-h100x4");
  const Resolved r = resolve(q);
  EXPECT_EQ(r.scenario.gpus, 0);
  EXPECT_THAT(r.notes, Contains(HasSubstr("its launcher starts 16 GPUs; the plan is for the 32")));
  say(q, "parallel.tp", 3);
  EXPECT_THAT(message_of([&] { resolve(q); }),
              HasSubstr("32 GPUs for TP 3 x CP 1 x PP 1, expected a multiple of 3"));
}

TEST(Resolve, AJobForgetsWhatTheScopeDoesNotUseAndAUserDoesNot) {
  Question q = step("dgx-h100x1");
  q.said.scope = Scenario::Scope::kLayer;
  q.job = JobSource{"train.sh", {}};
  q.said.training.gradient_bytes = 2;
  q.said.give("training.gradient_bytes", Origin::file("train.sh:3"));
  EXPECT_FALSE(resolve(q).scenario.gave("training.gradient_bytes"));
  q.said.give("training.gradient_bytes", Origin::said("--gradient-bytes"));
  EXPECT_THAT(message_of([&] { resolve(q); }), HasSubstr("--gradient-bytes: found with scope layer"));
}

TEST(UsualDispatchers, AreThoseThatWereMeasuredOnTheMachine) {
  const auto usual = [](const char* cluster, std::int64_t ranks) {
    return names_of(usual_dispatchers(*testing::cluster_named(cluster), ranks));
  };
  EXPECT_THAT(usual("dgx-h100x1", 8), ElementsAre("allgather", "alltoall", "flex-deepep"));
  // HybridEP's rows of H100 are of groups over nodes.
  EXPECT_THAT(usual("dgx-h100x2", 16), Contains("flex-hybridep"));
  EXPECT_THAT(usual("dgx-a100x1", 8), ::testing::Not(Contains("flex-hybridep")));
}

TEST(Settings, StandWithTheirOriginsAndPartsWithTheirOwn) {
  Question q = step("dgx-h100x1");
  say(q, "parallel.ep", 4);
  say(q, "cluster.nic.bandwidth", 1e11);
  say(q, "model.shared_ffn", 256);
  Scenario s = resolve(q).scenario;
  s.resolve();
  const nlohmann::ordered_json list = settings_json(s);
  const auto at = [&](const std::string& path) -> nlohmann::ordered_json {
    for (const auto& one : list)
      if (one["path"] == path) return one;
    return nullptr;
  };
  EXPECT_EQ(at("parallel.ep")["value"], 4);
  EXPECT_EQ(at("parallel.ep")["origin"]["kind"], "said");
  EXPECT_EQ(at("cluster.nic.bandwidth")["value"], 1e11);
  EXPECT_EQ(at("model.shared_ffn")["value"], 256);
  EXPECT_TRUE(at("training.launch").is_null());
}

TEST(Assumed, TheEffectIsThatOfAskingAgain) {
  Question q = step("dgx-h100x1");
  say(q, "parallel.ep", 8);
  say(q, "parallel.microbatches", 4);
  const AnswerOptions options{.draws = 0};
  const Comparison c = answer(resolve(q).scenario, options);
  for (const Assumed& one : assumed_of(c)) {
    EXPECT_GT(std::abs(one.effect), kMatters);
    Question other = q;
    set_field(*find_field(one.path), other.said, one.alternative);
    if (one.path == "parallel.micro_batch") continue;  // of another batch here
    const Comparison again = answer(resolve(other).scenario, options);
    for (const Answer& a : again.answers)
      if (a.dispatcher == c.winner()->dispatcher) {
        EXPECT_NEAR(a.time_us.value / c.winner()->time_us.value - 1, one.effect, 1e-3) << one.text();
      }
    set_field(*find_field(one.path), q.said, one.value);
  }
  for (const Assumed& one : assumed_of(answer(resolve(q).scenario, options)))
    EXPECT_EQ(q.said.origin_of(one.path).kind, Origin::Kind::kDefault) << one.text();
}

TEST(Assumed, OffersOnlyWhatFits) {
  Question q;
  q.said = Scenario::parse(JsonNode::parse(R"({"model": "qwen3-235b-a22b", "cluster": "dgx-h100x32",
      "scope": "step", "parallel": {"tp": 2, "pp": 8, "ep": 32, "global_batch": 2048}})",
                                           "s.json"));
  const AnswerOptions options{.draws = 0};
  const Comparison c = answer(resolve(q).scenario, options);
  ASSERT_TRUE(c.winner()->memory.fits);
  for (const Assumed& one : assumed_of(c)) {
    Question other = q;
    set_field(*find_field(one.path), other.said, one.alternative);
    for (const Answer& a : answer(resolve(other).scenario, options).answers)
      if (a.dispatcher == c.winner()->dispatcher) {
        EXPECT_TRUE(a.memory.fits) << one.text();
      }
  }
}

}  // namespace
}  // namespace moesim::models
