#include "calibration/training/training_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/step/step_forecast.h"
#include "models/workload/fields.h"

namespace moesim::calibration {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHeader =
    "gpu,gpus,model,framework,precision,gbs,mbs,seq_len,tp,pp,cp,vp,ep,etp,step_time_s,tokens_per_s_per_gpu,"
    "model_tflops_per_gpu,mfu_percent,source\n";

class TrainingRows : public ::testing::Test {
 protected:
  ~TrainingRows() override { fs::remove(path_); }
  TrainingTable read(const std::string& text, RowsWith with = RowsWith::kTime) {
    std::ofstream(path_) << text;
    return read_training_table(path_, with);
  }
  // A file of its own for each test: they run side by side.
  std::string path_ = (fs::path(::testing::TempDir()) /
                       (std::string("training_rows_") +
                        ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv"))
                          .string();
};

TEST_F(TrainingRows, ARowIsAPlanOnItsCluster) {
  const TrainingTable t = read(std::string(kHeader) +
                               "H100-SXM5-80GB,64,OLMoE,in-house,BF16,128,2,2048,2,2,1,1,8,1,6.5,,,,here\n");
  ASSERT_EQ(t.rows.size(), 1u);
  const TrainingRow& row = t.rows[0];
  const models::Parallel& p = row.scenario.parallel;
  EXPECT_EQ(row.line, 2);
  EXPECT_EQ(p.dp, 64 / (2 * 2));
  EXPECT_EQ(p.microbatches, 128 / (p.dp * 2));
  EXPECT_EQ(row.scenario.cluster->nodes * row.scenario.cluster->gpus_per_node, 64);
  EXPECT_EQ(row.measured_s, 6.5);
  EXPECT_EQ(row.measured_from, "step time");
  EXPECT_EQ(plan_text(row.scenario), "TP2 CP1 PP2 EP8 DP16 mb4x2 seq2048 bf16");
}

TEST_F(TrainingRows, ARateIsAStepTime) {
  // 128 sequences of 2,048 tokens on 64 GPUs are 4,096 tokens a GPU: at 1,024 a second, 4 s.
  const TrainingTable t = read(std::string(kHeader) +
                               "H100-SXM5-80GB,64,OLMoE,in-house,BF16,128,2,2048,2,2,1,1,8,1,,1024,,,here\n");
  ASSERT_EQ(t.rows.size(), 1u);
  EXPECT_DOUBLE_EQ(t.rows[0].measured_s, 4);
  EXPECT_EQ(t.rows[0].measured_from, "tokens/s");
}

TEST_F(TrainingRows, WhatCannotBeForecastIsLeftOutWithItsReason) {
  const TrainingTable t = read(
      std::string(kHeader) + "H100-SXM5-80GB,64,a model of nobody,x,BF16,128,1,2048,1,1,1,1,8,1,6,,,,here\n" +
      "TPU-v9,64,OLMoE,x,BF16,128,1,2048,1,1,1,1,8,1,6,,,,here\n" +
      "H100-SXM5-80GB,60,OLMoE,x,BF16,128,1,2048,8,1,1,1,8,1,6,,,,here\n" +
      "H100-SXM5-80GB,64,OLMoE,x,BF16,100,1,2048,1,1,1,1,8,1,6,,,,here\n" +
      "H100-SXM5-80GB,64,OLMoE,x,INT3,128,1,2048,1,1,1,1,8,1,6,,,,here\n" +
      "H100-SXM5-80GB,64,OLMoE,x,BF16,128,1,2048,1,1,1,1,8,1,,,,,here\n");
  EXPECT_TRUE(t.rows.empty());
  ASSERT_EQ(t.skipped.size(), 6u);
  const char* reasons[] = {"its layers are not known here",
                           "no profile of GPU 'TPU-v9'",
                           "60 GPUs are no multiple of tp x cp x pp = 8",
                           "found 100 with dp 64",
                           "precision 'INT3'",
                           "neither a step time nor a rate"};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_THAT(t.skipped[i].reason, HasSubstr(reasons[i]));
    EXPECT_EQ(t.skipped[i].line, static_cast<long>(i) + 2);
  }
}

TEST_F(TrainingRows, ANumberThatIsNoneIsTheTablesMistake) {
  try {
    read(std::string(kHeader) + "H100-SXM5-80GB,many,OLMoE,x,BF16,128,1,2048,1,1,1,1,8,1,6,,,,here\n");
    FAIL() << "it was taken";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'many'"));
    EXPECT_EQ(error.place().line, 2);
  }
  EXPECT_THROW(read("gpu,model\nH100,OLMoE\n"), InputError);
}

// 2 sequences a rank of this model of 4,096 tokens do not fit beside its state without recomputation.
TEST_F(TrainingRows, AStepThatRanFittedWithTheCheapestRecomputation) {
  TrainingTable t = read(std::string(kHeader) +
                         "H100-SXM5-80GB,16,Qwen3 30B-A3B,in-house,BF16,64,2,4096,1,1,1,1,8,1,20,,,,here\n");
  ASSERT_EQ(t.rows.size(), 1u);
  TrainingRow again = t.rows[0];
  const models::StepMemory memory = memory_of(t.rows[0]);
  const models::Answer forecast = forecast_of(again, 0);
  ASSERT_FALSE(t.rows[0].assumptions.empty());
  EXPECT_THAT(t.rows[0].assumptions.back(), HasSubstr("without which it would not fit"));
  EXPECT_EQ(t.rows[0].assumptions, again.assumptions);
  EXPECT_TRUE(memory.fits);
  EXPECT_EQ(t.rows[0].scenario.training.recompute.text(), again.scenario.training.recompute.text());
  EXPECT_EQ(memory.max_bytes, forecast.memory.max_bytes);
}

// Sizes whose product wraps to 0 would divide by it, or look like unstated sizes.
TEST_F(TrainingRows, ProductsBeyond64BitsAreRefused) {
  const TrainingTable plan =
      read(std::string(kHeader) +
           "H100-SXM5-80GB,64,OLMoE,in-house,BF16,128,2,2048,16777216,16777216,65536,1,8,1,6.5,,,,here\n");
  ASSERT_EQ(plan.skipped.size(), 1u);
  EXPECT_THAT(plan.skipped[0].reason, HasSubstr("tp x cp x pp: found a size of 1.84e+19"));
  const TrainingTable layer = read(
      "gpu,gpus,case,hidden,experts,topk,moe_inter,ep,tokens_per_rank,precision,forward_backward_ms\n"
      "H100-SXM5-80GB,8,x,16777216,16777216,16777216,16777216,8,16777216,BF16,3\n");
  ASSERT_EQ(layer.skipped.size(), 1u);
  EXPECT_THAT(layer.skipped[0].reason, Not(HasSubstr("not stated")));
  const TrainingTable sizes = read(std::string(kHeader) +
                                   "H100-SXM5-80GB,64,GRUG d1280000000000000 L48 e256 top8 "
                                   "i1280,in-house,BF16,128,2,2048,2,2,1,1,8,1,6,,,,h\n");
  ASSERT_EQ(sizes.skipped.size(), 1u);
  EXPECT_THAT(sizes.skipped[0].reason, HasSubstr("found 1280000000000000, expected at most 2^31"));
}

// The cut model of a row is the one that a config.json with its numbers, or a model card, gives: the same
// bytes (issue 37, point 1).
TEST_F(TrainingRows, ACutOfAModelIsTheOneOfItsCard) {
  const std::string header =
      "id,gpu,gpus,gpus_per_node,model,layers,dense_layers,framework,dispatcher,precision,gbs,mbs,seq_len,tp,"
      "pp,"
      "cp,vp,ep,etp,recompute,routing,optimizer,peak_allocated_GiB,status,note\n";
  TrainingTable t =
      read(header +
               "a,B200-SXM6-180GB,8,8,DeepSeekV3,4,1,Megatron-LM,alltoall,BF16,32,1,4096,1,1,1,1,8,"
               "1,none,,\"distributed optimizer, fp32 gradients\",100,fits,\n",
           RowsWith::kPlan);
  ASSERT_EQ(t.rows.size(), 1u);
  const models::StepMemory row = memory_of(t.rows[0]);
  for (
      const char* card :
      {R"({"base": "deepseek-v3", "layers": 4, "dense_layers": 1})",
       R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 4, "first_k_dense_replace": 1,
            "vocab_size": 129280, "num_attention_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432,
            "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
            "n_shared_experts": 1, "n_group": 8, "topk_group": 4})"}) {
    models::Scenario s = models::Scenario::parse(JsonNode::parse(
        std::string(
            R"({"scope": "step", "cluster": "dgx-b200x1", "dispatcher": "alltoall", "parallel": {"tp": 1,
            "pp": 1, "ep": 8, "dp": 8, "global_batch": 32}, "router_dtype": "fp32", "model": )") +
            card + "}",
        "card.json"));
    s.resolve();
    const models::StepMemory memory = models::StepForecaster(s, s.dispatchers.front()).memory();
    EXPECT_EQ(memory.max_bytes, row.max_bytes) << card;
    EXPECT_EQ(memory.stages.front().bytes.total(), row.stages.front().bytes.total()) << card;
  }
}

