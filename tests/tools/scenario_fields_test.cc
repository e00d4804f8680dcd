// A scenario on its ways in and out of the tool: flags, files and --set say the same; what a result holds as
// its inputs gives that result again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/answers/answer.h"
#include "models/dispatchers/dispatcher.h"
#include "models/workload/fields.h"
#include "process.h"
#include "tests/cases.h"
#include "tests/message_of.h"
#include "tests/models/field_samples.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/comparison.h"

namespace moesim::tools {
namespace {

using models::Field;
using models::FieldType;
using models::testing::FieldSample;
using models::testing::samples_of;
using moesim::testing::cases;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_moesim;
using testing::TempFolder;
using Words = std::vector<std::string>;

const char* scope_of(const Field& field) { return field.used_in(models::Scopes::kLayer) ? "layer" : "step"; }

models::Scenario by_flags(const Words& words) {
  CLI::App app;
  QuestionOptions options;
  options.declare(app);
  app.parse(words);
  return options.question({}).said;
}

models::Scenario scenario_of(const json& document) {
  return models::Scenario::parse(JsonNode::from_json(document, "s.json"));
}

TEST(ScenarioFields, FlagsFilesAndSetsSayTheSame) {
  int flags = 0;
  for (const Field& field : models::scenario_fields()) {
    if (field.path == "scope") continue;  // of the base
    for (const FieldSample& sample : samples_of(field)) {
      SCOPED_TRACE(std::string(field.path) + " = " + sample.text);
      json base{{"scope", scope_of(field)}};
      if (field.path == "faults.seed") base["faults"] = {{"jitter", 0.1}};
      models::Scenario set = scenario_of(base);
      const ScenarioPath path = find_path(field.path);
      models::set(set, path, parse_value(path, sample.text).json, Origin::said("--set"));
      // An object that is said by its parts has theirs.
      if (set.gave(field.path)) {
        EXPECT_EQ(set.origin_of(field.path), Origin::said("--set"));
      }
      json* at = &base;
      for (std::size_t from = 0, dot = 0; dot != std::string_view::npos; from = dot + 1) {
        dot = field.path.find('.', from);
        at = &(*at)[std::string(field.path.substr(from, dot - from))];
      }
      *at = sample.json;
      const json by_file = models::to_json(scenario_of(base));
      EXPECT_EQ(json(models::to_json(set)), by_file);
      if (field.flag.empty() || field.path == "seed") continue;
      Words words{"--scope", scope_of(field), std::string(field.flag)};
      if (field.type == FieldType::kBoolean) {
        if (sample.text == field.fallback) continue;
      } else {
        words.push_back(sample.text);
      }
      EXPECT_EQ(json(models::to_json(by_flags(words))), by_file);
      ++flags;
    }
  }
  EXPECT_GT(flags, 50);
}

TEST(ScenarioFields, SeveralFlagsStandBesideEachOther) {
  const json s =
      models::to_json(by_flags({"--scope", "step", "--model", "qwen3-30b-a3b", "--ep", "8", "--overlap",
                                "gradients", "--sharding", "hsdp:shard=4", "--precision", "fp8_block"}));
  EXPECT_EQ(s["training"]["overlap"]["parameters"], false);
  EXPECT_EQ(s["training"]["shard_group"], 4);
  EXPECT_EQ(s["parallel"]["ep"], 8);
}

TEST(ScenarioFields, AFlagStandsInThePlaceOfAllThatAFileSays) {
  TempFolder folder;
  folder.write("s.json", R"({"scope": "step", "faults": {"jitter": 0.1, "gpu_mtbf_hours": 100},
    "training": {"sharding": "hsdp:shard=4", "overlap": {"delayed_wgrad": true}}})");
  const json s =
      models::to_json(by_flags({folder / "s.json", "--faults", R"({"nics": [{"gpu": 1, "bandwidth": 0.5}]})",
                                "--sharding", "ddp", "--overlap", "none"}));
  EXPECT_EQ(s["faults"], json::parse(R"({"nics": [{"gpu": 1, "bandwidth": 0.5}]})"));
  EXPECT_EQ(s["training"]["sharding"], "ddp");
  EXPECT_FALSE(s["training"].contains("shard_group"));
  EXPECT_EQ(s["training"]["overlap"]["delayed_wgrad"], false);
}

TEST(ScenarioFields, APartOfAShortFormLeavesTheRest) {
  TempFolder folder;
  folder.write("slow.json", R"({"slow_gpus": [{"gpu": 3, "factor": 1.5}], "jitter": 0.1})");
  Question q;
  q.file = folder / "s.json";
  q.said = models::Scenario::parse(
      JsonNode::from_json(json::parse(R"({"scope": "step", "training": {"overlap": "delayed-wgrad+gradients"},
                      "recompute": "full", "prices": {"gpu_hour": 2, "currency": "EUR"}})"),
                          q.file));
  const auto set = [&](const char* path, const json& value) {
    models::set_all(q, {find_path(path)}, {PathValue{value, value.dump(), 0}}, Origin::said("--set"));
  };
  set("faults", "slow.json");
  set("faults.jitter", 0.2);
  set("training.overlap.parameters", true);
  set("recompute", "none");
  set("node_hour", 20);
  const models::Scenario& s = q.said;
  EXPECT_EQ(s.faults.jitter, 0.2);
  ASSERT_EQ(s.faults.slow_gpus.size(), 1u);
  EXPECT_TRUE(s.training.overlap.delayed_wgrad && s.training.overlap.gradients &&
              s.training.overlap.parameters);
  EXPECT_FALSE(s.training.recompute.any());
  EXPECT_TRUE(s.prices.per_node);
  EXPECT_EQ(s.prices.currency, "EUR");
}

