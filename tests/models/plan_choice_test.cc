// Open parts of a question's plan: what is chosen, what stays, where nothing can be chosen.
#include "models/question/plan_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/answers/answer.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"
#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

Scenario open_step(const std::string& cluster) {
  Scenario s;
  s.model = testing::small_model();
  s.cluster = testing::cluster_named(cluster);
  s.give("cluster");
  s.scope = Scenario::Scope::kStep;
  s.batch = GlobalBatch::parse("64");
  s.give("parallel.global_batch");
  s.parallel.seq = 64;
  return s;
}

TEST(PlanChoice, FillsTheStepWithTheFastestPlanThatFits) {
  Scenario s = open_step("dgx-h100x1");
  const ChosenPlan chosen = choose_plan(s, 1);
  s.resolve();
  EXPECT_EQ(s.parallel.world(), 8);
  EXPECT_EQ(s.parallel.dp * s.parallel.microbatches * s.parallel.micro_batch, 64);
  EXPECT_THAT(chosen.options, HasSubstr("--tp "));
  EXPECT_THAT(chosen.options, HasSubstr("--ep "));
  EXPECT_THAT(chosen.options, HasSubstr("--global-batch 64"));
  // No single size of it is better at another value.
  const auto seconds = [](Scenario plan) {
    plan.set_dispatchers("alltoall");
    return answer(std::move(plan), {.draws = 0}).answers.front().time_us.value;
  };
  const double best = seconds(s);
  for (const std::int64_t ep : {1, 2, 4, 8}) {
    if (s.parallel.tp * s.parallel.dp % ep != 0) continue;
    Scenario other = s;
    other.parallel.ep = ep;
    EXPECT_GE(seconds(other), best * (1 - 1e-9)) << "ep " << ep;
  }
  for (const std::int64_t micro : {1, 2, 4, 8, 16, 32, 64}) {
    Scenario other = s;
    other.parallel.micro_batch = micro;
    if (s.batch.microbatches(s.parallel.dp, micro, 64) == 0) continue;
    if (s.parallel.vpp > 1 && s.batch.microbatches(s.parallel.dp, micro, 64) % s.parallel.pp != 0) continue;
    EXPECT_GE(seconds(other), best * (1 - 1e-9)) << "micro-batch " << micro;
  }
}

TEST(PlanChoice, GivenSettingsStay) {
  Scenario s = open_step("dgx-h100x2");
  s.parallel.ep = 2, s.parallel.pp = 2;
  s.give("parallel.ep"), s.give("parallel.pp");
  choose_plan(s, 1);
  s.resolve();
  EXPECT_EQ(s.parallel.ep, 2);
  EXPECT_EQ(s.parallel.pp, 2);
  EXPECT_EQ(s.parallel.world(), 16);
}

TEST(PlanChoice, ItsOptionsSayTheSamePlan) {
  Scenario s = open_step("h100");
  s.gpus = 16;
  s.give("gpus");
  choose_plan(s, 1);
  Scenario again = s;
  // Nothing is open any more.
  const ChosenPlan second = choose_plan(again, 1);
  EXPECT_EQ(to_json(again), to_json(s));
  EXPECT_THAT(second.options, HasSubstr("--tp "));
}

TEST(PlanChoice, WithoutGpusThereAreAsFewNodesAsAPlanFits) {
  Scenario s;
  s.model = Architecture::load("mixtral-8x7b");
  s.cluster = testing::cluster_named("h100");
  s.scope = Scenario::Scope::kStep;
  const ChosenPlan chosen = choose_plan(s, 1);
  EXPECT_THAT(chosen.options, HasSubstr("--gpus "));
  EXPECT_THAT(chosen.because, HasSubstr("4.2 M tokens"));
  s.resolve();
  const Answer found = answer(s, {.draws = 0}).answers.back();
  EXPECT_TRUE(found.memory.fits);
  if (s.gpus > 8) {
    Scenario half = s;
    for (const char* path : {"parallel.tp", "parallel.pp", "parallel.ep"})
      half.given.reset(index_of(*find_field(path)));
    half.given.reset();
    half.parallel = Parallel{};
    half.cluster = testing::cluster_named("h100");
    half.gpus = s.gpus / 2;
    half.give("gpus");
    EXPECT_THAT(message_of([&] { choose_plan(half, 1); }), HasSubstr("plan: found no plan of mixtral-8x7b"));
  }
}

TEST(PlanChoice, SaysWhatWouldHelpWhereNothingFits) {
  Scenario s;
  s.model = Architecture::load("deepseek-v3");
  s.cluster = testing::cluster_named("dgx-h100x2");
  s.scope = Scenario::Scope::kStep;
  EXPECT_THAT(
      message_of([&] { choose_plan(s, 1); }),
      HasSubstr(
          "found no plan of deepseek-v3 with which 16 GPUs of 85.02 GB hold it for sure; expected 256 GPUs, "
          "or sizes (--ep 8)"));
}

