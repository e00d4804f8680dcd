// Recipes: what is built in, which one a name means, and what they set.
#include "models/recipes/framework_recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/dispatchers/dispatcher.h"
#include "models/question/apply_recipe.h"
#include "models/workload/fields.h"
#include "models/workload/scenario.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using ::testing::HasSubstr;

// A step of a model on a machine, nothing else said.
Scenario step(const char* model, const char* cluster, const char* precision = "bf16") {
  Scenario s;
  const Origin origin = Origin::said("here");
  for (const auto& [path, value] : {std::pair{"scope", "step"},
                                    {"model", model},
                                    {"cluster", cluster},
                                    {"training.precision", precision}})
    set_field(*find_field(path), s, std::string_view(value), &origin);
  return s;
}

void say(Scenario& s, const char* path, const char* value) {
  const Origin origin = Origin::said(path);
  set_field(*find_field(path), s, std::string_view(value), &origin);
}

TEST(FrameworkRecipe, EveryLineHasASourceAndSetsFieldsToValuesThatTheyTake) {
  ASSERT_GE(FrameworkRecipe::all().size(), 10u);
  for (const FrameworkRecipe& recipe : FrameworkRecipe::all()) {
    EXPECT_FALSE(recipe.about.empty()) << recipe.id();
    EXPECT_FALSE(recipe.lines.empty()) << recipe.id();
    for (const RecipeLine& line : recipe.lines) {
      EXPECT_FALSE(line.source.empty()) << recipe.id();
      EXPECT_FALSE(line.set.empty()) << recipe.id();
      for (const RecipeSetting& setting : line.set) {
        if (setting.path == kPrediction) continue;
        const Field* field = find_field(setting.path);
        ASSERT_NE(field, nullptr) << recipe.id() << ' ' << setting.path;
        // A part of a field says less than the field: a recipe names the parts.
        for (const Field& other : scenario_fields())
          EXPECT_FALSE(other.path.starts_with(setting.path + ".")) << setting.path;
        const bool computed =
            setting.value->is_string() && setting.value->get<std::string>().starts_with('=');
        Scenario s;
        if (computed) continue;
        EXPECT_NO_THROW(set_field(*field, s, JsonNode::from_json(*setting.value, recipe.id())));
        if (setting.path == "dispatcher") {
          EXPECT_NO_THROW(make_dispatcher(s.dispatchers.front()));
        }
      }
    }
    for (const std::string& name : recipe.runs.dispatchers)
      EXPECT_NO_THROW(make_dispatcher(DispatcherSpec::parse(name))) << recipe.id();
    Scenario plan;
    for (const std::string& name : recipe.runs.schedules)
      EXPECT_NO_THROW(set_field(*find_field("training.schedule"), plan, name));
    for (const std::string& name : recipe.runs.launches)
      EXPECT_NO_THROW(set_field(*find_field("training.launch"), plan, name));
  }
}

TEST(FrameworkRecipe, ANameHasItsNewestReleaseAndAReleaseItsOwn) {
  EXPECT_EQ(FrameworkRecipe::find("megatron-bridge").id(), "megatron-bridge@26.08");
  // Patches count as their release; one without a file has what held before it.
  EXPECT_EQ(FrameworkRecipe::find("megatron-bridge@26.06.01").lines.size(),
            FrameworkRecipe::find("megatron-bridge@26.07").lines.size());
  EXPECT_EQ(FrameworkRecipe::find("megatron-bridge@26.04").id(), "megatron-bridge@26.04");
  EXPECT_LT(FrameworkRecipe::find("megatron-bridge@26.04").lines.size(),
            FrameworkRecipe::find("megatron-bridge").lines.size());
  EXPECT_EQ(FrameworkRecipe::find("torchtitan").id(), "torchtitan");
  EXPECT_THAT(testing::message_of([] { FrameworkRecipe::find("megatron-brige"); }),
              HasSubstr("did you mean 'megatron-bridge'?"));
  EXPECT_THAT(testing::message_of([] { FrameworkRecipe::find("megatron-bridge@new"); }),
              HasSubstr("expected a version"));
}

