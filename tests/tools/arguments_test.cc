#include "tools/moesim/read/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "base/json_reader.h"
#include "models/workload/fields.h"
#include "models/workload/model_json.h"
#include "process.h"
#include "refusal.h"
#include "terminal_run.h"
#include "tests/message_of.h"
#include "tests/tools/process.h"
#include "tools/moesim/read/argument_checks.h"
#include "tools/moesim/read/load_job.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {
namespace {

using models::Scenario;
using moesim::testing::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::expect_refusal;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Outcome;
using testing::run_moesim;

constexpr const char* kSmall =
    "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --vocab-size 1000 --bf16 --swiglu "
    "--disable-bias-linear "
    "--normalization RMSNorm --untie-embeddings-and-output-weights ";

Job megatron(const std::string& text) {
  return read_job(read_shell_job(text, "train.sh", {}), JobFramework::kMegatron);
}

Scenario scenario_of(const Job& job, std::int64_t gpus = 0) {
  Job with = job;
  if (gpus > 0) with.gpus.count = gpus;
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

TEST(MegatronArguments, WhatMayDefineTheModelIsLeftOutOnRequest) {
  const std::string fork = std::string(kSmall) + "--expert-interval 2 --odd-one 3 --mlp-type residual ";
  const Job job = read_job(read_shell_job(fork, "train.sh", {"--ignore expert-interval mlp_type"}),
                           JobFramework::kMegatron);
  EXPECT_THAT(with_use(job, ArgumentUse::kApproximated), ElementsAre("--expert-interval", "--mlp-type"));
  EXPECT_THAT(job.remarks(), ::testing::Contains(HasSubstr("left out, as --ignore says")));
}

TEST(MegatronArguments, AYamlKeyThatStandsTwiceIsSaid) {
  EXPECT_THAT(read_yaml_job("a: 1\nb: 3\na: 2\n", "r.yaml", {}).remarks,
              ElementsAre("r.yaml: the key 'a' stands in line 1 and again in line 3, which counts"));
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
      EXPECT_THAT(made.left_out, ElementsAre(HasSubstr("model.expert_bias"), HasSubstr("model.router_bias")));
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

// Megatron-Bridge's plan of 26.06: a graph of the whole step needs a static budget and fused operations.
TEST(ArgumentsOut, MegatronCarriesAStaticBudget) {
  const Scenario s = resolved(R"({"model": "qwen3-30b-a3b", "scope": "step", "cluster": "gb200-nvl72x1",
    "parallel": {"ep": 8, "dp": 8}, "dispatcher": "flex-hybridep:mode=static:rank_capacity_factor=1.5:paged",
    "training": {"precision": "mxfp8", "fused_kernels": true, "launch": "graphs"}})");
  const JobArguments made = arguments_of(s, JobFramework::kMegatron);
  const std::string text = arguments_text(made.arguments, JobFramework::kMegatron);
  EXPECT_THAT(text, HasSubstr("--moe-expert-rank-capacity-factor 1.5 \\\n--moe-paged-stash"));
  EXPECT_EQ(refusal_of(s, JobFramework::kMegatron, 0), "");
  const auto back = megatron(text).scenario;
  EXPECT_EQ(back["dispatcher"]["rank_capacity_factor"], 1.5);
  EXPECT_EQ(back["dispatcher"]["paged"], true);
  EXPECT_EQ(back["training"]["fused_kernels"], true);
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

// Requirements on every verb before it works: help with two examples, and one line for a mistake.

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const Verb& verb : all_verbs()) names.push_back(verb.name);
  return names;
}

TEST(CommandLine, ListsItsVerbs) {
  for (const auto& arguments : {std::vector<std::string>{}, std::vector<std::string>{"--help"}}) {
    const Outcome outcome = run_moesim(arguments);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.err, "");
    for (const std::string& verb : verb_names()) EXPECT_THAT(outcome.out, HasSubstr("  " + verb + " "));
  }
  const Outcome version_outcome = run_moesim({"--version"});
  EXPECT_EQ(version_outcome.exit_code, 0);
  EXPECT_EQ(version_outcome.out, "moesim " + std::string(version()) + "\n");
}

