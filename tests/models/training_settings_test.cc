// Execution of a step, by name: the effect of every word, and one line for each mistake.
#include "models/workload/training_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"
#include "models/workload/global_batch.h"
#include "models/workload/scenario.h"
#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

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
  for (const char* fp4 : {"nvfp4", "mxfp4"}) {
    plan.set_precision(fp4);
    EXPECT_EQ(plan.gemm, DType::kFp4);
    EXPECT_EQ(plan.precision, fp4);
    EXPECT_THAT(plan.note, ::testing::HasSubstr("never measured"));
  }
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

// Sharding of parameters, as users write it.

std::string refusal(const std::string& text) {
  return moesim::testing::message_of([&] { ShardingSpec::parse(text); });
}

TEST(ShardingSpec, NamesAndOptions) {
  for (const ShardingScheme scheme :
       {ShardingScheme::kDdp, ShardingScheme::kZero1, ShardingScheme::kFsdp, ShardingScheme::kHsdp})
    EXPECT_EQ(ShardingSpec::parse(std::string(name_of(scheme))).scheme, scheme);
  EXPECT_EQ(ShardingSpec::parse("distributed-optimizer").scheme, ShardingScheme::kZero1);
  const ShardingSpec spec = ShardingSpec::parse("hsdp:shard=8:reshard=false:shampoo");
  EXPECT_EQ(spec.scheme, ShardingScheme::kHsdp);
  EXPECT_EQ(spec.shard, 8);
  EXPECT_FALSE(spec.reshard);
  EXPECT_TRUE(spec.shampoo);
  EXPECT_EQ(ShardingSpec::parse("hsdp").shard, 0);
  EXPECT_TRUE(ShardingSpec::parse("fsdp").reshard);
}

TEST(ShardingSpec, MistakesAreOneLine) {
  EXPECT_EQ(refusal("fsdp2"),
            "sharding: found 'fsdp2', expected ddp, zero1, zero2, fsdp or hsdp; did you mean 'fsdp'?");
  EXPECT_EQ(refusal("hsdp:shard=0"), "sharding: shard: found '0', expected a number of ranks of at least 1");
  EXPECT_EQ(refusal("hsdp:shard=8x"),
            "sharding: shard: found '8x', expected a number of ranks of at least 1");
  EXPECT_EQ(refusal("fsdp:reshard=maybe"), "sharding: reshard: found 'maybe', expected true or false");
  EXPECT_EQ(refusal("fsdp:shard=8"), "sharding: found shard with fsdp, expected it with hsdp");
  EXPECT_EQ(refusal("fsdp:reshards=false"),
            "sharding: found option 'reshards', expected shard, reshard, shampoo or muon; did you mean "
            "'reshard'?");
}

// Recomputation in backward, by name.

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
            "moe_act, moe, mlp, shared_experts, mhc, op; did you mean 'core_attn'?");
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

// A batch that stays when the plan changes: how it is written, what it makes of a plan, what it contradicts.

TEST(GlobalBatch, IsSequencesOrTokens) {
  EXPECT_EQ(GlobalBatch::parse("1024").sequences, 1024);
  EXPECT_DOUBLE_EQ(GlobalBatch::parse("4Mtokens").tokens, 4e6);
  EXPECT_DOUBLE_EQ(GlobalBatch::parse("4194304 tokens").tokens, 4194304);
  for (const char* text : {"1024", "4Mtokens", "62914560tokens", "0.5ktokens"})
    EXPECT_EQ(GlobalBatch::parse(GlobalBatch::parse(text).text()), GlobalBatch::parse(text)) << text;
  for (const char* text : {"", "0", "-4", "4M", "many", "tokens", "-1tokens", "1e30tokens", "3.5"})
    EXPECT_THAT(message_of([&] { GlobalBatch::parse(text); }), HasSubstr("global batch: found ")) << text;
}

TEST(GlobalBatch, SequencesDivideAndTokensComeNear) {
  EXPECT_EQ(GlobalBatch::parse("1024").microbatches(64, 2, 4096), 8);
  EXPECT_EQ(GlobalBatch::parse("1024").microbatches(48, 1, 4096), 0);
  const GlobalBatch tokens = GlobalBatch::parse("4Mtokens");  // 976.6 sequences of 4,096
  EXPECT_EQ(tokens.microbatches(61, 1, 4096), 16);
  EXPECT_EQ(tokens.microbatches(64, 1, 4096), 15);   // 960: 1.7 % fewer
  EXPECT_EQ(tokens.microbatches(1024, 1, 4096), 1);  // 4.9 % more
  EXPECT_EQ(tokens.microbatches(2048, 1, 4096), 0);
  EXPECT_EQ(tokens.microbatches(640, 1, 4096), 0);
}