TEST(FrameworkRecipe, FreeNamesOfTablesAndLogsAreRecognised) {
  const auto id = [](const char* text) {
    const auto recipe = FrameworkRecipe::recognise(text);
    return recipe ? recipe->id() : std::string("none");
  };
  // One submission as two tables write it (issue 37, point 2).
  EXPECT_EQ(id("Megatron (NeMo 26.04, MLPerf v6.0)"), "mlperf-nemo@26.04");
  EXPECT_EQ(id("Megatron-Bridge / NeMo 26.04 (MLPerf v6.0)"), "mlperf-nemo@26.04");
  EXPECT_EQ(id("Megatron-Bridge 26.04.01"), "megatron-bridge@26.04");
  EXPECT_EQ(id("Megatron-Bridge 26.08 dev (model card)"), "megatron-bridge-card");
  EXPECT_EQ(id("Megatron-Bridge 2026-05"), "megatron-bridge@26.05");
  EXPECT_EQ(id("Megatron-Bridge (2026)"), "megatron-bridge@26.08");
  EXPECT_EQ(id("Megatron-Core 0.17.1 (Bridge 0.4.2 library recipe, not a performance preset)"),
            "megatron-lm-stock");
  EXPECT_EQ(id("Megatron-Core (Bridge 2026-04, V2 base configuration)"), "megatron-core-recipe");
  EXPECT_EQ(id("MaxText (JAX) + Primus-Turbo, container v26.2"), "maxtext");
  EXPECT_EQ(id("Primus (Megatron) + Primus-Turbo"), "primus");
  EXPECT_EQ(id("Primus (torchtitan)"), "torchtitan");
  EXPECT_EQ(id("torchtitan (Nous fork)"), "torchtitan");
  EXPECT_EQ(id("JAX (levanter grug)"), "levanter");
  EXPECT_EQ(id("NeMo Automodel FSDP2"), "nemo-automodel");
  EXPECT_EQ(id("MCore w/ Folding"), "parallel-folding");
  EXPECT_EQ(id("DeepSpeed AutoEP"), "deepspeed");
  EXPECT_EQ(id("in-house"), "none");
  EXPECT_EQ(id(""), "none");
}

TEST(ApplyRecipe, WhatWasSaidStandsBeforeTheRecipeAndTheRecipeBeforeTheDefault) {
  Scenario s = step("deepseek-v3", "gb200-nvl72x4");
  say(s, "training.recompute", "none");
  say(s, "training.overlap", "gradients");  // and with it all its parts
  apply(FrameworkRecipe::find("megatron-bridge@26.04"), s);
  EXPECT_EQ(s.training.recompute.text(), "none");
  EXPECT_EQ(s.origin_of("training.recompute").kind, Origin::Kind::kSaid);
  EXPECT_FALSE(s.training.overlap.expert_communication);
  EXPECT_FALSE(s.training.overlap.parameters);
  EXPECT_EQ(s.training.launch, LaunchMode::kPartialGraphs);
  EXPECT_EQ(s.origin_of("training.launch"), (Origin{Origin::Kind::kRecipe, "megatron-bridge@26.04"}));
  EXPECT_EQ(s.training.gradient_bytes, 2);
  EXPECT_EQ(s.training.optimizer.text(), "fp32,bf16,bf16");
  EXPECT_EQ(s.dispatchers.front().text(), "flex-hybridep");
  EXPECT_EQ(s.origin_of("parallel.seq").kind, Origin::Kind::kDefault);
}

