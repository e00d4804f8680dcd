// Rules of frameworks for their own arguments: combinations that they start with, and that they refuse.
#include "tools/moesim/read/argument_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
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
  file.gpus.count = gpus;
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
  EXPECT_EQ(refusal_of(other, {}, 0), "");
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

// moesim reads jobs that Megatron accepts: HybridEP on one rank, NCCL EP, and modules that no layer has.
TEST(MegatronRules, LegalJobsAreRead) {
  const auto job = [](const std::string& more) {
    return read_job(read_shell_job("pretrain_gpt.py " + std::string(kDense) + kMoe + more, "train.sh", {}),
                    JobFramework::kMegatron)
        .scenario;
  };
  EXPECT_EQ(job("--recompute-granularity selective --recompute-modules mlp")["training"]["recompute"],
            "none");
  EXPECT_EQ(job("--recompute-granularity selective --recompute-modules mlp moe_act")["training"]["recompute"],
            "moe_act");
  EXPECT_EQ(job("--recompute-granularity selective --recompute-modules mlp --moe-layer-freq '([0]*1+[1]*35)'")
                ["training"]["recompute"],
            "mlp");
  EXPECT_EQ(job("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend ncclep "
                "--moe-flex-dispatcher-num-sms 24")["dispatcher"],
            nlohmann::ordered_json({{"name", "nccl-ep"}, {"sms", 24}}));
  const auto compare = [](const std::string& dispatcher) {
    return testing::run_moesim({"compare", "--model", "olmoe", "--cluster", "h100", "--ep", "1",
                                "--dispatcher", dispatcher, "--draws", "0"});
  };
  EXPECT_EQ(compare("flex-hybridep").exit_code, 0);
  for (const char* other : {"flex-deepep", "nccl-ep"})
    EXPECT_THAT(compare(other).err, HasSubstr("needs more than one rank")) << other;
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

struct Settings {
  JobFramework framework;
  const char* settings;  // behind the base's, "name=value", of which lists have commas
  const char* rules;
  std::int64_t gpus = 64;
};

// Ids of the rules that refuse settings, without what a plan's arguments lack.
std::string broken_by(const Settings& c) {
  CheckedArguments all;
  all.world = c.gpus;
  all.gpu = "h100-sxm";
  all.before_blackwell = true;
  models::Scenario plan;
  plan.model.layers = 61, plan.model.experts = 256;
  plan.model.attention.heads = plan.model.attention.kv_heads = 128;
  plan.dispatchers = models::DispatcherSpec::parse_list("alltoall");
  all.plan = &plan;
  std::string words = c.framework == JobFramework::kDeepSpeed
                          ? "train_micro_batch_size_per_gpu=2 bf16.enabled=true zero_optimization.stage=1 "
                          : "model.name=deepseek_v3 model.flavor=671B training.seq_len=4096 "
                            "activation_checkpoint.mode=full ";
  words += c.settings;
  for (const std::string_view word : split(words, ' ')) {
    const auto equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string name(word.substr(0, equals)), value(word.substr(equals + 1));
    if (name == "dispatcher") plan.dispatchers = models::DispatcherSpec::parse_list(value);
    for (const auto& [size, of] : {std::pair{"pp", &models::Parallel::pp},
                                   {"ep", &models::Parallel::ep},
                                   {"etp", &models::Parallel::etp},
                                   {"cp", &models::Parallel::cp}})
      if (name == size) plan.parallel.*of = std::stoll(value);
    all.values[name] = {value};
  }
  std::string ids;
  for (const BrokenRule& rule : broken_rules(all, c.framework))
    if (!rule.warns && !rule.lacks) ids += (ids.empty() ? "" : " ") + rule.id;
  return ids;
}

class RulesOfOthers : public ::testing::TestWithParam<Settings> {};

TEST_P(RulesOfOthers, AreThoseOfTheirSources) {
  EXPECT_EQ(broken_by(GetParam()), GetParam().rules) << GetParam().settings;
}

constexpr JobFramework kTitan = JobFramework::kTorchtitan, kDs = JobFramework::kDeepSpeed;
INSTANTIATE_TEST_SUITE_P(
    Torchtitan, RulesOfOthers,
    ::testing::Values(
        Settings{kTitan, "", ""}, Settings{kTitan, "training.mixed_precision_reduce=bfloat16", "P01"},
        Settings{kTitan, "training.dtype=bfloat16 activation_checkpoint.mode=none", ""},
        Settings{kTitan, "model.converters=mx", "P02 F04"},
        Settings{kTitan, "model.converters=quantize.linear.float8,quantize.grouped_mm.float8", ""},
        Settings{kTitan, "optimizer.name=Muon", "P03"},
        Settings{kTitan, "parallelism.tensor_parallel_degree=0", "S01 S02"},
        Settings{kTitan, "parallelism.data_parallel_shard_degree=32", "S02"},
        Settings{kTitan,
                 "parallelism.data_parallel_shard_degree=32 parallelism.data_parallel_replicate_degree=2",
                 ""},
        Settings{kTitan,
                 "parallelism.tensor_parallel_degree=4 parallelism.expert_parallel_degree=8 "
                 "parallelism.expert_tensor_parallel_degree=2",
                 "S03"},
        Settings{kTitan,
                 "parallelism.tensor_parallel_degree=4 parallelism.expert_parallel_degree=8 "
                 "parallelism.expert_tensor_parallel_degree=4",
                 ""},
        Settings{kTitan,
                 "parallelism.data_parallel_replicate_degree=16 parallelism.data_parallel_shard_degree=4 "
                 "parallelism.expert_parallel_degree=8",
                 "S04"},
        Settings{kTitan,
                 "parallelism.data_parallel_replicate_degree=8 parallelism.data_parallel_shard_degree=8 "
                 "parallelism.expert_parallel_degree=8",
                 ""},
        Settings{kTitan, "parallelism.expert_parallel_degree=6", "S05", 48},
        Settings{kTitan, "parallelism.tensor_parallel_degree=3 training.seq_len=4098", "S06", 48},
        Settings{kTitan, "training.seq_len=4095", "S07"},
        Settings{kTitan, "parallelism.tensor_parallel_degree=4 training.seq_len=4100", "S07"},
        Settings{kTitan, "parallelism.tensor_parallel_degree=4 training.seq_len=4104", ""},
        Settings{kTitan, "training.local_batch_size=2 training.global_batch_size=192", "B01"},
        Settings{kTitan, "training.local_batch_size=2 training.global_batch_size=256", ""},
        Settings{kTitan,
                 "parallelism.pipeline_parallel_degree=4 parallelism.pipeline_parallel_microbatch_size=3",
                 "B02 B03"},
        Settings{kTitan, "parallelism.pipeline_parallel_degree=16", "B03"},
        Settings{kTitan, "parallelism.pipeline_parallel_degree=8", ""},
        Settings{kTitan,
                 "parallelism.pipeline_parallel_degree=4 training.local_batch_size=9 "
                 "parallelism.pipeline_parallel_schedule=Interleaved1F1B",
                 "B04"},
        Settings{kTitan,
                 "parallelism.pipeline_parallel_degree=4 training.local_batch_size=10 "
                 "parallelism.pipeline_parallel_schedule=Interleaved1F1B",
                 ""},
        Settings{kTitan, "parallelism.pipeline_parallel_degree=8 model.name=qwen3 model.flavor=235B-A22B",
                 "L01"},
        Settings{kTitan, "model.name=qwen3 model.flavor=235B-A22B", ""},
        Settings{kTitan,
                 "parallelism.pipeline_parallel_degree=32 training.local_batch_size=32 "
                 "parallelism.pipeline_parallel_schedule=Interleaved1F1B",
                 "L02"},
        Settings{kTitan, "parallelism.pipeline_parallel_degree=4 parallelism.pipeline_parallel_schedule=2F2B",
                 "L03"},
        Settings{kTitan,
                 "parallelism.pipeline_parallel_degree=4 parallelism.expert_parallel_degree=8 "
                 "parallelism.pipeline_parallel_schedule=DualPipeV",
                 "L04"},
        Settings{kTitan,
                 "parallelism.pipeline_parallel_degree=4 parallelism.expert_parallel_degree=8 "
                 "parallelism.pipeline_parallel_schedule=DualPipeV activation_checkpoint.mode=none",
                 ""},
        Settings{kTitan, "parallelism.context_parallel_degree=2", "K02"},
        Settings{kTitan, "parallelism.context_parallel_degree=2 model.name=qwen3 model.flavor=30B-A3B", ""},
        Settings{kTitan, "parallelism.context_parallel_degree=2 model.name=gpt_oss model.flavor=20b", "K01"},
        Settings{kTitan, "model.converters=quantize.grouped_mm.float8 parallelism.pipeline_parallel_degree=4",
                 "F02"},
        Settings{kTitan, "model.converters=quantize.linear.float8 parallelism.pipeline_parallel_degree=4",
                 ""},
        Settings{kTitan, "model.converters=quantize.linear.float8,quantize.linear.mx", "F04 F06"},
        Settings{kTitan, "activation_checkpoint.mode=selective activation_checkpoint.selective_ac_option=all",
                 "C01"},
        Settings{kTitan, "activation_checkpoint.mode=selective activation_checkpoint.selective_ac_option=op",
                 ""},
        Settings{kTitan, "activation_checkpoint.mode=memory_budget", "C02"},
        Settings{kTitan, "activation_checkpoint.mode=memory_budget compile.enable=true", ""},
        Settings{kTitan, "optimizer.early_step_in_backward=true parallelism.expert_parallel_degree=8", "O01"},
        Settings{kTitan, "optimizer.early_step_in_backward=true", ""},
        Settings{kTitan, "parallelism.enable_async_tensor_parallel=true parallelism.tensor_parallel_degree=2",
                 "O02"},
        Settings{kTitan, "parallelism.expert_parallel_comm_backend=deepep", "M01"},
        Settings{kTitan,
                 "parallelism.expert_parallel_comm_backend=deepep parallelism.expert_parallel_degree=8 "
                 "parallelism.tensor_parallel_degree=2 parallelism.expert_tensor_parallel_degree=2",
                 "M02"},
        Settings{kTitan,
                 "parallelism.expert_parallel_comm_backend=deepep parallelism.expert_parallel_degree=8",
                 ""}));

INSTANTIATE_TEST_SUITE_P(
    DeepSpeed, RulesOfOthers,
    ::testing::Values(
        Settings{kDs, "", ""}, Settings{kDs, "train_micro_batch_size_per_gpu=0", "P01"},
        Settings{kDs, "communication_data_type=fp8", "P02"},
        Settings{kDs, "zero_optimization.stage=4", "P03"}, Settings{kDs, "fp16.enabled=true", "P04"},
        Settings{kDs, "data_types.param_dtype=fp32", "P05"}, Settings{kDs, "data_types.param_dtype=bf16", ""},
        Settings{kDs, "train_batch_size=512 gradient_accumulation_steps=2", "B01"},
        Settings{kDs, "train_batch_size=256 gradient_accumulation_steps=2", ""},
        Settings{kDs, "train_batch_size=512 gradient_accumulation_steps=8 pp=2", ""},
        Settings{kDs, "train_batch_size=200", "B02"}, Settings{kDs, "train_batch_size=384", ""},
        Settings{kDs, "pp=7", "S01"}, Settings{kDs, "tensor_parallel.autotp_size=3", "S02"},
        Settings{kDs, "ep=128 dispatcher=deepspeed", "S03"}, Settings{kDs, "ep=64 dispatcher=deepspeed", ""},
        Settings{kDs, "ep=32 etp=2 tensor_parallel.autotp_size=4 dispatcher=deepspeed", "S04"},
        Settings{kDs, "ep=16 etp=4 tensor_parallel.autotp_size=4 dispatcher=deepspeed", ""},
        Settings{kDs, "ep=128", "S05"}, Settings{kDs, "ep=24 dispatcher=deepspeed", "S06", 48},
        Settings{kDs, "cp=3", "S07", 48}, Settings{kDs, "pp=2 zero_optimization.stage=2", "Z01"},
        Settings{kDs, "pp=2", ""}, Settings{kDs, "ep=8 dispatcher=tutel zero_optimization.stage=3", "Z02"},
        Settings{kDs, "ep=8 dispatcher=tutel zero_optimization.stage=2", ""},
        Settings{kDs, "ep=8 zero_optimization.stage=3", ""},
        Settings{kDs, "ep=8 zero_optimization.stage=3 tensor_parallel.autotp_size=2", "Z03"},
        Settings{kDs, "ep=8 zero_optimization.stage=3 sequence_parallel_size=2", "Z04"},
        Settings{kDs, "ep=8 zero_optimization.stage=3 zero_optimization.mics_shard_size=8", "Z06"},
        Settings{kDs, "zero_optimization.offload_optimizer.ratio=0.5", "Z08"},
        Settings{kDs, "zero_optimization.stage=0 data_types.grad_accum_dtype=fp32", "Z09"},
        Settings{kDs, "zero_optimization.stage=0 data_types.grad_accum_dtype=bf16", ""},
        Settings{kDs, "data_types.grad_accum_dtype=fp32", ""}, Settings{kDs, "amp.enabled=true", "Z10"},
        Settings{kDs, "zero_optimization.stage=3 gradient_allreduce_op=sum", "Z11"},
        Settings{kDs, "gradient_allreduce_op=sum", ""},
        Settings{kDs, "zero_optimization.stage=0 bf16.bf16_master_weights_and_grads=true", "Z12"},
        Settings{kDs, "bf16.bf16_optimizer_states=true", "Z13"},
        Settings{kDs, "bf16.bf16_optimizer_states=true bf16.bf16_master_weights_and_grads=true", ""},
        Settings{kDs, "ep=8 tensor_parallel.autotp_size=2 pp=2", "E01"},
        Settings{kDs, "ep=8 tensor_parallel.autotp_size=2 pp=2 dispatcher=deepspeed", ""},
        Settings{kDs, "ep=8 tensor_parallel.autotp_size=2 sequence_parallel_size=2", "E02"},
        Settings{kDs, "ep=8 etp=2", "E03"},
        Settings{kDs, "ep=8 tensor_parallel.autotp_size=2 zero_optimization.offload_optimizer.device=cpu",
                 "E04"},
        Settings{kDs, "ep=8 tensor_parallel.autotp_size=2", ""}));

TEST(RulesOfOthers, WhatTheyOverrideIsTold) {
  CheckedArguments titan;
  titan.world = 8;
  titan.values = {{"parallelism.tensor_parallel_degree", {"8"}}, {"training.seq_len", {"4096"}}};
  const auto told = broken_rules(titan, JobFramework::kTorchtitan);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told.front().note("t.toml", JobFramework::kTorchtitan),
              HasSubstr("goes on with TP or PP without FSDP (rule F09: \"mixed precision is disabled"));
}

