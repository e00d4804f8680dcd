// Rules of Megatron for its own arguments: combinations that it starts with, and that it refuses.
#include "tools/moesim/read/argument_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "models/hardware/cluster.h"
#include "process.h"
#include "tests/message_of.h"
#include "tools/moesim/read/load_job.h"

namespace moesim::tools {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kDense =
    "--num-layers 36 --hidden-size 256 --num-attention-heads 8 --ffn-hidden-size 512 --vocab-size 1024 --bf16 --swiglu "
    "--seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 1 --disable-bias-linear --attention-dropout 0 "
    "--hidden-dropout 0 --position-embedding-type rope --untie-embeddings-and-output-weights ";
constexpr const char* kMoe =
    "--num-experts 16 --moe-router-topk 2 --moe-ffn-hidden-size 128 --moe-grouped-gemm --moe-token-dispatcher-type alltoall "
    "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1 --use-distributed-optimizer ";

// Ids of the rules that refuse, or of those that warn.
std::string broken(const std::string& arguments, std::int64_t gpus, int version = 0, bool warns = false) {
  JobFile file = read_shell_job("pretrain_gpt.py " + std::string(kDense) + arguments, "train.sh", {});
  file.gpus = gpus;
  std::string ids;
  for (const BrokenRule& rule : broken_rules(file, JobFramework::kMegatron, version))
    if (rule.warns == warns) ids += (ids.empty() ? "" : " ") + rule.id;
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
        Combination{"--mtp-num-layers 1 --position-embedding-type learned_absolute", "A05"},
        Combination{"--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 20 "
                    "--decoder-last-pipeline-num-layers 16",
                    ""},
        Combination{"--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 't*18|t*18EL'", "L09"},
        Combination{
            "--pipeline-model-parallel-size 2 --mtp-num-layers 1 --pipeline-model-parallel-layout 'Et*18|t*18mL'",
            ""},
        Combination{
            "--pipeline-model-parallel-size 2 --mtp-num-layers 1 --pipeline-model-parallel-layout 'Et*18m|t*18L'",
            "L09"},
        Combination{"--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 5", "L03"},
        Combination{"--recompute-granularity selective --recompute-modules attention", "C04"},
        Combination{"--moe-layer-freq '([0]*1+[1]*35)'", ""},
        Combination{"--moe-layer-freq '([0]*1+[1]*34)'", "M18"},
        Combination{"--context-parallel-size 4 --hierarchical-context-parallel-sizes 2 3", "S15"},
        Combination{"--moe-router-load-balancing-type aux_loss seq_aux_loss --moe-aux-loss-coeff 0.1", "M17"},
        Combination{"--moe-router-load-balancing-type aux_loss seq_aux_loss --moe-aux-loss-coeff 0.1 0.1",
                    ""},
        Combination{"--moe-router-score-function gauss", "P02"},
        Combination{
            "--overlap-moe-expert-parallel-comm --delay-wgrad-compute --overlap-grad-reduce "
            "--no-gradient-accumulation-fusion --cuda-graph-impl transformer_engine --cuda-graph-modules attn",
            "O13"},
        Combination{"--moe-router-group-topk 2 --moe-router-num-groups 5", "M08"},
        Combination{"--use-torch-fsdp2", "D01", false},
        Combination{"--use-torch-fsdp2 --no-gradient-accumulation-fusion", "", false}));

TEST(MegatronRules, WhatMegatronOverridesIsNoRefusal) {
  EXPECT_EQ(broken("--train-iters 1 --sequence-parallel --accumulate-allreduce-grads-in-fp32", 8, 0, true),
            "S07");
  EXPECT_EQ(broken("--train-iters 1 --recompute-modules moe_act --grad-reduce-in-bf16", 8, 0, true), "C13");
  EXPECT_EQ(broken("--train-iters 1 --accumulate-allreduce-grads-in-fp32", 8, 0, true), "");
}

TEST(MegatronRules, OlderVersionsHaveThoseThatAreKnownOfThem) {
  const std::string overlap =
      std::string(kMoe) + "--overlap-moe-expert-parallel-comm --pipeline-model-parallel-size 4";
  EXPECT_EQ(broken(overlap, 64, 14), "O03");
  EXPECT_EQ(broken(overlap, 64, 13), "");
  EXPECT_EQ(broken(std::string(kMoe) + "--delay-wgrad-compute", 64, 16), "O11");
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

// A hybrid model's pattern says its stages, virtual ones too: Megatron refuses other options for them.
TEST(MegatronRules, HybridModelsSayTheirStages) {
  const auto written =
      testing::run_moesim({"scenario", "to", "megatron", "--scope", "step", "--model", "nemotron-3-super",
                           "--cluster", "dgx-h100x4", "--pp", "4", "--vpp", "2", "--ep", "8",
                           "--microbatches", "8", "--dispatcher", "alltoall"});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_THAT(written.out, Not(HasSubstr("num-virtual-stages")));
  const std::size_t at = written.out.find("--hybrid-layer-pattern '") + 24;
  const std::string pattern = written.out.substr(at, written.out.find('\'', at) - at);
  EXPECT_EQ(std::ranges::count(pattern, '|'), 7) << pattern;
  EXPECT_TRUE(pattern.ends_with("/*E/*E")) << pattern;
}

// With --arguments a job that does not start is refused, and one that only dispatchers break is compared without them.
TEST(MegatronRules, AJobThatDoesNotStartIsNotGivenArguments) {
  const auto compare = [](const std::string& more) {
    testing::TempFolder folder;
    folder.write("train.sh",
                 "torchrun --nproc_per_node 8 pretrain_gpt.py " + std::string(kDense) + kMoe + more + "\n");
    return testing::run_moesim({"compare", "train.sh", "--arguments", "megatron", "--draws", "0"},
                               folder.path());
  };
  const auto refused = compare("--delay-wgrad-compute");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("rule O11"));
  // moesim itself has nothing to overlap here, which would be another refusal.
  const auto both = compare("--overlap-moe-expert-parallel-comm --moe-shared-expert-overlap");
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("rule O07"));
  const auto overridden = compare("--sequence-parallel");
  EXPECT_EQ(overridden.exit_code, 0) << overridden.err;
  EXPECT_THAT(overridden.err, HasSubstr("rule S07"));
  const auto graphs = compare(
      "--cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad "
      "--moe-expert-capacity-factor 1 --moe-pad-expert-input-to-capacity");
  EXPECT_EQ(graphs.exit_code, 0) << graphs.err;
  EXPECT_THAT(graphs.err, HasSubstr("left out: flex-deepep"));
}

// DeepEP has no kernels for GB200's links, says Megatron-Bridge alone.
TEST(MegatronRules, BridgeHasItsOwn) {
  models::Scenario plan;
  plan.dispatchers = models::DispatcherSpec::parse_list("flex-deepep");
  plan.cluster = std::make_shared<models::Cluster>(models::Cluster::load("gb200-nvl72x1"));
  plan.model.experts = 8;
  plan.parallel.ep = 8;
  plan.parallel.dp = 8;
  EXPECT_EQ(refusal_of(plan, JobFramework::kMegatron, 0), "");
  plan.recipe = "megatron-bridge@26.06";
  EXPECT_THAT(refusal_of(plan, JobFramework::kMegatron, 0), HasSubstr("rule X02"));
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
