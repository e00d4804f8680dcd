// A question on its ways out and in again: a scenario that is written, as a command, a result, a framework's
// arguments, is read back as the same, field for field.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "models/workload/fields.h"
#include "process.h"
#include "tests/models/random_scenario.h"
#include "tools/moesim/jobs/arguments.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/command.h"

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
  const CLI::Option* seed = app.add_option("--seed", common.seed);
  std::reverse(words.begin(), words.end());
  app.parse(words);
  common.seed_given = seed->count() > 0;
  return options.question(common);
}

Scenario settled(const models::Question& q) {
  Scenario s = settle(q, {}).scenario;
  s.resolve();
  return s;
}

// Calls `act` with `count` random questions that are no mistake, and the scenarios that they settle to.
void for_questions(int count, const std::function<void(const json& question, const Scenario& s)>& act) {
  std::mt19937_64 random(11);
  for (int done = 0, drawn = 0; done < count && !::testing::Test::HasFatalFailure(); ++drawn) {
    ASSERT_LT(drawn, 100 * count) << "hardly any question is legal";
    const json question = models::testing::random_question_json(random, drawn % 2 == 0);
    SCOPED_TRACE(question.dump());
    Scenario s;
    try {
      s = settled(of_words({question.dump()}));
    } catch (const InputError&) {  // a plan that does not divide
      continue;
    }
    act(question, s);
    ++done;
  }
}

TEST(RoundTrips, CommandsAndResultsGiveTheSameScenario) {
  for_questions(1000, [](const json&, const Scenario& s) {
    const json complete = models::to_json(s);
    EXPECT_EQ(json(models::to_json(settled(of_words({complete.dump()})))), complete) << "inputs.scenario";
    Words words = command_words(s);
    words.erase(words.begin(), words.begin() + 2);
    EXPECT_EQ(json(models::to_json(settled(of_words(words)))), complete) << command_text(command_words(s));
  });
}

}  // namespace
}  // namespace moesim::tools
