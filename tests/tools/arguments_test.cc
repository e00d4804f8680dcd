#include "tools/moesim/read/arguments.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/json_reader.h"
#include "models/workload/fields.h"
#include "models/workload/model_json.h"
#include "tests/message_of.h"
#include "tools/moesim/read/load_job.h"

namespace moesim::tools {
namespace {

using models::Scenario;
using moesim::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kSmall =
    "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --vocab-size 1000 --bf16 --swiglu "
    "--disable-bias-linear "
    "--normalization RMSNorm --untie-embeddings-and-output-weights ";

Job megatron(const std::string& text) {
  return read_job(read_shell_job(text, "train.sh", {}), JobFramework::kMegatron);
}

Scenario scenario_of(const Job& job, std::int64_t gpus = 0) {
  Job with = job;
  if (gpus > 0) with.gpus = gpus;
  const models::Question q = question_of(with);
  Scenario s = models::resolve(q).scenario;
  s.dispatchers = q.said.dispatchers;  // the one that runs, without those it could be
  s.resolve();
  return s;
}

std::vector<std::string> with_use(const Job& job, ArgumentUse use) {
  std::vector<std::string> names;
  for (const UsedArgument& a : job.arguments)
    if (a.use == use) names.push_back(a.setting.shown);
  return names;
}

TEST(MegatronArguments, SayAModelAndAPlan) {
  const Job job =
      megatron(std::string(kSmall) +
               "--group-query-attention --num-query-groups 2 --ffn-hidden-size 1024 --num-experts 8 "
               "--moe-router-topk 3 --moe-ffn-hidden-size 512 --moe-layer-freq '([0]*1+[1]*3)' "
               "--moe-shared-expert-intermediate-size 128 --tensor-model-parallel-size 2 --sequence-parallel "
               "--pipeline-model-parallel-size 2 --expert-model-parallel-size 4 "
               "--expert-tensor-parallel-size 1 --micro-batch-size 2 --global-batch-size 64 --seq-length 512 "
               "--moe-token-dispatcher-type flex --moe-enable-deepep --moe-router-dtype fp32 "
               "--recompute-granularity selective --recompute-modules moe_act layernorm "
               "--use-distributed-optimizer --overlap-grad-reduce");
  const Scenario s = scenario_of(job, 16);
  EXPECT_EQ(s.model.name, "train");
  EXPECT_EQ(s.model.layers, 4);
  EXPECT_EQ(s.model.attention.kv_heads, 2);
  EXPECT_EQ(s.model.attention.head_dim, 64);
  EXPECT_FALSE(s.model.attention.qkv_bias);
  EXPECT_EQ(s.model.vocabulary, 1024);  // a multiple of 128 x TP
  EXPECT_EQ(s.model.dense_layers, 1);
  EXPECT_EQ(s.model.topk, 3);
  EXPECT_EQ(s.model.shared_ffn, 128);
  EXPECT_EQ(s.parallel.etp, 1);
  EXPECT_EQ(s.parallel.dp, 4);
  EXPECT_EQ(s.parallel.microbatches, 8);
  EXPECT_EQ(s.dispatchers.front().name, "flex-deepep");
  EXPECT_EQ(s.training.recompute.text(), "layernorm+moe_act");
  EXPECT_TRUE(s.training.overlap.gradients);
  EXPECT_FALSE(s.training.overlap.parameters);
  EXPECT_EQ(s.scope, Scenario::Scope::kStep);
  EXPECT_THAT(with_use(job, ArgumentUse::kUnknown), IsEmpty());
  EXPECT_THAT(job.remarks(), IsEmpty());
}

TEST(MegatronArguments, SwitchesWithoutEffectAreListed) {
  const Job dense =
      megatron(std::string(kSmall) + "--overlap-moe-expert-parallel-comm --delay-wgrad-compute");
  EXPECT_THAT(with_use(dense, ArgumentUse::kIrrelevant),
              ::testing::IsSupersetOf({"--overlap-moe-expert-parallel-comm", "--delay-wgrad-compute"}));
  EXPECT_EQ(dense.scenario["training"]["overlap"]["delayed_wgrad"], false);
  const Job used = megatron(std::string(kSmall) +
                            "--num-experts 4 --overlap-moe-expert-parallel-comm --delay-wgrad-compute");
  EXPECT_THAT(with_use(used, ArgumentUse::kIrrelevant),
              ::testing::Not(::testing::Contains("--delay-wgrad-compute")));
  EXPECT_EQ(used.scenario["training"]["overlap"]["delayed_wgrad"], true);
}

// Megatron's defaults apply to missing arguments.
TEST(MegatronArguments, DefaultsAreMegatrons) {
  const Job job = megatron(
      "--num-layers 2 --hidden-size 256 --num-attention-heads 4 --vocab-size 1024 --bf16 --num-experts 4 "
      "--tensor-model-parallel-size 2 --sequence-parallel");
  const Scenario s = scenario_of(job, 2);
  EXPECT_TRUE(s.model.norm_bias);
  EXPECT_TRUE(s.model.tied_embeddings);
  EXPECT_FALSE(s.model.gated);
  EXPECT_TRUE(s.model.attention.qkv_bias);
  EXPECT_TRUE(s.model.expert_bias);
  EXPECT_EQ(s.model.expert_ffn, 1024);
  EXPECT_EQ(s.model.topk, 2);
  EXPECT_EQ(s.parallel.etp, 2);
  EXPECT_EQ(s.dispatchers.front().name, "allgather");
  EXPECT_EQ(s.router_dtype, models::DType::kBf16);
  EXPECT_EQ(s.training.sharding, models::ShardingScheme::kDdp);
  EXPECT_EQ(s.training.gradient_bytes, 4);
  EXPECT_EQ(s.parallel.microbatches, 1);
}

TEST(MegatronArguments, EveryArgumentIsUsedIrrelevantOrNamed) {
  const Job job = megatron(std::string(kSmall) +
                           "--lr 1e-4 --data-path a b --save x --log-interval 1 --odd-one 3 "
                           "--tp-comm-overlap --kitchen-config-file false --q-lora-rank 8");
  EXPECT_THAT(with_use(job, ArgumentUse::kUnknown), ElementsAre("--odd-one"));
  EXPECT_THAT(with_use(job, ArgumentUse::kApproximated), ElementsAre("--tp-comm-overlap"));
  EXPECT_THAT(with_use(job, ArgumentUse::kIrrelevant),
              ElementsAre("--lr", "--data-path", "--save", "--log-interval", "--kitchen-config-file",
                          "--q-lora-rank"));
  EXPECT_THAT(job.remarks(), ElementsAre(HasSubstr("--tp-comm-overlap: tensor-parallel"),
                                         HasSubstr("train.sh: not understood, and not used: --odd-one")));
}

// Muon replicates its state unless a distributed optimizer is asked for, which then deals out whole matrices.
TEST(MegatronArguments, MuonIsReadWithItsSharding) {
  const auto plan = [](const std::string& more) { return scenario_of(megatron(kSmall + more), 1).training; };
  EXPECT_FALSE(plan("").muon);
  const auto muon = plan("--optimizer muon --muon-num-ns-steps 6 --muon-momentum 0.9");
  EXPECT_TRUE(muon.muon);
  EXPECT_EQ(muon.newton_schulz_steps, 6);
  EXPECT_EQ(muon.sharding, models::ShardingScheme::kDdp);
  for (const char* sharded : {"--optimizer dist_muon", "--optimizer muon --use-distributed-optimizer",
                              "--optimizer muon --use-layer-wise-distributed-optimizer"})
    EXPECT_EQ(plan(sharded).sharding, models::ShardingScheme::kZero1) << sharded;
}

// Megatron's own layers and unfused kernels write the scores; its dropout is on unless it is said otherwise.
TEST(MegatronArguments, SayHowAttentionIsComputed) {
  const auto kernel = [](const std::string& more) {
    return std::string(name_of(scenario_of(megatron(kSmall + more), 1).training.attention));
  };
  EXPECT_EQ(kernel(""), "flash");
  EXPECT_EQ(kernel("--attention-backend fused --attention-dropout $SAID_ELSEWHERE"), "flash");
  EXPECT_EQ(kernel("--attention-backend AttnBackend.unfused"), "unfused-dropout");
  EXPECT_EQ(kernel("--attention-backend unfused"), "unfused-dropout");
  EXPECT_EQ(kernel("--attention-backend unfused --attention-dropout 0.0"), "unfused");
  EXPECT_EQ(kernel("--attention-backend local --attention-dropout 0"), "unfused");
  EXPECT_EQ(kernel("--transformer-impl local --attention-dropout 0"), "unfused");
  EXPECT_EQ(kernel("--transformer-impl local --use-flash-attn"), "flash");
  const auto script = [](const char* switches) {
    const Job job = megatron(fmt::format("{}torchrun --nproc_per_node 1 train.py {}", switches, kSmall));
    return scenario_of(job).training.attention;
  };
  EXPECT_EQ(script("export NVTE_FLASH_ATTN=0\nexport NVTE_FUSED_ATTN=0\n"),
            models::AttentionKernel::kUnfusedDropout);
  EXPECT_EQ(script("export NVTE_FLASH_ATTN=0\n"), models::AttentionKernel::kFlash);
  EXPECT_THAT(
      megatron(std::string(kSmall) + "--attention-backend unfused --no-masked-softmax-fusion").remarks(),
      ElementsAre(HasSubstr("--no-masked-softmax-fusion: scale, mask and softmax")));
  EXPECT_THAT(message_of([] { megatron(std::string(kSmall) + "--attention-backend fast"); }),
              HasSubstr("--attention-backend fast"));
}

TEST(MegatronArguments, SayAModelUnderOtherNames) {
  const Scenario s = scenario_of(megatron(std::string(kSmall) + "--moe-num-experts=64 --moe-top-k=1"), 8);
  EXPECT_EQ(s.model.experts, 64);
  EXPECT_EQ(s.model.topk, 1);
  const std::string hybrid = std::string(kSmall) + "--num-experts 8 --moe-ffn-hidden-size 512 ";
  for (const char* name : {"--hybrid-layer-pattern", "--hybrid-override-pattern"}) {
    const Scenario h = scenario_of(megatron(fmt::format("{}{} MEM*EM-", hybrid, name)), 8);
    EXPECT_EQ(h.model.pattern, "MEM*EM-") << name;
    EXPECT_EQ(h.model.layers, 7) << name;  // whatever --num-layers says
  }
  const Scenario staged = scenario_of(
      megatron(hybrid + "--hybrid-layer-pattern 'ME|M*|EM|ME/*E/*E' --pipeline-model-parallel-size 2"), 8);
  EXPECT_EQ(staged.model.pattern, "MEM*EMME");
  EXPECT_EQ(staged.model.mtp_layers, 2);
  EXPECT_EQ(staged.parallel.vpp, 2);
  EXPECT_THAT(message_of([&] { megatron(hybrid + "--hybrid-layer-pattern MEGE"); }), HasSubstr("letters M"));
  EXPECT_THAT(message_of([&] { megatron(hybrid + "--hybrid-layer-pattern 'ME/MM'"); }), HasSubstr("MTP"));
  EXPECT_THAT(message_of([&] { megatron(std::string(kSmall) + "--is-hybrid-model"); }),
              HasSubstr("--hybrid-layer-pattern"));
  // Llama 2 70B: 4/3 of 8192 in whole numbers, times 1.3, in steps of 4096.
  const Scenario llama = scenario_of(
      megatron("--num-layers 2 --hidden-size 8192 --num-attention-heads 64 --vocab-size 1000 --bf16 --swiglu "
               "--hidden-dim-multiplier 1.3 --multiple-of 4096"),
      1);
  EXPECT_EQ(llama.model.dense_ffn, 28672);
}

TEST(MegatronArguments, WhatMayDefineTheModelStopsTheAnswer) {
  const std::string fork = std::string(kSmall) + "--expert-interval 2 --odd-one 3 --mlp-type residual ";
  EXPECT_THAT(message_of([&] { megatron(fork); }),
              HasSubstr("train.sh:1: found --expert-interval 2, expected an argument that is understood"));
  EXPECT_NO_THROW(megatron(std::string(kSmall) + "--expert-interval 0 --odd-layers none"));
  const auto without = [&](const char* names) {
    return read_job(read_shell_job(fork, "train.sh", {names}), JobFramework::kMegatron);
  };
  const Job job = without("--ignore expert-interval mlp_type");
  EXPECT_THAT(with_use(job, ArgumentUse::kApproximated), ElementsAre("--expert-interval", "--mlp-type"));
  EXPECT_THAT(job.remarks(), ::testing::Contains(HasSubstr("left out, as --ignore says")));
  EXPECT_THAT(message_of([&] { without("--ignore nothing"); }), HasSubstr("--ignore nothing"));
}

// Megatron runs dense models so, and refuses experts.
TEST(MegatronArguments, TensorParallelismMayDoWithoutSequenceParallelism) {
  const Scenario s = scenario_of(megatron(std::string(kSmall) + "--tensor-model-parallel-size 2"), 2);
  EXPECT_FALSE(s.training.sequence_parallel);
  EXPECT_TRUE(scenario_of(megatron(kSmall), 2).training.sequence_parallel);
}

TEST(MegatronArguments, AValueThatNobodyCanTellIsNamedWhereItIsNeeded) {
  const std::string script = std::string("torchrun --nproc_per_node 8 train.py ") + kSmall;
  EXPECT_THAT(
      message_of([&] { megatron(script + "--seq-length $SEQ"); }),
      HasSubstr("found --seq-length $SEQ, expected a value that the file says ($SEQ is said outside"));
  EXPECT_NO_THROW(megatron(script + "--data-path $DATA"));
  const JobFile with = read_shell_job(script + "--seq-length $SEQ", "train.sh", {"SEQ=64"});
  EXPECT_EQ(scenario_of(read_job(with, JobFramework::kMegatron)).parallel.seq, 64);
  EXPECT_EQ(scenario_of(read_job(with, JobFramework::kMegatron)).parallel.dp, 8);  // torchrun's
  EXPECT_EQ(read_shell_job(script, "train.sh", {"--seq-length 32"}).settings.back().values.front(), "32");
}

TEST(MegatronArguments, YamlSaysTheSame) {
  const std::string text =
      "model:\n  num_layers: 4\n  hidden_size: 256\n  num_attention_heads: 4\n  vocab_size: 1024\n"
      "  gated_linear_unit: true\n  add_bias_linear: false\n  normalization: RMSNorm\n"
      "  share_embeddings_and_output_weights: false\n  num_moe_experts: 8\n  moe_layer_freq: [0, 1, 1, 1]\n"
      "train:\n  micro_batch_size: 1\n  global_batch_size: ${GBS:16}\nmixed_precision: bf16_mixed\n"
      "ddp:\n  overlap_grad_reduce: true\n";
  const Scenario s = scenario_of(read_job(read_yaml_job(text, "r.yaml", {}), JobFramework::kNemo), 8);
  EXPECT_EQ(s.model.experts, 8);
  EXPECT_EQ(s.model.dense_layers, 1);
  EXPECT_TRUE(s.model.gated);
  EXPECT_FALSE(s.model.attention.qkv_bias);
  EXPECT_EQ(s.parallel.microbatches, 2);
  const Scenario more = scenario_of(
      read_job(read_yaml_job(text, "r.yaml", {"GBS=32", "model.hidden_size=512"}), JobFramework::kNemo), 8);
  EXPECT_EQ(more.parallel.microbatches, 4);
  EXPECT_EQ(more.model.hidden, 512);
  EXPECT_THAT(message_of([&] { read_yaml_job("a: [1\n", "r.yaml", {}); }), HasSubstr("r.yaml:"));
  const JobFile twice = read_yaml_job("a: 1\nb: 3\na: 2\n", "r.yaml", {});
  EXPECT_THAT(twice.remarks,
              ElementsAre("r.yaml: the key 'a' stands in line 1 and again in line 3, which counts"));
  EXPECT_THAT(message_of([&] {
                read_job(read_yaml_job("extends:\n  - b.yaml\nnum_layers: 2\n", "r.yaml", {}),
                         JobFramework::kMegatron);
              }),
              HasSubstr("extends"));
}

// Plain values are read as by PyYAML; quoted ones are text.
TEST(MegatronArguments, YamlHasTheTypesOfVersionOnePointOne) {
  const auto value = [](const std::string& text) {
    return read_yaml_job("a: " + text + "\n", "r.yaml", {}).settings.front().values.front();
  };
  for (const auto& [text, expected] :
       std::initializer_list<std::pair<const char*, const char*>>{{"yes", "true"},
                                                                  {"Off", "false"},
                                                                  {"010", "8"},
                                                                  {"0x10", "16"},
                                                                  {"1_000", "1000"},
                                                                  {"1:30", "90"},
                                                                  {"-010", "-8"},
                                                                  {"1e3", "1e3"},
                                                                  {"09", "09"},
                                                                  {"'yes'", "yes"},
                                                                  {"\"010\"", "010"},
                                                                  {"1.5", "1.5"},
                                                                  {"y", "y"},
                                                                  {"0b11", "3"},
                                                                  {"2:60", "2:60"}})
    EXPECT_EQ(value(text), expected) << text;
}

// Values of a command line are text; a shell takes quotes off, and a flag that is false is not there.
TEST(MegatronArguments, YamlOfArgumentsIsACommandLine) {
  const JobFile file = read_yaml_job(
      "MODEL_ARGS:\n  --moe-layer-freq: \"'([0]*1+[1]*3)'\"\n  --bf16: true\n  --fp16: false\n  --seed: "
      "010\n",
      "r.yaml", {});
  ASSERT_EQ(file.settings.size(), 3U);
  EXPECT_EQ(file.settings[0].values.front(), "([0]*1+[1]*3)");
  EXPECT_EQ(file.settings[2].values.front(), "010");
}

TEST(MegatronArguments, YamlMergesGiveWayToTheMapThatHasThem) {
  const JobFile file = read_yaml_job("x: &x {a: 1, b: 2}\nm:\n  <<: *x\n  a: 3\nx: {}\n", "r.yaml", {});
  ASSERT_EQ(file.settings.size(), 2U);
  EXPECT_EQ(file.settings[0].values.front(), "3");
  EXPECT_EQ(file.settings[1].values.front(), "2");
}

TEST(MegatronArguments, ALayoutSaysHowManyStagesThereAre) {
  const Job job = megatron(std::string(kSmall) +
                           "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|(t|)*2tL'");
  EXPECT_EQ(scenario_of(job, 2).parallel.vpp, 2);
  EXPECT_THAT(job.remarks(), ElementsAre(HasSubstr("--pipeline-model-parallel-layout")));
}

TEST(TorchtitanArguments, SayAPlan) {
  const char* text =
      "[model]\nname = \"deepseek_v3\"\nflavor = \"671B\"\n[training]\nlocal_batch_size = 4\nseq_len = 4096\n"
      "[parallelism]\ndata_parallel_shard_degree = 64\nexpert_parallel_degree = "
      "32\n[activation_checkpoint]\nmode = "
      "\"full\"\n[metrics]\nlog_freq = 10\n[odd]\nkey = 1\n";
  const Job job = read_job(read_toml_job(text, "t.toml", {}), JobFramework::kTorchtitan);
  const Scenario s = scenario_of(job);
  EXPECT_EQ(s.model.hidden, 7168);
  EXPECT_EQ(s.parallel.dp, 64);
  EXPECT_EQ(s.parallel.micro_batch, 4);
  EXPECT_EQ(s.training.sharding, models::ShardingScheme::kFsdp);
  EXPECT_TRUE(s.training.recompute.full);
  EXPECT_EQ(s.dispatchers.front().name, "torchtitan-alltoall");
  EXPECT_THAT(with_use(job, ArgumentUse::kUnknown), ElementsAre("odd.key"));
  EXPECT_THAT(message_of([] { read_toml_job("[a\n", "t.toml", {}); }), HasSubstr("t.toml:1"));
  EXPECT_THAT(message_of([] {
                read_job(
                    read_toml_job("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "
                                  "\"ZBVZeroBubble\"\n",
                                  "t.toml", {}),
                    JobFramework::kTorchtitan);
              }),
              HasSubstr("ZBVZeroBubble"));
}

TEST(TorchtitanArguments, WhatMayDefineTheModelStopsTheAnswer) {
  const auto titan = [](const char* text) {
    return read_job(read_toml_job(text, "t.toml", {}), JobFramework::kTorchtitan);
  };
  EXPECT_THAT(message_of([&] { titan("[model]\nname = \"llama3\"\nn_layers = 12\n"); }),
              HasSubstr("t.toml:3: found model.n_layers 12"));
  const Job job = titan("[training]\ndtype = \"bfloat16\"\nseq_len = 64\n");
  EXPECT_EQ(question_of(job).said.training.optimizer.text(), "bf16,bf16,bf16");
}

TEST(DeepSpeedArguments, SayBatchPrecisionAndSharding) {
  const char* text =
      R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
    "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}})";
  const Scenario s = question_of(read_job(read_json_job(text, "ds.json", {}), JobFramework::kDeepSpeed)).said;
  EXPECT_EQ(s.parallel.dp, 8);
  EXPECT_EQ(s.batch.sequences / s.parallel.dp / s.parallel.micro_batch, 4);
  EXPECT_EQ(s.training.sharding, models::ShardingScheme::kFsdp);
  EXPECT_EQ(s.training.offload, models::Offload::kOptimizer);
  EXPECT_THAT(
      message_of([] {
        read_job(read_json_job(R"({"train_batch_size": "auto", "bf16": {"enabled": true}})", "ds.json", {}),
                 JobFramework::kDeepSpeed);
      }),
      HasSubstr("auto: the trainer says it"));
  EXPECT_THAT(message_of([] {
                read_job(read_json_job(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})",
                                       "ds.json", {}),
                         JobFramework::kDeepSpeed);
              }),
              HasSubstr("ds.json:1"));
}