class EveryVerb : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryVerb, HelpShowsTwoExamples) {
  const Outcome outcome = run_moesim({GetParam(), "--help", "all"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("Examples:"));
  std::istringstream lines(outcome.out.substr(outcome.out.find("Examples:")));
  std::size_t examples = 0;
  for (std::string line; std::getline(lines, line);)
    examples += line.find("moesim " + GetParam() + " ") != std::string::npos;
  EXPECT_GE(examples, 2u) << outcome.out;
  for (const char* common : {"--format", "--quiet", "--seed", "--threads"})
    EXPECT_THAT(outcome.out, HasSubstr(common));
}

// The verbs with most options: `--help` is one screen, whose last words name the rest.
TEST(Help, ShowsTheUsualOptionsAndWhereTheOthersAre) {
  for (const Verb& verb : all_verbs()) {
    const std::string brief = run_moesim({verb.name, "--help"}).out;
    const std::string all = run_moesim({verb.name, "--help", "all"}).out;
    EXPECT_EQ(run_moesim({verb.name, "-h", "all"}).out, all);
    if (verb.usual.empty()) {
      EXPECT_EQ(brief, all) << verb.name;
      continue;
    }
    EXPECT_EQ(verb.usual.size(), 10u) << verb.name;
    const auto options = [](const std::string& text) {
      std::set<std::string> found;
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);)
        if (const std::size_t at = line.find("--");
            line.starts_with("  ") && at < 8 && at != std::string::npos)
          found.insert(line.substr(at, line.find_first_of(" ,", at) - at));
      return found;
    };
    const std::set<std::string> few = options(brief), every = options(all);
    for (const std::string_view name : verb.usual) EXPECT_TRUE(few.contains(std::string(name))) << name;
    EXPECT_EQ(few.size(), verb.usual.size() + 1) << brief;  // and --help
    EXPECT_TRUE(std::ranges::includes(every, few)) << verb.name;
    EXPECT_GT(every.size(), 20u) << verb.name;
    EXPECT_THAT(brief, HasSubstr("`moesim " + verb.name + " --help all` shows " +
                                 std::to_string(every.size() - few.size()) + " more options"));
    EXPECT_THAT(brief, HasSubstr("Examples:"));
    // Subcommands take five lines more.
    const int lines = brief.find("Subcommands:") == std::string::npos ? 25 : 30;
    EXPECT_LE(std::ranges::count(testing::run_in_terminal({verb.name, "--help"}, 100).out, '\n'), lines)
        << brief;
  }
}

TEST_P(EveryVerb, RefusesWhatItDoesNotKnow) {
  // Something stands there for verbs that need an argument; a flag is refused before it is looked at.
  expect_refusal(run_moesim({GetParam(), "--frobnicate", "argument"}), HasSubstr("--frobnicate"));
  expect_refusal(run_moesim({GetParam(), "--frobnicate=3", "argument"}), HasSubstr("--frobnicate"));
  expect_refusal(run_moesim({GetParam(), "--format", "yaml"}), HasSubstr("yaml"));
  expect_refusal(run_moesim({GetParam(), "--seed", "soon"}), HasSubstr("soon"));
  expect_refusal(run_moesim({GetParam(), "--threads", "-1"}), HasSubstr("-1"));
  expect_refusal(run_moesim({GetParam(), "--format"}), HasSubstr("--format"));
}

INSTANTIATE_TEST_SUITE_P(Moesim, EveryVerb, ::testing::ValuesIn(verb_names()),
                         [](const auto& info) { return info.param; });

// Completions, tried in a shell.

// Returns bash's completions after these words, the last of which is being typed.
std::string offered(const std::string& words, int last) {
  const testing::TempFolder folder;
  const std::string script = folder / "script";
  folder.write("script", "source <(" MOESIM_BINARY " completion bash)\nCOMP_WORDS=(" + words +
                             ")\nCOMP_CWORD=" + std::to_string(last) +
                             "\n_moesim\necho \"${COMPREPLY[@]}\" > '" + (folder / "out") + "'\n");
  EXPECT_EQ(std::system(("cd '" + folder.path().string() + "' && bash script").c_str()), 0);
  return testing::read_text(folder.path() / "out");
}

TEST(Completion, OffersVerbsOptionsAndListedValues) {
  EXPECT_THAT(offered("moesim comp", 1), AllOf(HasSubstr("compare"), HasSubstr("completion")));
  EXPECT_THAT(offered("moesim compare --sch", 2), HasSubstr("--schedule"));
  EXPECT_THAT(offered("moesim compare --schedule zero", 3), HasSubstr("zero-bubble"));
}

TEST(Completion, OffersWhatIsBuiltIn) {
  EXPECT_THAT(offered("moesim compare --model mix", 3),
              AllOf(HasSubstr("mixtral-8x7b"), Not(HasSubstr("qwen"))));
  EXPECT_THAT(offered("moesim compare --cluster dgx-h100", 3), HasSubstr("dgx-h100x8"));
  EXPECT_THAT(offered("moesim compare --dispatcher flex", 3), HasSubstr("flex-deepep"));
  EXPECT_THAT(offered("moesim compare --routing zi", 3), HasSubstr("zipf"));
  // A file may stand there, too.
  EXPECT_THAT(offered("moesim compare --model scr", 3), HasSubstr("script"));
}

}  // namespace
}  // namespace moesim::tools