// An unstated decisive size is named, not taken for 1 (issue 37, point 3).
TEST_F(TrainingRows, ASizeThatDecidesAndIsNotStatedIsNamed) {
  const TrainingTable t = read(
      std::string(kHeader) + "H100-SXM5-80GB,64,OLMoE,in-house,BF16,128,2,2048,2,2,1,1,,1,6.5,,,,here\n" +
      "H100-SXM5-80GB,64,OLMoE,in-house,BF16,128,2,2048,,,1,1,8,1,6.5,,,,here\n" +
      "H100-SXM5-80GB,64,GPT-OSS 120B,NeMo Automodel,BF16,512,2,4096,1,1,1,1,,1,4.3,,,,here\n");
  ASSERT_EQ(t.skipped.size(), 2u);
  EXPECT_EQ(t.skipped[0].reason, "ep is not stated, and decides the step");
  EXPECT_EQ(t.skipped[1].reason, "tp, pp are not stated, and decide the step");
  // Its framework's benchmark says it.
  ASSERT_EQ(t.rows.size(), 1u);
  EXPECT_EQ(t.rows[0].scenario.parallel.ep, 64);
  EXPECT_EQ(t.rows[0].scenario.origin_of("parallel.ep"),
            (models::Origin{models::Origin::Kind::kRecipe, "nemo-automodel"}));
}