Scenario resolved(const char* text) {
  Scenario s = Scenario::parse(JsonNode::parse(text, "s.json"));
  s.resolve();
  return s;
}

// Written arguments read back are the same job, for every built-in model.
TEST(ArgumentsOut, MegatronCarriesEveryBuiltInModel) {
  for (const std::string& name : models::Architecture::names()) {
    Scenario s;
    s.set_model(name);
    s.scope = Scenario::Scope::kStep;
    s.set_dispatchers("alltoall");
    s.parallel.ep = s.parallel.dp = 8;
    s.give("parallel.dp");
    s.resolve();
    const JobArguments made = arguments_of(s, JobFramework::kMegatron);
    // Megatron has biases in all products of a layer or in none.
    if (name == "phi-3.5-moe")
      EXPECT_THAT(made.left_out, ElementsAre(HasSubstr("model.expert_bias")));
    else if (name.starts_with("llama4"))  // windows slide in Megatron
      EXPECT_THAT(made.left_out, ElementsAre(HasSubstr("chunked")));
    else
      EXPECT_THAT(made.left_out, IsEmpty()) << name << ": " << ::testing::PrintToString(made.left_out);
  }
}

TEST(ArgumentsOut, MegatronCarriesAttentionAndSequenceParallelism) {
  for (const char* kernel : {"unfused", "unfused-dropout"}) {
    Scenario s = resolved(R"({"model": {"name": "dense", "hidden": 512, "layers": 4, "experts": 0,
      "dense_ffn": 2048, "vocabulary": 32000, "attention": {"heads": 8}}, "scope": "step",
      "parallel": {"tp": 2, "dp": 4}, "training": {"sequence_parallel": false}})");
    s.training.attention = models::named<models::AttentionKernel>("attention", kernel);
    EXPECT_THAT(arguments_of(s, JobFramework::kMegatron).left_out, IsEmpty()) << kernel;
  }
}

