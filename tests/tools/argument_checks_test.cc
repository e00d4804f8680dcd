// Rules of frameworks for their own arguments: combinations that they start with, and that they refuse.
#include "tools/moesim/read/argument_checks.h"

#include <fmt/format.h>
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
#include "models/question/paths.h"
#include "process.h"
#include "tests/cases.h"
#include "tests/message_of.h"
#include "tools/moesim/read/load_job.h"

namespace moesim::tools {
namespace {

using moesim::testing::cases;
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

// Rows of argument_rules.json.
struct Combination {
  std::string arguments, rules;
  std::int64_t gpus;
};

std::vector<Combination> combinations(const std::string& of) {
  std::vector<Combination> all;
  for (const auto& row : cases("tools/argument_rules.json", of))
    all.push_back({row[0], row[1], row.size() > 2 ? row[2].get<std::int64_t>() : 64});
  return all;
}

TEST(MegatronRules, AreThoseOfItsSources) {
  for (const auto& [base, list] : {std::pair{kMoe, "with"}, {"", "without"}})
    for (const Combination& c : combinations(fmt::format("megatron {} experts", list)))
      EXPECT_EQ(broken(base + c.arguments, c.gpus), c.rules) << base << c.arguments;
}

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

// Ids of the rules that refuse settings ("name=value", of which lists have commas, behind the usual ones), without
// what a plan's arguments lack.
std::string broken_by(JobFramework framework, const Combination& c) {
  CheckedArguments all;
  all.world = c.gpus;
  all.gpu = "h100-sxm";
  all.before_blackwell = true;
  models::Scenario plan;
  plan.model.layers = 61, plan.model.experts = 256;
  plan.model.attention.heads = plan.model.attention.kv_heads = 128;
  plan.dispatchers = models::DispatcherSpec::parse_list("alltoall");
  all.plan = &plan;
  std::string words = framework == JobFramework::kDeepSpeed
                          ? "train_micro_batch_size_per_gpu=2 bf16.enabled=true zero_optimization.stage=1 "
                          : "model.name=deepseek_v3 model.flavor=671B training.seq_len=4096 "
                            "activation_checkpoint.mode=full ";
  words += c.arguments;
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
  for (const BrokenRule& rule : broken_rules(all, framework))
    if (!rule.warns && !rule.lacks) ids += (ids.empty() ? "" : " ") + rule.id;
  return ids;
}

TEST(RulesOfOthers, AreThoseOfTheirSources) {
  for (const JobFramework framework : {JobFramework::kTorchtitan, JobFramework::kDeepSpeed})
    for (const Combination& c : combinations(std::string(name_of(framework))))
      EXPECT_EQ(broken_by(framework, c), c.rules) << name_of(framework) << ' ' << c.arguments;
}

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
  for (const auto& row : cases("tools/argument_rules.json", "recipes")) {
    models::Scenario plan;
    plan.recipe = row[0];
    plan.dispatchers = models::DispatcherSpec::parse_list(row[1].get<std::string>());
    plan.model = models::Architecture::load("qwen3-30b-a3b");
    plan.parallel.dp = plan.parallel.ep = plan.parallel.microbatches = 8;
    plan.parallel.seq = 4096;
    plan.scope = models::Scenario::Scope::kStep;
    plan.training.sharding = models::ShardingScheme::kFsdp;
    for (const auto& [path, value] : row[2].items())
      models::set(plan, models::find_path(path), nlohmann::json(value), models::Origin::said("--set"));
    const std::string text = refusal_of(plan, {}, 0);
    const std::size_t at = text.find("(rule ");
    EXPECT_EQ(at == std::string::npos ? text : text.substr(at + 6, 3), row[3].get<std::string>()) << row;
  }
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