// Returns the answer to a scenario, without the scenario's own description.
json answer_of(const json& scenario) {
  models::AnswerOptions options;
  options.draws = 2;
  Question q;
  q.said = scenario_of(scenario);
  json answer = comparison_json(models::answer(models::resolve(q).scenario, options), Detail::kNone, {});
  answer.erase("inputs");
  answer.erase("warnings");
  return answer;
}

// Sets a value; null takes it away.
void put(json& object, std::string_view path, const json& value) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos && value.is_null()) {
    object.erase(std::string(path));
    return;
  }
  json& at = object[std::string(path.substr(0, dot))];
  if (dot == std::string_view::npos)
    at = value;
  else
    put(at, path.substr(dot + 1), value);
}

// Whether one of the field's samples changes the answer; a sample that does not go with the rest is left out.
bool changes_the_answer(const Field& field, const json& base) {
  const json before = answer_of(base);
  for (const FieldSample& sample : samples_of(field)) {
    json changed = base;
    put(changed, field.path, sample.json);
    try {
      if (answer_of(changed) != before) return true;
    } catch (const InputError&) {
    }
  }
  return false;
}

TEST(ScenarioFields, ChangeAnAnswerInEveryScopeThatUsesThem) {
  const json base = json::parse(R"({"model": {"base": "deepseek-v3", "layers": 8}, "cluster": "dgx-h100x4",
    "parallel": {"ep": 16, "pp": 2, "microbatches": 8}, "dispatcher": "alltoall", "routing": "zipf:1.1"})");
  const json beside = cases("tools/scenario_fields.json", "beside");
  for (const Field& field : models::scenario_fields())
    for (const char* scope : {"layer", "step"}) {
      if (!field.used_in(std::string(scope) == "step" ? models::Scopes::kStep : models::Scopes::kLayer))
        continue;
      if (field.path.starts_with("job.")) continue;  // what runs today marks an answer
      json scenario = base;
      if (field.path != "scope") scenario["scope"] = scope;
      if (const auto more = beside.find(field.path); more != beside.end())
        for (const auto& [path, value] : more->items()) put(scenario, path, value);
      EXPECT_TRUE(changes_the_answer(field, scenario)) << field.path << " at scope " << scope;
    }
}

Outcome compare(const TempFolder& folder, Words words) {
  words.insert(words.begin(), "compare");
  words.insert(words.end(), {"--format", "json", "--quiet", "--draws", "6"});
  return run_moesim(words, folder.path());
}

