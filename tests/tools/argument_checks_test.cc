// Rules of Megatron for its own arguments: combinations that it starts with, and that it refuses.
#include "tools/moesim/read/argument_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/input_error.h"
#include "tests/message_of.h"
#include "tools/moesim/read/load_job.h"

namespace moesim::tools {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kDense =
    "--num-layers 36 --hidden-size 256 --num-attention-heads 8 --ffn-hidden-size 512 --vocab-size 1024 --bf16 --swiglu "
    "--seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 1 --disable-bias-linear --attention-dropout 0 "
    "--hidden-dropout 0 --position-embedding-type rope --untie-embeddings-and-output-weights ";
constexpr const char* kMoe =
    "--num-experts 16 --moe-router-topk 2 --moe-ffn-hidden-size 128 --moe-grouped-gemm --moe-token-dispatcher-type alltoall "
    "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1 --use-distributed-optimizer ";

std::string broken(const std::string& arguments, std::int64_t gpus, int version = 0) {
  JobFile file = read_shell_job("pretrain_gpt.py " + std::string(kDense) + arguments, "train.sh", {});
  file.gpus = gpus;
  std::string ids;
  for (const BrokenRule& rule : broken_rules(file, JobFramework::kMegatron, version))
    ids += (ids.empty() ? "" : " ") + rule.id;
  return ids;
}

struct Combination {
  const char* arguments;
  const char* rules;
  bool moe = true;
  std::int64_t gpus = 64;
};

class MegatronRules : public ::testing::TestWithParam<Combination> {};

TEST_P(MegatronRules, AreThoseOfItsSources) {
  const Combination& c = GetParam();
  EXPECT_EQ(broken(std::string(c.moe ? kMoe : "") + c.arguments, c.gpus), c.rules) << c.arguments;
}

INSTANTIATE_TEST_SUITE_P(
    Combinations, MegatronRules,
    ::testing::Values(
        Combination{"--global-batch-size 256", ""}, Combination{"--global-batch-size 250", "B01"},
        Combination{"", "", false}, Combination{"", "", false, 7},
        Combination{"--tensor-model-parallel-size 3", "S01 S03 S08", false},
        Combination{"--tensor-model-parallel-size 2", "M15"},
        Combination{"--tensor-model-parallel-size 2 --sequence-parallel", ""},
        Combination{"--pipeline-model-parallel-size 8", "L01"},
        Combination{"--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2", "L02"},
        Combination{
            "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3 --global-batch-size 64",
            ""},
        Combination{
            "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3 --global-batch-size 32",
            "B03"},
        Combination{
            "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3 --global-batch-size 80",
            "B04"},
        Combination{"--num-virtual-stages-per-pipeline-rank 2", "L05"},
        Combination{"--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*9|t*9|t*9|t*9L'",
                    ""},
        Combination{"--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*9|t*9|t*9|t*8L'",
                    "L09"},
        Combination{"--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*18|t*18L'", "L08"},
        Combination{
            "--pipeline-model-parallel-size 8 --decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 2",
            ""},
        Combination{"--pipeline-model-parallel-size 8 --decoder-first-pipeline-num-layers 4", "L10"},
        Combination{"--context-parallel-size 8 --seq-length 1000 --max-position-embeddings 1000", "S12"},
        Combination{"--overlap-moe-expert-parallel-comm", ""},
        Combination{"--overlap-moe-expert-parallel-comm --pipeline-model-parallel-size 4", "O03"},
        Combination{"--overlap-moe-expert-parallel-comm --expert-model-parallel-size 1", "O04"},
        Combination{"--overlap-moe-expert-parallel-comm --moe-token-dispatcher-type allgather", "O05"},
        Combination{
            "--overlap-moe-expert-parallel-comm --recompute-granularity full --recompute-method uniform "
            "--recompute-num-layers 1",
            "O06"},
        Combination{
            "--overlap-moe-expert-parallel-comm --recompute-granularity selective --recompute-modules moe",
            "O06"},
        Combination{
            "--overlap-moe-expert-parallel-comm --recompute-granularity selective --recompute-modules moe_act layernorm",
            ""},
        Combination{"--overlap-moe-expert-parallel-comm --moe-shared-expert-overlap", "O07"},
        Combination{"--delay-wgrad-compute", "O11"}, Combination{"--overlap-param-gather", "O02"},
        Combination{"--overlap-param-gather --overlap-grad-reduce", "O01", false},
        Combination{"--cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad", "G13"},
        Combination{"--cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad "
                    "--moe-expert-capacity-factor 1 --moe-pad-expert-input-to-capacity",
                    ""},
        Combination{"--cuda-graph-impl full_iteration", "G01", false},
        Combination{"--cuda-graph-impl transformer_engine --cuda-graph-modules attn moe_router", ""},
        Combination{"--cuda-graph-impl transformer_engine --cuda-graph-modules moe", "G05"},
        Combination{
            "--cuda-graph-impl transformer_engine --cuda-graph-modules attn --recompute-granularity full "
            "--recompute-method uniform --recompute-num-layers 1",
            "G07"},
        Combination{"--moe-router-enable-expert-bias", "M06"},
        Combination{"--moe-router-enable-expert-bias --moe-router-score-function sigmoid", ""},
        Combination{"--moe-router-topk 1", "M07"}, Combination{"--expert-tensor-parallel-size 5", "S02 S09"},
        Combination{
            "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep --expert-model-parallel-size 1",
            ""},
        Combination{"--moe-token-dispatcher-type flex --expert-model-parallel-size 1", "M04"},
        Combination{"--optimizer-cpu-offload", "Z01"},
        Combination{"--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", "D02", false},
        Combination{"--mtp-num-layers 1 --position-embedding-type learned_absolute", "A05"}));

TEST(MegatronRules, OlderVersionsHaveThoseThatAreKnownOfThem) {
  const std::string overlap =
      std::string(kMoe) + "--overlap-moe-expert-parallel-comm --pipeline-model-parallel-size 4";
  EXPECT_EQ(broken(overlap, 64, 14), "O03");
  EXPECT_EQ(broken(overlap, 64, 13), "");
  EXPECT_EQ(framework_version("core_r0.16.0"), 16);
  EXPECT_EQ(framework_version("newest"), 0);
  EXPECT_THAT(message_of([] { framework_version("main"); }),
              HasSubstr("expected a version of Megatron-Core"));
}

TEST(MegatronRules, AJobThatBreaksOneSaysSo) {
  const Job job = read_job(
      read_shell_job("pretrain_gpt.py " + std::string(kDense) + kMoe + "--moe-router-topk 1", "train.sh", {}),
      JobFramework::kMegatron);
  ASSERT_EQ(job.notes.size(), 1u);
  EXPECT_THAT(job.notes.front(),
              HasSubstr("does not start with top 1 without --moe-router-pre-softmax (rule M07"));
}

// What Megatron's arguments cannot say, and other frameworks' recipes, are planned all the same.
TEST(MegatronRules, AreNotHeldAgainstOtherPlans) {
  models::Scenario plan;
  plan.dispatchers = models::DispatcherSpec::parse_list("alltoall");
  plan.model.experts = 8;
  plan.parallel.etp = 2;  // M15, without sequence parallelism
  plan.parallel.tp = 2;
  plan.training.sequence_parallel = false;
  EXPECT_THAT(refusal_of(plan, JobFramework::kMegatron, 0), HasSubstr("rule M15"));
  models::Scenario other = plan;
  other.recipe = "maxtext";
  EXPECT_EQ(refusal_of(other, JobFramework::kMegatron, 0), "");
  other = plan;
  other.job_framework = "torchtitan";
  EXPECT_EQ(refusal_of(other, JobFramework::kMegatron, 0), "");
  other = plan;
  other.model.linear.value_heads = 4;
  EXPECT_EQ(refusal_of(other, JobFramework::kMegatron, 0), "");
  other = plan;
  other.training.recompute.operations = true;
  EXPECT_EQ(refusal_of(other, JobFramework::kMegatron, 0), "");
  other = plan;
  other.training.sharding = models::ShardingScheme::kHsdp;
  EXPECT_EQ(refusal_of(other, JobFramework::kMegatron, 0), "");
  other = plan;
  other.dispatchers = models::DispatcherSpec::parse_list("tutel");
  EXPECT_EQ(refusal_of(other, JobFramework::kMegatron, 0), "");
}

TEST(MegatronRules, LayoutsAreCounted) {
  const auto counts = count_layout("Et*3|(tt|)*29m|L");
  EXPECT_EQ(counts.at('t'), 61);
  EXPECT_EQ(counts.at('|'), 32);
  EXPECT_EQ(counts.at('m'), 1);
  EXPECT_THAT(count_layout("Et*3|(tt|"), IsEmpty());
}

}  // namespace
}  // namespace moesim::tools