TEST(ApplyRecipe, FullIterationGraphsCameWith2606) {
  const auto launch = [](const char* recipe) {
    Scenario s = step("deepseek-v3", "gb200-nvl72x4", "mxfp8");
    apply(FrameworkRecipe::find(recipe), s);
    return s.training.launch;
  };
  EXPECT_EQ(launch("megatron-bridge@26.04"), LaunchMode::kPartialGraphs);
  EXPECT_EQ(launch("megatron-bridge@26.06"), LaunchMode::kGraphs);
  EXPECT_EQ(launch("mlperf-nemo"), LaunchMode::kGraphs);
}

// A recipe sets a static budget and fused kernels with a graph of the whole step, and not where the user said another
// launch.
TEST(ApplyRecipe, AStaticBudgetComesWithTheGraph) {
  Scenario s = step("qwen3-30b-a3b", "gb200-nvl72x1", "mxfp8");
  apply(FrameworkRecipe::find("megatron-bridge"), s);
  EXPECT_EQ(s.dispatchers.front().options.at("mode"), "static");
  EXPECT_TRUE(s.training.fused_kernels);
  Scenario said = step("qwen3-30b-a3b", "gb200-nvl72x1", "mxfp8");
  set_field(*find_field("training.launch"), said, "partial-graphs");
  apply(FrameworkRecipe::find("megatron-bridge"), said);
  EXPECT_TRUE(said.dispatchers.front().options.empty());
  EXPECT_FALSE(said.training.fused_kernels);
}

// A recipe sets other values on another machine; it keeps what the user said.
TEST(ApplyRecipe, IsTakenAgainOnAnotherMachine) {
  Scenario s = step("deepseek-v3", "h100x32", "mxfp8");
  say(s, "training.gradient_bytes", "4");
  take_recipe(s, "megatron-bridge");
  EXPECT_EQ(s.training.launch, LaunchMode::kEager);
  say(s, "cluster", "gb200-nvl72x4");
  take_recipe(s, "megatron-bridge");
  Scenario there = step("deepseek-v3", "gb200-nvl72x4", "mxfp8");
  say(there, "training.gradient_bytes", "4");
  take_recipe(there, "megatron-bridge");
  EXPECT_EQ(s.training.launch, LaunchMode::kGraphs);
  EXPECT_EQ(s.training.gradient_bytes, 4);
  EXPECT_EQ(to_json(s), to_json(there));
  EXPECT_EQ(s.dispatchers.front().text(), there.dispatchers.front().text());
}

TEST(ApplyRecipe, AConditionOnThePlanDecidesAmongPresets) {
  const auto dispatcher = [](const char* pp) {
    Scenario s = step("deepseek-v3", "dgx-b200x32");
    say(s, "parallel.pp", pp);
    apply(FrameworkRecipe::find("megatron-bridge"), s);
    return s.dispatchers.front().text();
  };
  EXPECT_EQ(dispatcher("8"), "flex-deepep");
  EXPECT_EQ(dispatcher("16"), "flex-hybridep");
}

TEST(ApplyRecipe, BeforeFoldingExpertsAreSplitLikeTheDensePart) {
  const auto made = [](const char* framework) {
    Scenario s = step("mixtral-8x22b", "dgx-h100x16");
    say(s, "parallel.tp", "4"), say(s, "parallel.pp", "8"), say(s, "parallel.ep", "4");
    say(s, "parallel.global_batch", "256");
    apply(FrameworkRecipe::find("parallel-folding"), s, {{"framework", framework}});
    return s;
  };
  const Scenario before = made("mcore"), after = made("mcore w/ folding");
  EXPECT_TRUE(before.training.unfolded);
  EXPECT_EQ(before.parallel.etp, 4);
  EXPECT_FALSE(after.training.unfolded);
  EXPECT_EQ(after.parallel.etp, 1);
  EXPECT_EQ(before.parallel.vpp, 56 / 8);
}