TEST(ArgumentsOut, MegatronCarriesAPlan) {
  const Scenario s =
      resolved(R"({"model": "deepseek-v3", "scope": "step", "parallel": {"tp": 2, "pp": 4, "vpp": 2,
    "ep": 16, "dp": 16, "microbatches": 8, "micro_batch": 2, "seq": 8192, "cp": 1},
    "dispatcher": "flex-deepep:sms=24:pad_rows=16", "training": {"precision": "fp8_block", "fp8_attention": true,
    "recompute": "mla_up_proj+moe_act", "sharding": "zero1", "optimizer_dtypes": "fp32,bf16,bf16",
    "overlap": {"expert_communication": true, "gradients": true, "parameters": true, "delayed_wgrad": true},
    "rank_order": "tp-cp-ep-dp-pp", "offload": "optimizer"}})");
  const JobArguments made = arguments_of(s, JobFramework::kMegatron);
  EXPECT_THAT(made.left_out, IsEmpty()) << ::testing::PrintToString(made.left_out);
  const std::string text = arguments_text(made.arguments, JobFramework::kMegatron);
  EXPECT_THAT(text, HasSubstr("--tensor-model-parallel-size 2 \\\n--sequence-parallel \\\n"));
  EXPECT_THAT(text, HasSubstr("--moe-layer-freq '([0]*3+[1]*58)'"));
  EXPECT_THAT(text, HasSubstr("--global-batch-size 256"));
  // The text is a file of arguments.
  const Job job = megatron(text);
  Scenario back = scenario_of(job, s.parallel.world());
  EXPECT_EQ(back.parallel.microbatches, 8);
  EXPECT_EQ(back.training.precision, "fp8_block");
  // Also as YAML.
  const std::string yaml = arguments_text(made.arguments, JobFramework::kNemo);
  EXPECT_EQ(read_job(read_yaml_job(yaml, "a.yaml", {}), JobFramework::kNemo).scenario["model"]["attention"],
            job.scenario["model"]["attention"]);
}

