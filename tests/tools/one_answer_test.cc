// One question has one answer, whichever verb is asked.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "process.h"
#include "tests/models/random_scenario.h"
#include "tools/moesim/read/shell_words.h"
#include "tools/moesim/verbs/command_line.h"
#include "tools/moesim/verbs/serve_questions.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using testing::Outcome;
using testing::parsed;
using testing::read_text;
using testing::run_moesim;
using testing::TempFolder;
using testing::with;
using Words = std::vector<std::string>;

// The column of the only row.
double cell_of(const std::string& csv, const std::string& column) {
  std::istringstream lines(csv);
  std::string header, row, name, value;
  std::getline(lines, header);
  std::getline(lines, row);
  std::istringstream names(header), values(row);
  while (std::getline(names, name, ',') && std::getline(values, value, ','))
    if (name == column) return std::stod(value);
  ADD_FAILURE() << "no column " << column << " in " << header;
  return 0;
}

json result_of(Words words) {
  words.insert(words.end(), {"--format", "json", "--quiet", "--draws", "0"});
  return json::parse(run_command(words).text);
}

TEST(OneAnswer, AMultipleIsOfWhatTheQuestionHas) {
  const Words job{"--model", "qwen3-30b-a3b", "--cluster", "dgx-h100x2", "--ep",
                  "16",      "--dispatcher",  "alltoall"};
  const auto compared = [&](const char* set) {
    return result_of(with(with({"compare"}, job), {"--set", set}))["scenarios"][0]["time_us"]["value"];
  };
  const json whatif = result_of(with(with({"whatif"}, job), {"--set", "cluster.nic.bandwidth=x2"}));
  EXPECT_EQ(compared("cluster.nic.bandwidth=x2"), compared("cluster.nic.bandwidth=100GBps"));
  EXPECT_EQ(compared("cluster.nic.bandwidth=x2"), whatif["change"]["dispatchers"][0]["time_us"]["value"]);
}

TEST(OneAnswer, EveryVerbAndThePageGiveTheSameNumber) {
  std::mt19937_64 random(7);
  const TempFolder folder;
  for (int n = 0; n < 40; ++n) {
    json scenario = models::testing::legal_scenario_json(random, n % 2 == 0);
    SCOPED_TRACE(scenario.dump());
    const std::string said = scenario.dump();
    const json compared = result_of({"compare", said})["scenarios"][0];
    const double time = compared["time_us"]["value"];
    const std::string ep = "parallel.ep=" + scenario["parallel"]["ep"].dump();

    const json whatif = result_of({"whatif", said, "--set", ep});
    for (const char* which : {"baseline", "change"})
      EXPECT_DOUBLE_EQ(whatif[which]["dispatchers"][0]["time_us"]["value"].get<double>(), time) << which;

    run_command({"sweep", said, "--grid", ep, "--out", folder / "out.csv", "--quiet", "--draws", "0"});
    const std::string row = read_text(folder.path() / "out.csv");
    EXPECT_NEAR(cell_of(row, "time_us.value") / time, 1, 1e-9) << "sweep";
    EXPECT_NEAR(cell_of(row, "tokens_per_s_per_gpu") / compared["tokens_per_s_per_gpu"].get<double>(), 1,
                1e-6);

    scenario.update({{"draws", 0}, {"measure_next", false}});
    EXPECT_EQ(json::parse(answer_question(kAnswerQuestion, scenario.dump()))["scenarios"][0], compared)
        << "page";

    if (!scenario.contains("scope")) continue;  // plans are of steps
    const Outcome asked =
        run_moesim({"whatif", said, "--best", "dispatcher", "--top", "20", "--format", "json"});
    if (asked.exit_code == 2 && asked.err.find("rule ") != std::string::npos)
      continue;  // Megatron refuses them all
    ASSERT_EQ(asked.exit_code, 0) << asked.err;
    const json best = json::parse(asked.out);
    for (const json& plan : best["best"])
      if (plan["dispatcher"] == compared["dispatcher"]) {
        EXPECT_DOUBLE_EQ(plan["forecast"]["time_us"]["value"].get<double>(), time) << "--best";
        EXPECT_DOUBLE_EQ(plan["forecast"]["mfu"].get<double>(), compared["mfu"].get<double>());
        EXPECT_DOUBLE_EQ(plan["forecast"]["peak_memory_bytes"]["max"].get<double>(),
                         compared["peak_memory_bytes"]["max"].get<double>());
      }
  }
}

