// A question on its ways out and in again: a scenario that is written, as a command, a result, a framework's
// arguments, is read back as the same, field for field.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"
#include "models/workload/model_json.h"
#include "process.h"
#include "tests/models/random_scenario.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/read/arguments.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/verbs/serve_questions.h"

namespace moesim::tools {
namespace {

using models::Scenario;
using nlohmann::json;
using testing::TempFolder;
using Words = std::vector<std::string>;

models::Question of_words(Words words) {
  CLI::App app;
  QuestionOptions options;
  CommonOptions common;
  options.declare(app);
  const CLI::Option seed = app.add_option("--seed", common.seed);
  app.parse(std::move(words));
  common.seed_given = seed->count() > 0;
  return options.question(common);
}

Scenario settled(const models::Question& q) {
  Scenario s = settle(q, {}).scenario;
  s.resolve();
  return s;
}

// Calls `act` with `count` random questions that are no mistake, and the scenarios that they settle to.
// `layers`: also of single layers.
void for_questions(int count, bool layers,
                   const std::function<void(const json& question, const Scenario& s)>& act) {
  std::mt19937_64 random(11);
  for (int done = 0, drawn = 0; done < count && !::testing::Test::HasFatalFailure(); ++drawn) {
    ASSERT_LT(drawn, 100 * count) << "hardly any question is legal";
    const json question = models::testing::random_question_json(random, !layers || drawn % 2 == 0);
    SCOPED_TRACE(question.dump());
    Scenario s;
    try {
      s = settled(question_of_file(question.dump(), {}));
    } catch (const InputError&) {  // a plan that does not divide
      continue;
    }
    act(question, s);
    ++done;
  }
}

TEST(RoundTrips, CommandsAndResultsGiveTheSameScenario) {
  for_questions(1000, true, [](const json&, const Scenario& s) {
    const json complete = models::to_json(s);
    EXPECT_EQ(json(models::to_json(settled(question_of_file(complete.dump(), {})))), complete)
        << "inputs.scenario";
    Words words = command_words(s);
    words.erase(words.begin(), words.begin() + 2);
    EXPECT_EQ(json(models::to_json(settled(of_words(words)))), complete) << command_text(command_words(s));
  });
}

// The values below an object by their paths; lists are values.
void collect(const json& value, const std::string& path, std::map<std::string, json>& into) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items())
      collect(inner, path.empty() ? key : fmt::format("{}.{}", path, key), into);
  } else {
    into[path] = value;
  }
}

// Returns a training job's part of a complete scenario.
std::map<std::string, json> job_values_of(Scenario s) {
  s.cluster = nullptr;
  json document = models::to_json(s);
  // The machine and the question are no job's, a recipe and a mesh say what stands in other values.
  for (const char* key : {"gpus", "faults", "scope", "seed", "prices", "ownership", "recipe", "mesh", "job"})
    document.erase(key);
  document["parallel"].erase("global_batch");  // the microbatches say it
  document["model"] = models::model_object(s.model);
  document["model"].erase("name");
  document["model"]["topk"] = document["topk"];
  document.erase("topk");
  if (!s.model.has_dense_ffn()) document["model"].erase("dense_ffn");
  std::map<std::string, json> values;
  collect(document, "", values);
  return values;
}

// Returns the writer's list of omissions by path, with the value that is read back; empty for a whole part.
std::map<std::string, std::string> told_by(const std::vector<std::string>& left_out) {
  constexpr std::string_view kRead = "read back: ", kAs = ": read back as ";
  std::map<std::string, std::string> told;
  for (const std::string& line : left_out) {
    std::string& back = told[line.substr(0, line.find_first_of(" :"))];
    if (const std::size_t as = line.find(kAs); as != std::string::npos)
      back = line.substr(as + kAs.size());
    else if (const std::size_t read = line.rfind(kRead); read != std::string::npos)
      back = line.substr(read + kRead.size(), line.size() - read - kRead.size() - 1);
  }
  return told;
}