// Layers with experts in an order of their own go in and out by their list.
TEST(ArgumentsOut, ListsOfLayersWithExpertsComeBack) {
  const auto ffns = [](const char* frequency) {
    return scenario_of(megatron(std::string(kSmall) +
                                "--num-experts 8 --moe-router-topk 2 --moe-layer-freq " + frequency),
                       8)
        .model.ffns;
  };
  EXPECT_EQ(ffns("'([1]*2+[0]*1+[1]*1)'"), "EE-E");
  EXPECT_EQ(ffns("2"), "E-E-");  // Megatron's count begins with experts
  EXPECT_EQ(ffns("'[0,1,1,1]'"), "");
  Scenario s;
  s.set_model("mixtral-8x7b");
  s.model.name = "mine";
  s.model.layers = 4;
  s.model.dense_ffn = 512;
  s.model.ffns = "EE-E";
  s.scope = Scenario::Scope::kStep;
  s.set_dispatchers("alltoall");
  s.parallel.ep = s.parallel.dp = 8;
  s.give("parallel.dp");
  s.resolve();
  const JobArguments made = arguments_of(s, JobFramework::kMegatron);
  EXPECT_THAT(made.left_out, IsEmpty()) << ::testing::PrintToString(made.left_out);
  EXPECT_THAT(arguments_text(made.arguments, JobFramework::kMegatron),
              HasSubstr("--moe-layer-freq '[1,1,0,1]'"));
  s.model.mixers = "**LL";
  s.model.linear.value_heads = s.model.linear.key_heads = 8;
  EXPECT_THAT(message_of([&] { arguments_of(s, JobFramework::kMegatron); }), HasSubstr("linear attention"));
}