// A plan by its recipe: what its framework lacks counts, too. NeMo Automodel's arguments are not written here.
TEST(RulesOfOthers, ARecipesPlansKeepThem) {
  const auto refused = [](const char* recipe, const char* dispatcher, auto change) {
    models::Scenario plan;
    plan.recipe = recipe;
    plan.dispatchers = models::DispatcherSpec::parse_list(dispatcher);
    plan.model = models::Architecture::load("qwen3-30b-a3b");
    plan.parallel.dp = plan.parallel.ep = plan.parallel.microbatches = 8;
    plan.parallel.seq = 4096;
    plan.scope = models::Scenario::Scope::kStep;
    plan.training.sharding = models::ShardingScheme::kFsdp;
    change(plan);
    const std::string text = refusal_of(plan, {}, 0);
    const std::size_t at = text.find("(rule ");
    return at == std::string::npos ? text : text.substr(at + 6, 3);
  };
  const auto nothing = [](models::Scenario&) {};
  EXPECT_EQ(refused("torchtitan", "torchtitan-alltoall", nothing), "");
  EXPECT_EQ(refused("nemo-automodel", "flex-deepep", nothing), "");
  EXPECT_EQ(refused("deepspeed", "alltoall", nothing), "");
  EXPECT_EQ(refused("deepspeed", "deepspeed", nothing), "Z02");
  using S = models::Scenario;
  const auto lacks = [&](const char* recipe, const char* dispatcher) {
    return [&, recipe, dispatcher](auto change) { return refused(recipe, dispatcher, change); };
  };
  const auto titan = lacks("torchtitan", "torchtitan-alltoall"), ds = lacks("deepspeed", "alltoall"),
             automodel = lacks("nemo-automodel", "flex-deepep");
  EXPECT_EQ(titan([](S& s) { s.parallel.pp = 2; }), "L01");
  EXPECT_EQ(titan([](S& s) { s.training.recompute.activation = true; }), "C03");
  EXPECT_EQ(titan([](S& s) { s.training.recompute.operations = true; }), "");
  EXPECT_EQ(titan([](S& s) { s.training.sharding = models::ShardingScheme::kZero1; }), "D02");
  EXPECT_EQ(titan([](S& s) { s.training.gradient_bytes = 2; }), "P01");
  EXPECT_EQ(titan([](S& s) { s.training.overlap.expert_communication = true; }), "O03");
  EXPECT_EQ(titan([](S& s) { s.training.set_precision("nvfp4"); }), "F08");
  EXPECT_EQ(titan([](S& s) { s.training.offload = models::Offload::kOptimizer; }), "O04");
  EXPECT_EQ(ds([](S& s) { s.training.set_precision("fp8"); }), "F01");
  EXPECT_EQ(ds([](S& s) { s.training.overlap.expert_communication = true; }), "O01");
  EXPECT_EQ(ds([](S& s) { s.parallel.pp = 2; }), "Z01");
  EXPECT_EQ(automodel([](S& s) { s.training.sharding = models::ShardingScheme::kDdp; }), "S01");
  EXPECT_EQ(automodel([](S& s) { s.training.sharding = models::ShardingScheme::kZero1; }), "S02");
  EXPECT_EQ(automodel([](S& s) { s.parallel.ep = 3, s.parallel.dp = 6; }), "S05");
  EXPECT_EQ(automodel([](S& s) { s.parallel.tp = 2; }), "S07");
  EXPECT_EQ(automodel([](S& s) { s.parallel.cp = 3; }), "S08");
  EXPECT_EQ(automodel([](S& s) { s.parallel.ep = 1; }), "M01");
  EXPECT_EQ(automodel([](S& s) { s.parallel.pp = 16; }), "B01");
  EXPECT_EQ(automodel([](S& s) { s.parallel.pp = 8; }), "");
  EXPECT_EQ(automodel([](S& s) { s.parallel.pp = 16, s.parallel.vpp = 4, s.parallel.microbatches = 16; }),
            "L01");
  EXPECT_EQ(automodel([](S& s) { s.parallel.pp = 4, s.parallel.vpp = 8; }), "L02");
  EXPECT_EQ(automodel([](S& s) { s.parallel.pp = 4, s.parallel.vpp = 6; }), "");
  EXPECT_EQ(automodel([](S& s) { s.parallel.pp = 4, s.parallel.vpp = 2, s.parallel.microbatches = 9; }),
            "B02");
  EXPECT_EQ(automodel([](S& s) { s.training.recompute.norms = true; }), "C01");
  EXPECT_EQ(automodel([](S& s) { s.training.overlap.expert_communication = true; }), "O01");
  EXPECT_EQ(automodel([](S& s) { s.training.set_precision("nvfp4"); }), "F01");
}