TEST_F(TrainingRows, EverySettingHasItsOrigin) {
  const TrainingTable t = read(
      "gpu,gpus,model,framework,precision,gbs,mbs,tp,pp,ep,step_time_s,note\n"
      "GB200,64,DeepSeekV3,Megatron-Bridge 26.04,MXFP8,512,1,1,4,16,9,recompute mlp\n");
  ASSERT_EQ(t.rows.size(), 1u) << t.skipped.at(0).reason;
  const models::Scenario& s = t.rows[0].scenario;
  for (const char* path : {"parallel.ep", "training.recompute", "model", "cluster"}) {
    EXPECT_EQ(s.origin_of(path).kind, models::Origin::Kind::kFile) << path;
    EXPECT_THAT(s.origin_of(path).where, HasSubstr(".csv:2")) << path;
  }
  EXPECT_EQ(s.training.recompute.text(), "mlp");
  EXPECT_EQ(s.origin_of("training.launch"),
            (models::Origin{models::Origin::Kind::kRecipe, "megatron-bridge@26.04"}));
  EXPECT_EQ(s.origin_of("parallel.seq").kind, models::Origin::Kind::kDefault);
}

TEST_F(TrainingRows, AFrameworkThatIsNotKnownIsSaid) {
  const TrainingTable t = read(std::string(kHeader) +
                               "H100-SXM5-80GB,64,OLMoE,in-house,BF16,128,2,2048,2,2,1,1,8,1,6.5,,,,here\n");
  ASSERT_EQ(t.rows.size(), 1u);
  EXPECT_THAT(t.rows[0].assumptions, ::testing::Contains(HasSubstr("framework 'in-house' is not known")));
}

// Ratios to them would be infinite.
// "+" separates a library from its transport, but LLEP is a placement of experts.
TEST_F(TrainingRows, LeastLoadedExpertsAreABalance) {
  const std::string header(kHeader);
  const TrainingTable t =
      read(header.substr(0, header.size() - 1) +
           ",backend\nB200-SXM6-180GB,8,OLMoE,torchtitan,BF16,48,6,4096,1,1,1,1,8,1,1.5,,,,here,nccl+llep\n");
  ASSERT_EQ(t.rows.size(), 1u);
  EXPECT_EQ(t.rows[0].scenario.dispatchers.front().text(), "torchtitan-alltoall:balance=least-loaded");
}

TEST_F(TrainingRows, TimesThatNoJobHasAreSkipped) {
  for (const char* seconds : {"1e-320", "1e-300", "1e11"}) {
    const TrainingTable table =
        read(std::string(kHeader) + "H100-SXM5-80GB,64,OLMoE,in-house,BF16,128,2,2048,2,2,1,1,8,1," +
             seconds + ",,,,here\n");
    ASSERT_EQ(table.skipped.size(), 1u) << seconds;
    EXPECT_THAT(table.skipped[0].reason, HasSubstr("which no job has"));
  }
}

}  // namespace
}  // namespace moesim::calibration