TEST(ArgumentsOut, WhatAFrameworkHasNoArgumentForIsNamed) {
  const Scenario s = resolved(R"({"model": "mixtral-8x7b", "scope": "step", "dispatcher": "alltoall",
    "parallel": {"pp": 2, "ep": 8, "dp": 8, "microbatches": 4}, "training": {"schedule": "zero-bubble"}})");
  EXPECT_THAT(arguments_of(s, JobFramework::kMegatron).left_out,
              ElementsAre(HasSubstr("training.schedule = \"zero-bubble\"")));
  const Scenario titan =
      resolved(R"({"model": "mixtral-8x7b", "scope": "step", "dispatcher": "torchtitan-alltoall",
    "parallel": {"ep": 8, "dp": 8}})");
  EXPECT_THAT(message_of([&] { arguments_of(titan, JobFramework::kMegatron); }),
              HasSubstr("torchtitan-alltoall"));
  const Scenario two = resolved(R"({"model": "mixtral-8x7b", "scope": "step", "parallel": {"ep": 8}})");
  EXPECT_THAT(message_of([&] { arguments_of(two, JobFramework::kMegatron); }),
              HasSubstr("found 2, expected one"));
}

TEST(ArgumentsOut, TorchtitanCarriesItsOwnPlan) {
  const Scenario s =
      resolved(R"({"model": "deepseek-v3", "scope": "step", "dispatcher": "torchtitan-alltoall",
    "parallel": {"ep": 8, "dp": 16, "micro_batch": 4, "microbatches": 1}, "training": {"sharding": "fsdp",
    "recompute": "full", "gradient_bytes": 4}})");
  const JobArguments made = arguments_of(s, JobFramework::kTorchtitan);
  EXPECT_THAT(made.left_out, IsEmpty()) << ::testing::PrintToString(made.left_out);
  const std::string text = arguments_text(made.arguments, JobFramework::kTorchtitan);
  EXPECT_THAT(text, HasSubstr("[parallelism]\n"));
  EXPECT_EQ(scenario_of(read_job(read_toml_job(text, "t.toml", {}), JobFramework::kTorchtitan)).parallel.dp,
            16);
}

// No argument in two lists, none of them one that a rule reads.
TEST(ArgumentTables, EveryNameStandsOnce) {
  for (const JobFramework framework :
       {JobFramework::kMegatron, JobFramework::kTorchtitan, JobFramework::kDeepSpeed}) {
    const ArgumentTable& table = table_of(framework);
    std::set<std::string, std::less<>> names;
    for (const ArgumentRule& rule : table.rules)
      for (const std::string& name : rule.names) EXPECT_TRUE(names.insert(name).second) << name;
    for (const auto& list : {table.irrelevant, table.approximated, table.refused})
      for (const KnownArguments& known : list) {
        EXPECT_FALSE(known.because.empty());
        for (const std::string& name : known.names) EXPECT_TRUE(names.insert(name).second) << name;
      }
  }
}

}  // namespace
}  // namespace moesim::tools