// Plans that a search shows break no rule, and a plan that breaks one is refused by its name.
TEST(RulesOfOthers, PlansAreSearchedByThem) {
  for (const std::string recipe : {"torchtitan", "deepspeed", "nemo-automodel"}) {
    const auto plan = testing::run_moesim({"plan", "--model", "gpt-oss-20b", "--tokens", "1T", "--cluster",
                                           "h100", "--gpus", "16", "--recipe", recipe, "--draws", "0",
                                           "--most", "60", "--no-upgrades", "--format", "json"});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const auto answer = nlohmann::json::parse(plan.out);
    for (const auto& one : answer.at("plans")) {
      models::Scenario s = models::Scenario::parse(JsonNode::from_json(one.at("scenario"), recipe));
      s.resolve();
      EXPECT_EQ(rules_of(s), recipe);
      EXPECT_EQ(refusal_of(s, {}, 0), "") << recipe;
    }
  }
  const auto compare = [](const std::string& model) {
    return testing::run_moesim({"compare", "--scope", "step", "--model", model, "--cluster", "h100", "--gpus",
                                "64", "--pp", "2", "--ep", "8", "--recipe", "torchtitan", "--arguments",
                                "torchtitan", "--draws", "0"});
  };
  EXPECT_EQ(compare("deepseek-v2-lite").exit_code, 0);
  const auto refused = compare("qwen3-30b-a3b");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("rule L01"));
  const auto plan = [](const std::vector<std::string>& more) {
    std::vector<std::string> words{"plan", "--model",   "qwen3-30b-a3b", "--tokens", "1T", "--gpus",
                                   "64",   "--cluster", "h100",          "--draws",  "0",  "--pp",
                                   "2",    "--recipe",  "torchtitan"};
    words.insert(words.end(), more.begin(), more.end());
    return testing::run_moesim(words);
  };
  const auto none = plan({"--dp", "32", "--ep", "8", "--recompute", "full", "--micro-batch", "1"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("rule L01"));
  EXPECT_THAT(plan({"--framework-version", "0.16"}).err, HasSubstr("whose rules have versions"));
}

// A batch script starts torchtitan with its file; DeepSpeed's program is the user's.
TEST(RulesOfOthers, ScriptsStartTheFrameworkOfThePlan) {
  testing::TempFolder folder;
  const auto script = [&](const std::string& recipe) {
    return testing::run_moesim({"plan", "--model", "deepseek-v2-lite", "--tokens", "1T", "--cluster", "h100",
                                "--gpus", "16", "--draws", "0", "--most", "60", "--no-upgrades", "--recipe",
                                recipe, "--script", folder / "x.sh"});
  };
  EXPECT_EQ(script("torchtitan").exit_code, 0);
  const std::string text = testing::read_text(folder.path() / "x.sh");
  EXPECT_THAT(text, HasSubstr("flavor = \"16B\""));
  EXPECT_THAT(text, HasSubstr("-m torchtitan.train --job.config_file job.toml \"$@\""));
  const auto ds = script("deepspeed");
  EXPECT_EQ(ds.exit_code, 2);
  EXPECT_THAT(ds.err, HasSubstr("found a plan of deepspeed"));
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