TEST(GlobalBatch, SaysTheMicrobatchesOfAPlan) {
  Scenario s = testing::small_job();
  s.parallel.microbatches = 1;
  s.batch = GlobalBatch::parse("64");
  Scenario one = s;
  one.resolve();
  EXPECT_EQ(one.parallel.dp, 8);
  EXPECT_EQ(one.parallel.microbatches, 8);
  Scenario piped = s;
  piped.parallel.pp = 2;
  piped.resolve();
  EXPECT_EQ(piped.parallel.microbatches, 16);
  s.give("parallel.microbatches");
  EXPECT_EQ(
      message_of([&] { s.resolve(); }),
      "parallel.microbatches: found 1 beside a global batch of 64, which makes it 8; expected one of them");
  s.parallel.microbatches = 8;
  s.resolve();
  Scenario odd = testing::small_job();
  odd.batch = GlobalBatch::parse("63");
  EXPECT_EQ(
      message_of([&] { odd.resolve(); }),
      "parallel.global_batch: found 63 with dp 8 and 1 sequences in a microbatch, expected a multiple of 8 "
      "sequences of 64 tokens");
}

TEST(GlobalBatch, OfAModelIsItsPublishedOne) {
  const UsualBatch v3 = usual_batch("deepseek-v3", 4096), other = usual_batch("mixtral-8x7b", 8192);
  EXPECT_EQ(v3.batch.sequences, 15360);
  EXPECT_THAT(v3.source, HasSubstr("arXiv 2412.19437"));
  EXPECT_EQ(other.batch.sequences, 512);
  EXPECT_THAT(other.source, HasSubstr("no published one is known"));
}

TEST(Counts, AreReadAsPeopleWriteThem) {
  EXPECT_DOUBLE_EQ(parse_count("--tokens", "15T"), 15e12);
  EXPECT_DOUBLE_EQ(parse_count("--tokens", "300k"), 3e5);
  EXPECT_DOUBLE_EQ(parse_count("--tokens", " 2.5e9 "), 2.5e9);
  for (const char* text : {"", "T", "0", "-1T", "15X", "nan", "inf", "1e19"})
    EXPECT_THAT(message_of([&] { parse_count("--tokens", text); }), HasSubstr("--tokens: found ")) << text;
  EXPECT_EQ(format_count(15e12), "15 T");
  EXPECT_EQ(format_count(4194304), "4.19 M");
}

// The job's GPUs: so many nodes as hold them, and nothing that contradicts the cluster.
TEST(JobGpus, TakeAsManyNodesAsHoldThem) {
  const auto resolved = [](const std::string& cluster, std::int64_t gpus) {
    Scenario s = testing::small_job();
    s.cluster = cluster.empty() ? nullptr : testing::cluster_named(cluster);
    s.gpus = gpus;
    s.resolve();
    return s;
  };
  for (const char* name : {"h100", "dgx-h100", "h100-sxm", ""}) {
    const Scenario s = resolved(name, 32);
    EXPECT_EQ(s.cluster->name, "dgx-h100x4") << name;
    EXPECT_EQ(s.parallel.world(), 32);
  }
  EXPECT_EQ(resolved("gb200", 100).cluster->name, "gb200-nvl72x2");
  EXPECT_EQ(resolved("gb200", 100).parallel.world(), 100);
  EXPECT_EQ(resolved("p5en", 16).cluster->name, "aws-p5enx2");
  EXPECT_EQ(resolved("mi300x", 9).cluster->name, "mi300x-x2");
  EXPECT_EQ(resolved("dgx-h100x2", 12).parallel.world(), 12);
  // Without them: what holds the plan.
  EXPECT_EQ(resolved("b200", 0).cluster->name, "dgx-b200x1");
  EXPECT_EQ(
      message_of([&] { resolved("dgx-h100x2", 64); }),
      "gpus: found 64 with cluster dgx-h100x2 of 16 GPUs, expected 9 to 16, or a cluster without its number "
      "of nodes");
  EXPECT_THAT(message_of([&] { resolved("dgx-h100x2", 8); }),
              HasSubstr("gpus: found 8 with cluster dgx-h100x2"));
}

}  // namespace
}  // namespace moesim::models