class FrameworkArguments : public ::testing::TestWithParam<JobFramework> {};

// A framework's arguments are read back unchanged from their file; omissions are named.
TEST_P(FrameworkArguments, AreReadBackAsTheScenarioThatWasWritten) {
  const JobFramework framework = GetParam();
  constexpr std::array kFiles{"job.sh", "job.toml", "job.json", "job.yaml"};
  constexpr std::array kDispatchers{"allgather",
                                    "alltoall:permute_fusion=false",
                                    "alltoall:shared_overlap",
                                    "alltoall:capacity_factor=1.25:pad",
                                    "alltoall:pad_rows=16",
                                    "flex-deepep:sms=24",
                                    "flex-hybridep",
                                    "flex-hybridep:mode=static:rank_capacity_factor=1.5:paged",
                                    "nccl-ep:sms=24",
                                    "torchtitan-alltoall",
                                    "torchtitan-local"};
  const std::string name = kFiles[static_cast<std::size_t>(framework)];
  const TempFolder folder;
  std::mt19937_64 random(5);
  int read_back = 0;
  // Of Megatron's the most break one of its rules.
  const bool ruled = framework == JobFramework::kMegatron || framework == JobFramework::kNemo;
  for_questions(ruled ? 3000 : 1000, false, [&](const json&, Scenario s) {
    if (s.dispatchers.size() != 1 || random() % 2 == 0)
      s.set_dispatchers(kDispatchers[random() % kDispatchers.size()]);
    JobArguments made;
    try {
      made = arguments_of(s, framework);
    } catch (const InputError&) {  // something that the framework has not
      return;
    }
    const auto told = told_by(made.left_out);
    if (told.contains("the")) return;  // "the plan as a whole", and why
    ++read_back;
    folder.write(name, arguments_text(made.arguments, framework));
    QuestionOptions options;
    options.take_file(folder / name, framework);
    // Megatron's launchers say the number of GPUs.
    if (framework == JobFramework::kMegatron || framework == JobFramework::kNemo)
      options.say("parallel.dp", std::to_string(s.parallel.dp));
    if (told.contains("model")) options.say("model", models::model_object(s.model).dump());
    models::Question q = options.question({});
    q.said.cluster = s.cluster;
    q.said.give("cluster");
    Scenario back = settle(q, {}).scenario;
    back.dispatchers = q.said.dispatchers;  // without those that the job could run
    back.resolve();
    const auto was = job_values_of(s), is = job_values_of(back);
    std::set<std::string> paths;
    for (const auto* values : {&was, &is})
      for (const auto& [path, value] : *values) paths.insert(path);
    const auto in = [](const auto& values, const std::string& path) {
      const auto at = values.find(path);
      return at == values.end() ? "nothing" : at->second.dump();
    };
    for (const std::string& path : paths) {
      const std::string before = in(was, path), after = in(is, path);
      if (before == after) continue;
      const auto at = told.find(path);
      if (at == told.end() || (path != "dispatcher" && at->second != after))
        ADD_FAILURE() << path << ": " << before << " became " << after << ", and left_out does not say so";
    }
  });
  EXPECT_GT(read_back, 500);
}

INSTANTIATE_TEST_SUITE_P(RoundTrips, FrameworkArguments,
                         ::testing::Values(JobFramework::kMegatron, JobFramework::kTorchtitan,
                                           JobFramework::kDeepSpeed, JobFramework::kNemo),
                         [](const auto& framework) { return std::string(name_of(framework.param)); });

// A text of the command line for a value of a file.
std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  const auto is_text = [](const json& item) { return item.is_string(); };
  if (value.is_array() && !value.empty() && std::ranges::all_of(value, is_text))
    return fmt::format("{}", fmt::join(value.get<std::vector<std::string>>(), ","));
  return value.dump();
}

json::json_pointer pointer_to(const models::Field& field) {
  std::string path = "/" + std::string(field.path);
  std::ranges::replace(path, '.', '/');
  return json::json_pointer(path);
}