TEST(InputsScenario, GivesTheSameNumbersAgain) {
  TempFolder folder;
  folder.write("own.json", R"({"hidden_size": 1024, "num_local_experts": 8, "num_experts_per_tok": 2,
    "intermediate_size": 2048, "num_attention_heads": 8, "num_hidden_layers": 4, "model_type": "mixtral"})");
  folder.write("own_cluster.json", R"({"profile": "b200-sxm", "nodes": 1, "nic": {"ports_per_gpu": 2},
    "nvlink": {"bandwidth": "777GBps", "latency_factor": 0.7}})");
  json dispatching{{"ep", 4}, {"experts", 8}};
  for (int rank = 0; rank < 4; ++rank)
    dispatching["per_rank_results"][std::to_string(rank)]["num_local_tokens_per_expert"] = {
        100 + rank, 100, 100, 100, 100, 100, 100, 100 - rank};
  folder.write("dispatching.json", dispatching.dump());
  for (const auto& question : cases("tools/scenario_fields.json", "questions")) {
    Words words;
    for (const auto& word : question)
      words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
    SCOPED_TRACE(::testing::PrintToString(words));
    const Outcome first = compare(folder, words);
    ASSERT_EQ(first.exit_code, 0) << first.err;
    json result = json::parse(first.out);
    folder.write("again.json", result["inputs"]["scenario"].dump());
    const Outcome second = compare(folder, {"again.json"});
    ASSERT_EQ(second.exit_code, 0) << second.err;
    json again = json::parse(second.out);
    EXPECT_EQ(again["inputs"]["scenario"], result["inputs"]["scenario"]);
    for (json* r : {&result, &again}) {
      r->erase("inputs");
      for (const char* key : {"assumed", "change_that_fits"})
        r->erase(key);  // a complete scenario says everything
      // Where the model was read from is of the inputs, too.
      for (const char* key : {"source", "ignored_keys", "unknown_keys"}) (*r)["model"].erase(key);
    }
    EXPECT_EQ(again, result);
  }
}

TEST(InputsScenario, OfWhatIfAndSweepIsTheBaseline) {
  TempFolder folder;
  folder.write("s.json", R"({"model": "mixtral-8x7b", "parallel": {"ep": 8}, "recompute": "full",
    "cluster": {"base": "dgx-h100x2", "nic": {"bandwidth": "25GBps"}}, "prices": {"gpu_hour": 2}})");
  const auto ask = [&](const std::string& file, const Words& question) {
    Words words{"whatif", file, "--format", "json", "--quiet", "--draws", "4"};
    words.insert(words.end(), question.begin(), question.end());
    const Outcome outcome = run_moesim(words, folder.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json::parse(outcome.out);
  };
  for (const Words& question : {Words{"--set", "ep=4"},
                                {"--sensitivity"},
                                {"--crossover", "topk=1..4"},
                                {"--best", "dispatcher", "--set", "scope=step"}}) {
    SCOPED_TRACE(question.front());
    json result = ask("s.json", question);
    EXPECT_FALSE(result["inputs"]["scenario"]["parallel"].contains("dp")) << "it was not given";
    folder.write("again.json", result["inputs"]["scenario"].dump());
    json again = ask("again.json", question);
    EXPECT_EQ(again["inputs"]["scenario"], result["inputs"]["scenario"]);
    for (json* r : {&result, &again}) {
      r->erase("inputs");
      r->erase("warnings");  // of what was taken that the first did not say
    }
    EXPECT_EQ(again, result);
  }
  const auto sweep = [&](const std::string& file, const std::string& out) {
    EXPECT_EQ(
        run_moesim({"sweep", file, "--grid", "ep=4,8", "--out", out, "--quiet"}, folder.path()).exit_code, 0);
    return testing::read_text(folder.path() / out);
  };
  const std::string rows = sweep("s.json", "rows.csv");
  const json record = json::parse(testing::read_text(folder.path() / "rows.csv.json"));
  folder.write("again.json", record["inputs"]["scenario"].dump());
  EXPECT_EQ(sweep("again.json", "again.csv"), rows);
}

TEST(CompareHelp, GroupsItsOptionsByWhatTheySay) {
  const Outcome help = run_moesim({"compare", "--help", "all"});
  for (const Field& field : models::scenario_fields()) {
    if (field.flag.empty()) continue;
    EXPECT_THAT(help.out, HasSubstr(std::string(field.flag))) << field.path;
    EXPECT_THAT(help.out, HasSubstr("\n" + std::string(field.group) + ":\n")) << field.path;
  }
}

}  // namespace
}  // namespace moesim::tools
