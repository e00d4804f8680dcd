// Recomputation in backward, by name.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "models/workload/training_settings.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

TEST(StepRecompute, ShortAndOtherNamesAreMegatrons) {
  EXPECT_FALSE(StepRecompute::parse("none").any());
  EXPECT_FALSE(StepRecompute::parse("").any());
  EXPECT_EQ(StepRecompute::parse("selective"), StepRecompute::parse("core_attn"));
  EXPECT_EQ(StepRecompute::parse("activation"), StepRecompute::parse("moe_act"));
  EXPECT_EQ(StepRecompute::parse("moe_act, layernorm mlp").text(), "layernorm+moe_act+mlp");
}

TEST(StepRecompute, TheDispatcherComputesItsPartOnly) {
  const auto program = [](const char* text) { return StepRecompute::parse(text).of_program(); };
  EXPECT_EQ(program("none"), Recompute::kNone);
  EXPECT_EQ(program("core_attn+mlp"), Recompute::kNone);
  EXPECT_EQ(program("moe_act"), Recompute::kActivation);
  EXPECT_EQ(program("moe_act+moe"), Recompute::kFull);
  EXPECT_EQ(program("full"), Recompute::kNone);  // the whole layer runs around it
}

TEST(StepRecompute, AMistakeNamesTheNearest) {
  EXPECT_EQ(moesim::testing::message_of([] { StepRecompute::parse("moe_act+core_atn"); }),
            "recompute: found 'core_atn', expected none, selective, full, core_attn, mla_up_proj, layernorm, "
            "moe_act, moe, mlp, shared_experts, mhc; did you mean 'core_attn'?");
}

RC_GTEST_PROP(StepRecompute, TextReadsBackToTheSame, ()) {
  StepRecompute r;
  for (bool StepRecompute::*flag :
       {&StepRecompute::full, &StepRecompute::attention, &StepRecompute::latent, &StepRecompute::norms,
        &StepRecompute::activation, &StepRecompute::moe, &StepRecompute::dense, &StepRecompute::shared})
    r.*flag = *rc::gen::arbitrary<bool>();
  const bool same = StepRecompute::parse(r.text()) == r;
  RC_ASSERT(same);
  RC_ASSERT(r.any() == (r.text() != "none"));
}

}  // namespace
}  // namespace moesim::models