// Lets another program read a line for each of 1,000 questions; its lines beside the scenarios that the
// questions settle to. `command`: behind it stand the names of both files.
void through_program(const std::function<json(const json& question)>& line, const std::string& command,
                     const TempFolder& folder,
                     const std::function<void(const json& line, const json& complete)>& check) {
  std::ostringstream lines;
  std::vector<json> asked, complete;
  for_questions(1000, true, [&](const json& question, const Scenario& s) {
    asked.push_back(line(question));
    lines << asked.back().dump() << "\n";
    complete.emplace_back(models::to_json(s));
  });
  folder.write("in", lines.str());
  ASSERT_EQ(std::system(fmt::format("cd '{}' && {}", folder.path().string(), command).c_str()), 0);
  std::istringstream back(testing::read_text(folder.path() / "out"));
  std::string text;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    ASSERT_TRUE(std::getline(back, text)) << i;
    SCOPED_TRACE(asked[i].dump());
    check(json::parse(text), complete[i]);
  }
}

// Keywords where the command line has options, what they cannot say as a dict.
TEST(RoundTrips, PythonCallsGiveTheSameScenario) {
  if (std::string_view(MOESIM_PYTHON).empty()) GTEST_SKIP() << "the package for Python is not built";
  std::mt19937_64 random(3);
  const auto call = [&](const json& question) {
    json rest = question, keywords = json::object();
    for (const models::Field& field : models::scenario_fields()) {
      const auto at = pointer_to(field);
      if (field.flag.empty() || !rest.contains(at) || random() % 2 == 0) continue;
      // A sharding that is said replaces what the file says beside it.
      if (field.path == "training.sharding" &&
          std::ranges::any_of(std::array{"shampoo", "muon", "newton_schulz_steps", "reshard_after_forward"},
                              [&](const char* part) { return rest["training"].contains(part); }))
        continue;
      if (field.type == models::FieldType::kBoolean && text_of(rest.at(at)) == field.fallback) continue;
      std::string name(field.flag.substr(2));
      std::ranges::replace(name, '-', '_');
      keywords[name] = field.type == models::FieldType::kBoolean ? json(true) : rest.at(at);
      rest.at(at.parent_pointer()).erase(at.back());
    }
    return json{rest, keywords};
  };
  through_program(call, MOESIM_PYTHON " in out", TempFolder(),
                  [](const json& back, const json& complete) { EXPECT_EQ(back, complete); });
}

// The page's own code, under Node: the address brings its question again, and the server is asked that.
TEST(RoundTrips, AddressesOfThePageGiveTheSameScenario) {
  if (std::string_view(MOESIM_PAGE).empty()) GTEST_SKIP() << "the page was built without Node";
  const TempFolder folder;
  folder.write("fields", page_data(false)["fields"].dump());
  const auto texts = [](const json& question) {
    json said = json::object();
    for (const models::Field& field : models::scenario_fields())
      if (const auto at = pointer_to(field); question.contains(at))
        said[field.path] = text_of(question.at(at));
    // The page says a machine by its kind and how many nodes of it.
    const std::string cluster = said.value("cluster", "");
    if (const std::size_t nodes = cluster.find_last_not_of("0123456789") + 1;
        cluster.starts_with("dgx-") && nodes < cluster.size()) {
      said["cluster"] = cluster.substr(0, nodes) + "N";
      said["nodes"] = cluster.substr(nodes);
    }
    return said;
  };
  through_program(texts, MOESIM_PAGE " --fields=fields --in=in --out=out", folder,
                  [](const json& page, const json& complete) {
                    const auto scenario = [](const models::Question& q) {
                      return json(models::to_json(settled(q)));
                    };
                    EXPECT_EQ(scenario(question_of_file(page["scenario"].dump(), {})), complete) << page;
                    Words words = page["words"];
                    words.erase(words.begin(), words.begin() + 2);
                    EXPECT_EQ(scenario(of_words(words)), complete) << page;
                  });
}

}  // namespace
}  // namespace moesim::tools