// A plan's scenario and its command are answered with the time that the plan has.
TEST(OneAnswer, PlansHaveTheNumbersOfTheirComparisons) {
  std::mt19937_64 random(7);
  int plans = 0;
  for (int n = 0; n < 20; ++n) {
    const json drawn = models::testing::legal_scenario_json(random, true);
    // Searched settings are not given.
    const json scenario{{"model", drawn["model"]},
                        {"cluster", drawn["cluster"]},
                        {"routing", drawn["routing"]},
                        {"training", {{"precision", drawn["training"]["precision"]}}},
                        {"parallel", {{"seq", drawn["parallel"]["seq"]}, {"global_batch", "64"}}}};
    SCOPED_TRACE(scenario.dump());
    json planned;
    try {
      planned = result_of({"plan", scenario.dump(), "--tokens", "10B", "--most", "4", "--no-upgrades"});
    } catch (const InputError&) {  // it fits no memory
      continue;
    }
    for (const json& plan : planned["plans"]) {
      const std::string command = plan["command"];
      SCOPED_TRACE(command);
      Words words = ShellScript(command, "plan", {}).commands().front().words;
      words.erase(words.begin());
      for (const Words& asked : {words, Words{"compare", plan["scenario"].dump()}})
        EXPECT_DOUBLE_EQ(result_of(asked)["scenarios"][0]["time_us"]["value"].get<double>(),
                         plan["step_time_us"]["value"].get<double>());
      ++plans;
    }
  }
  EXPECT_GT(plans, 10);
}

// A cell of a map, a value of a crossover and a row of a sweep are as sure as a comparison of the same
// scenario, and marked where that is too close to call, or fits no memory.
TEST(OneAnswer, EveryVerbIsAsSure) {
  const std::string scenario = MOESIM_SOURCE_DIR "/docs/examples/scenario.json", pair = "allgather,alltoall";
  const std::vector<std::string> map{"whatif",    scenario,    "--map", "topk=8,10,12",
                                     "ep=2,4,32", "--between", pair};
  const json cells = parsed(map)["map"];
  const Outcome table = run_moesim(with(map, {"--quiet"}));
  ASSERT_EQ(table.exit_code, 0) << table.err;
  std::istringstream marked(table.out.substr(table.out.find("--\n") + 3));
  std::map<std::string, int> verdicts;
  std::string word;
  for (const json& cell : cells) {
    const std::string ep = cell["parallel.ep"].dump(), topk = cell["topk"].dump();
    SCOPED_TRACE(::testing::Message() << "EP " << ep << ", top-" << topk);
    const json answer = parsed({"compare", scenario, "--ep", ep, "--topk", topk, "--dispatcher", pair});
    const json winner = answer["winner"];
    const auto time = [&](std::size_t i) { return answer["scenarios"][i]["time_us"]["value"].get<double>(); };
    const json& fastest = answer["scenarios"][time(0) <= time(1) ? 0 : 1];
    const double probability = fastest.value("fastest_probability", winner["probability"].get<double>());
    const std::string verdict = winner["verdict"], name = fastest["dispatcher"];
    EXPECT_EQ(cell["fastest"], name);
    EXPECT_DOUBLE_EQ(cell["probability"].get<double>(), probability);
    const bool fits = fastest["fits"];
    EXPECT_EQ(cell["fits"].get<bool>(), fits);
    if (topk == "8") marked >> word;  // the row's head
    marked >> word;
    EXPECT_EQ(word, name + (probability < 0.9 ? "?" : "") + (fits ? "" : "!"));
    if (verdict != "none_fits") {
      EXPECT_EQ(verdict, winner["probability"].get<double>() < 0.9 ? "too_close" : "clear");
    }
    ++verdicts[probability < 0.9 ? "unsure" : "sure"];

    const TempFolder folder;
    const Outcome sweep = run_moesim({"sweep", scenario, "--grid", "ep=" + ep, "--grid", "topk=" + topk,
                                      "--dispatcher", pair, "--draws", "48", "--out", "out.csv", "--quiet"},
                                     folder.path());
    ASSERT_EQ(sweep.exit_code, 0) << sweep.err;
    const std::string rows = read_text(folder.path() / "out.csv"), head = rows.substr(0, rows.find('\n') + 1);
    const std::size_t first = rows.rfind('\n', rows.find(",true,")) + 1;  // the winner's row
    EXPECT_NEAR(cell_of(head + rows.substr(first), "winner.probability"), winner["probability"].get<double>(),
                1e-4);
  }
  EXPECT_EQ(verdicts.size(), 2u) << "both kinds are needed to tell anything";
  const json points = parsed(
      {"whatif", scenario, "--set", "ep=4", "--crossover", "topk=10..12", "--between", pair})["points"];
  for (const json& point : points) {
    for (const json& cell : cells) {
      if (cell["parallel.ep"] != 4 || cell["topk"].get<double>() != point["value"].get<double>()) continue;
      EXPECT_DOUBLE_EQ(point["probability"].get<double>(), cell["probability"].get<double>());
      EXPECT_EQ(point["fits"], cell["fits"]);
      ++verdicts["crossover"];
    }
  }
  EXPECT_EQ(verdicts["crossover"], 2);
}

}  // namespace
}  // namespace moesim::tools
