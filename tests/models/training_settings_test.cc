// Execution of a step, by name: the effect of every word, and one line for each mistake.
#include "models/workload/training_settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "models/workload/fields.h"
#include "models/workload/scenario.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;

TEST(OptimizerTypes, RoundTripAndOneLineForMistakes) {
  for (const char* text : {"fp32,fp32,fp32", "fp32,bf16,bf16", "bf16,fp8,fp16"})
    EXPECT_EQ(OptimizerTypes::parse(text).text(), text);
  EXPECT_EQ(OptimizerTypes::parse("fp32,bf16,fp8").bytes(), 7);
  for (const char* text :
       {"", "fp32", "fp32,bf16", "fp32,bf16,bf16,bf16", "fp32,int8,bf16", "fp64,bf16,bf16"})
    EXPECT_THROW(OptimizerTypes::parse(text), InputError) << text;
}

TEST(OptimizerTypes, TheMistakeIsOneLine) {
  EXPECT_EQ(
      message_of([] { OptimizerTypes::parse("fp32,int8,bf16"); }),
      "optimizer dtypes: found 'fp32,int8,bf16', expected three of fp32, bf16, fp16, fp8: master weights, "
      "first and second moment, such as fp32,bf16,bf16");
}

TEST(TrainingSettings, WordsSetWhatTheySay) {
  TrainingSettings plan;
  plan.set_precision("fp8_block");
  EXPECT_EQ(plan.gemm, DType::kFp8Block);
  EXPECT_TRUE(plan.note.empty());
  plan.set_precision("nvfp4");  // never measured: MXFP8's products, and it says so
  EXPECT_EQ(plan.gemm, DType::kMxFp8);
  EXPECT_EQ(plan.precision, "nvfp4");
  EXPECT_EQ(plan.note, "NVFP4 products were never measured here: MXFP8's are taken");
  plan.set_precision("bf16");
  EXPECT_TRUE(plan.note.empty());
  plan.set_sharding("hsdp:shard=8:reshard=false:shampoo");
  EXPECT_EQ(plan.sharding, ShardingScheme::kHsdp);
  EXPECT_EQ(plan.shard_group, 8);
  EXPECT_FALSE(plan.reshard_after_forward);
  EXPECT_TRUE(plan.shampoo);
  plan.set_sharding("ddp");  // replaces all of it
  EXPECT_EQ(plan.shard_group, 0);
  EXPECT_TRUE(plan.reshard_after_forward);
  EXPECT_FALSE(plan.shampoo);
  plan.set_sharding("zero1:muon");
  EXPECT_TRUE(plan.muon);
}

TEST(TrainingSettings, EveryNameIsTakenAndNamedAgain) {
  int names = 0;
  for (const Field& field : scenario_fields())
    for (const std::string_view name : field.choices) {
      Scenario s;
      set_field(field, s, name);
      // "interleaved" is a word for 1f1b with vpp > 1.
      EXPECT_EQ(field.value(field, s), name == "interleaved" ? "1f1b" : name) << field.path;
      ++names;
    }
  EXPECT_GT(names, 40);
}

TEST(TrainingSettings, MistakesNameTheNearest) {
  Scenario s;
  const auto launch = [&](const char* name) { set_field(*find_field("training.launch"), s, name); };
  EXPECT_EQ(message_of([&] { launch("graph"); }),
            "launch: found 'graph', expected one of eager, partial-graphs, graphs; did you mean 'graphs'?");
  EXPECT_EQ(s.training.launch, LaunchMode::kEager);
}

TEST(StepOverlap, PartsAreJoined) {
  const StepOverlap both = StepOverlap::parse("expert-communication+delayed-wgrad");
  EXPECT_TRUE(both.expert_communication);
  EXPECT_TRUE(both.delayed_wgrad);
  EXPECT_FALSE(both.gradients);  // what is not named is not meant
  const StepOverlap none = StepOverlap::parse("none");
  EXPECT_FALSE(none.gradients || none.parameters || none.expert_communication || none.delayed_wgrad);
  EXPECT_EQ(StepOverlap::parse("gradients+parameters"), StepOverlap());
  EXPECT_EQ(message_of([] { StepOverlap::parse("gradient"); }),
            "overlap: found 'gradient', expected none, expert-communication, delayed-wgrad, gradients, "
            "parameters; did you mean 'gradients'?");
}

}  // namespace
}  // namespace moesim::models