TEST(ApplyRecipe, ALayerAndADenseModelHaveNoPartForSomeOfIt) {
  Scenario layer = step("deepseek-v3", "gb200-nvl72x1", "mxfp8");
  say(layer, "scope", "layer");
  apply(FrameworkRecipe::find("mlperf-nemo"), layer);
  EXPECT_EQ(unused_field(layer), nullptr);
  EXPECT_EQ(layer.training.launch, LaunchMode::kGraphs);
  Scenario dense = step("Llama3 8B", "dgx-h100x1");
  apply(FrameworkRecipe::find("nemo-automodel"), dense);
  EXPECT_NO_THROW(dense.resolve());
  EXPECT_EQ(dense.training.sharding, ShardingScheme::kFsdp);
}

TEST(ApplyRecipe, LayersOfPredictionAreTheFrameworksUnlessTheyWereSaid) {
  Scenario built_in = step("deepseek-v3", "dgx-h100x128"), said = built_in;
  say(said, "model", R"({"base": "deepseek-v3", "mtp_layers": 2})");
  for (Scenario* s : {&built_in, &said}) apply(FrameworkRecipe::find("nemo-automodel"), *s);
  EXPECT_EQ(built_in.model.mtp_layers, 0);
  EXPECT_EQ(said.model.mtp_layers, 2);
}

TEST(ApplyRecipe, ADispatcherThatIsNamedAloneHasTheOptionsOfTheRecipe) {
  const auto made = [](const char* said) {
    Scenario s = step("deepseek-v3", "gb200-nvl72x4", "mxfp8");
    say(s, "dispatcher", said);
    apply(FrameworkRecipe::find("mlperf-nemo"), s);
    return s.dispatchers.front().text();
  };
  EXPECT_EQ(made("flex-hybridep"), "flex-hybridep:sms=32");
  EXPECT_EQ(made("flex-hybridep:sms=16"), "flex-hybridep:sms=16");
  EXPECT_EQ(made("alltoall"), "alltoall");
}

TEST(ApplyRecipe, WhatAFrameworkRunsCanBeAsked) {
  const FrameworkRecipe bridge = FrameworkRecipe::find("megatron-bridge@26.04");
  EXPECT_TRUE(bridge.runs_dispatcher("flex-deepep"));
  EXPECT_FALSE(bridge.runs_dispatcher("torchtitan-alltoall"));
  EXPECT_FALSE(bridge.runs_schedule("dualpipe"));
  EXPECT_FALSE(bridge.runs_launch("graphs"));
  EXPECT_TRUE(FrameworkRecipe::find("megatron-bridge").runs_launch("graphs"));
  EXPECT_TRUE(FrameworkRecipe::find("maxtext").runs_dispatcher("alltoall"));  // it does not say
}

TEST(ApplyRecipe, AnUnknownFrameworkIsAsUncertainAsTheRecipesDiffer) {
  const Scenario s = step("qwen3-30b-a3b", "dgx-h100x1");
  EXPECT_NEAR(spread_of_unknown(s, [](const Scenario&) { return 2.0; }), 0, 1e-12);
  const double spread = spread_of_unknown(
      s, [](const Scenario& as) { return as.training.sharding == ShardingScheme::kFsdp ? 2.0 : 1.0; });
  EXPECT_GT(spread, 0.1);
  EXPECT_LT(spread, 1);
  EXPECT_EQ(spread_of_unknown(s, [](const Scenario&) -> double { throw InputError("no"); }), 0);
}

TEST(FrameworkRecipe, AFileThatSaysNoSourceIsRefusedWithItsLine) {
  const auto parse = [](const char* text) {
    return testing::message_of([&] { FrameworkRecipe::parse(JsonNode::parse(text, "r.json"), {}); });
  };
  EXPECT_THAT(
      parse(
          "{\"name\": \"a\", \"about\": \"b\", \"lines\": [\n{\"set\": {\"training.launch\": \"eager\"}}]}"),
      HasSubstr("r.json:2"));
  EXPECT_THAT(parse("{\"name\": \"a\", \"about\": \"b\", \"lines\": [], \"setings\": 1}"),
              HasSubstr("setings"));
}

}  // namespace
}  // namespace moesim::models