// A framework's rules hold for what is chosen, and are named where nothing keeps them.
TEST(PlanChoice, KeepsTheRulesOfAFramework) {
  Scenario free = open_step("dgx-h100x1");
  choose_plan(free, 1);
  const std::int64_t ep = free.parallel.ep;
  Scenario ruled = open_step("dgx-h100x1");
  choose_plan(ruled, 1, [&](const Scenario& s) { return s.parallel.ep == ep ? "rule X" : ""; });
  EXPECT_NE(ruled.parallel.ep, ep);
  EXPECT_THAT(message_of([&] {
                Scenario none = open_step("dgx-h100x1");
                choose_plan(none, 1, [](const Scenario&) { return "rule X"; });
              }),
              HasSubstr("found no legal plan"));
}

TEST(PlanChoice, MicrobatchesFollowFromThePlan) {
  Scenario s = open_step("dgx-h100x1");
  s.batch = {};
  s.parallel.microbatches = 4;
  s.give("parallel.microbatches");
  EXPECT_THAT(message_of([&] { choose_plan(s, 1); }), HasSubstr("expected --global-batch"));
}

TEST(PlanChoice, TakesTheLargestEpThatThereIsRoomForAtBothScopes) {
  Scenario::Scope scope = Scenario::Scope::kLayer;
  const auto chosen = [&](const std::string& model, const std::string& cluster, std::int64_t tp,
                          std::int64_t etp) {
    Scenario s;
    s.scope = scope;
    s.model = Architecture::load(model);
    s.cluster = testing::cluster_named(cluster);
    s.parallel.tp = tp, s.parallel.etp = etp;
    choose_expert_parallel(s);
    EXPECT_EQ(s.origin_of("parallel.ep").kind, Origin::Kind::kSearched);
    s.resolve();
    return s.parallel.ep;
  };
  for (const auto each : {Scenario::Scope::kLayer, Scenario::Scope::kStep}) {
    scope = each;
    EXPECT_EQ(chosen("mixtral-8x7b", "dgx-h100x4", 1, 1), 8);  // all experts
    EXPECT_EQ(chosen("deepseek-v3", "dgx-h100x4", 1, 1), 32);  // all GPUs
    EXPECT_EQ(chosen("deepseek-v3", "dgx-h100x4", 2, 2), 16);  // ETP takes its part of them
    EXPECT_EQ(chosen("deepseek-v2", "dgx-h100x3", 1, 1), 20);  // a divisor of 160 experts
    EXPECT_EQ(chosen("qwen3-30b-a3b", "h100", 1, 1), 8);       // one node where their number is open
  }
  Scenario said;
  said.model = Architecture::load("mixtral-8x7b");
  said.cluster = testing::cluster_named("dgx-h100x1");
  said.parallel.ep = 2;
  said.give("parallel.ep");
  EXPECT_EQ(choose_expert_parallel(said).options, "");
  EXPECT_EQ(said.parallel.ep, 2);
}

// The rules by which EP is chosen are those by which a scenario is refused.
TEST(PlanChoice, ChoosesTheLargestEpThatNothingRefuses) {
  const auto largest = [](const Scenario& s) {
    Scenario open = s;
    if (!open.cluster) open.set_cluster("dgx-h100");
    if (open.gpus_open()) open.gpus = open.cluster->gpus_per_node * open.parallel.pp;
    for (std::int64_t ep = s.model.experts; ep > 1; --ep) {
      Scenario one = open;
      one.parallel.ep = ep;
      if (s.model.experts % ep == 0 && message_of([&] { one.resolve(); }).empty()) return ep;
    }
    return std::int64_t{1};
  };
  Scenario s;
  for (const char* model : {"mixtral-8x7b", "deepseek-v2"})
    for (const char* cluster : {"h100", "dgx-h100x3", "gb200-nvl72x1", "gb200-nvl72x3"})
      for (const std::int64_t tp : {1, 2, 4})
        for (const std::int64_t etp : {1, 2})
          for (const std::int64_t pp : {1, 2})
            for (const std::int64_t dp : {0, 4, 12})
              for (const std::int64_t shard : {0, 4}) {
                s = Scenario();
                s.set_model(model);
                s.set_cluster(cluster);
                s.scope = Scenario::Scope::kStep;
                s.parallel.tp = tp, s.parallel.etp = etp, s.parallel.pp = pp;
                if (dp > 0) s.parallel.dp = dp, s.give("parallel.dp");
                if (shard > 0)
                  set_field(*find_field("training.sharding"), s, fmt::format("hsdp:shard={}", shard));
                const std::int64_t expected = largest(s);
                choose_expert_parallel(s);
                EXPECT_EQ(s.parallel.ep, expected)
                    << model << " on " << cluster << ", tp " << tp << " etp " << etp << " pp " << pp << " dp "
                    << dp << " shard " << shard;
              }
}

}  // namespace
}  // namespace moesim::models
