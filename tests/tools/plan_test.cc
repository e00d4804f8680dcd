// From a goal to a plan, and questions without a file: `moesim plan`, plans that are searched, --gpus and
// --global-batch, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_moesim;
using ::testing::StartsWith;
using testing::TempFolder;
using Words = std::vector<std::string>;

const Words kPlan{"plan",   "--model", "qwen3-30b-a3b", "--tokens", "1T",     "--clusters", "h100,h200",
                  "--gpus", "64",      "--draws",       "4",        "--most", "300",        "--quiet"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

TEST(Plan, JsonHoldsWhatTheTableShowsAndRunsAgain) {
  TempFolder folder;
  const Outcome outcome =
      run_moesim(with(kPlan, {"--format", "json", "--deadline", "90d", "--budget", "1M$"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["schema"], "moesim.plan/1");
  ASSERT_GE(result["plans"].size(), 2u);
  const json& best = result["plans"][0];
  for (const char* key :
       {"cluster", "gpus", "idle_gpus", "parallel", "precision", "schedule", "recompute", "dispatcher",
        "step_time_us", "days", "cost", "deadline_probability", "fits_probability", "tie_group"})
    EXPECT_TRUE(best.contains(key)) << key;
  EXPECT_EQ(best["gpus"], 64);
  // Its own scenario gives the step that the days are made of.
  folder.write("plan.json", best["scenario"].dump());
  const Outcome step =
      run_moesim({"compare", "plan.json", "--draws", "4", "--format", "json", "--quiet"}, folder.path());
  ASSERT_EQ(step.exit_code, 0) << step.err;
  EXPECT_EQ(json::parse(step.out)["scenarios"][0]["time_us"]["value"], best["step_time_us"]["value"]);
  folder.write("result.json", outcome.out);
  const Outcome again = run_moesim({"rerun", "result.json"}, folder.path());
  EXPECT_EQ(again.exit_code, 0) << again.out << again.err;
}

// The result contains what the page shows: the sentence of the table, the letters of its groups, its
// assumptions.
TEST(Plan, ResultHoldsTheSentenceAndWhatItRestsOn) {
  const Words question = with(kPlan, {"--deadline", "90d"});
  const Outcome table = run_moesim(question);
  const json result = json::parse(run_moesim(with(question, {"--format", "json"})).out);
  std::string flat = table.out.substr(0, table.out.find("\nmoesim compare "));
  std::replace(flat.begin(), flat.end(), '\n', ' ');
  EXPECT_EQ(result["answer"], flat);
  EXPECT_EQ(result["deadline_days"], 90);
  EXPECT_EQ(result["by"], "cost");
  const json& plans = result["plans"];
  for (std::size_t i = 0; i + 1 < plans.size(); ++i)
    if (plans[i]["lower_precision"] != plans[i + 1]["lower_precision"])
      EXPECT_EQ(plans[i + 1]["group"], "A") << i;
    else
      EXPECT_EQ(plans[i]["group"] == plans[i + 1]["group"],
                plans[i]["tie_group"] == plans[i + 1]["tie_group"])
          << i;
  std::size_t on_frontier = 0;
  for (const json& plan : plans) on_frontier += plan["on_frontier"].get<bool>() ? 1 : 0;
  EXPECT_EQ(on_frontier, result["frontier"].size());
  std::map<std::string, std::string> sources;
  for (const json& one : result["assumptions"]) sources[one["what"]] = one["source"];
  EXPECT_THAT(sources["a GPU-hour of h100-sxm"], HasSubstr("CoreWeave"));
  EXPECT_THAT(sources["failures"], HasSubstr("arXiv 2407.21783"));
  EXPECT_THAT(sources["a restart"], HasSubstr("assumption"));
  const json said =
      json::parse(run_moesim(with(question, {"--faults", R"({"gpu_mtbf_hours": 1000, "restart_s": 60})",
                                             "--format", "json"}))
                      .out);
  for (const json& one : said["assumptions"]) {
    if (one["what"] != "failures" && one["what"] != "a restart") continue;
    EXPECT_EQ(one["source"], "said by you (--faults)");
  }
}

// One question, given by flags, or by a file with the chosen plan.
TEST(SearchedPlan, IsToldAndStandsInTheScenario) {
  TempFolder folder;
  const Words question{"--scope", "step",   "--model", "mixtral-8x7b", "--cluster",
                       "h100",    "--gpus", "64",      "--quiet"};
  const Outcome table = run_moesim(with({"compare"}, question));
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, StartsWith("Run "));
  EXPECT_THAT(table.out, HasSubstr("\nplan chosen: --tp "));
  EXPECT_THAT(table.out, HasSubstr("mixtral-8x7b on dgx-h100x8"));
  const Outcome outcome = run_moesim(with(with({"compare"}, question), {"--format", "json"}));
  const json result = json::parse(outcome.out);
  EXPECT_THAT(result["plan_chosen"]["options"].get<std::string>(), HasSubstr("--global-batch 1024"));
  folder.write("again.json", result["inputs"]["scenario"].dump());
  const json again =
      json::parse(run_moesim({"compare", "again.json", "--format", "json", "--quiet"}, folder.path()).out);
  EXPECT_EQ(again["scenarios"], result["scenarios"]);
  // The options say the same as the choice did.
  Words said = with({"compare"}, question);
  std::istringstream options(result["plan_chosen"]["options"].get<std::string>());
  for (std::string word; options >> word;) said.push_back(word);
  const json by_options = json::parse(run_moesim(with(said, {"--format", "json"})).out);
  EXPECT_FALSE(by_options.contains("plan_chosen"));
  EXPECT_EQ(by_options["scenarios"], result["scenarios"]);
}

// The script's arguments are read back to the same plan.
TEST(Plan, WritesAScriptThatIsTheSamePlan) {
  TempFolder folder;
  const Outcome planned =
      run_moesim({"plan", "--model", "qwen3-30b-a3b", "--tokens", "100B", "--cluster", "h100", "--gpus", "16",
                  "--draws", "0", "--no-upgrades", "--format", "json", "--script", "run.sh", "--quiet"},
                 folder.path());
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const json plan = json::parse(planned.out)["plans"][0];
  const std::string script = testing::read_text(folder.path() / "run.sh");
  for (const char* part : {"#SBATCH --nodes=2\n", "#SBATCH --gpus-per-node=8\n", "srun torchrun --nnodes=2",
                           "pretrain_gpt.py \"${ARGUMENTS[@]}\" \"$@\""})
    EXPECT_THAT(script, HasSubstr(part));
  EXPECT_THAT(script, HasSubstr(plan["command"].get<std::string>()));
  const json again = testing::parsed({"scenario", "from", "megatron", "run.sh"}, folder.path());
  for (const char* size : {"tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch"})
    EXPECT_EQ(again["parallel"][size], plan["parallel"][size]) << size;
}

const Words kSmall{"plan", "--model", "olmoe", "--tokens",      "100B",   "--cluster", "h100",   "--gpus",
                   "8",    "--draws", "0",     "--no-upgrades", "--most", "60",        "--quiet"};

// A rack's hosts have 4 GPUs, and a script starts the plan's ranks, not the machine's.
TEST(Plan, AScriptStartsAsManyRanksAsThePlanHas) {
  TempFolder folder;
  const Outcome planned =
      run_moesim({"plan", "--model", "olmoe", "--tokens", "100B", "--cluster", "gb200-nvl72x1", "--draws",
                  "0", "--no-upgrades", "--most", "60", "--format", "json", "--script", "run.sh", "--quiet"},
                 folder.path());
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const json sizes = json::parse(planned.out)["plans"][0]["parallel"];
  const int ranks =
      sizes["tp"].get<int>() * sizes["cp"].get<int>() * sizes["pp"].get<int>() * sizes["dp"].get<int>();
  EXPECT_LT(ranks, 72);
  EXPECT_THAT(testing::read_text(folder.path() / "run.sh"),
              HasSubstr("srun torchrun --nnodes=" + std::to_string(ranks / 4) + " --nproc-per-node=4"));
}

// A bought machine: its parts, what it takes at once, and the rent beside it; compare counts it alike.
TEST(Plan, ABoughtMachineStandsBesideItsRent) {
  TempFolder folder;
  const Words money{"--buy", "35000",     "--kwh", "0.08",         "--pue",
                    "1.3",   "--hosting", "150",   "--idle-share", "0.1"};
  const Outcome table = run_moesim(with(kSmall, money));
  ASSERT_EQ(table.exit_code, 0) << table.err;
  std::string flat = table.out;
  std::replace(flat.begin(), flat.end(), '\n', ' ');
  for (const char* part :
       {"(bought: ", " of its price over 5 years, ", " power at a PUE of 1.3; 10 % of them idle",
        "Buying the 8 GPUs takes $280 k; renting them for this training $", "MWh, paid at the peak"})
    EXPECT_THAT(flat, HasSubstr(part));
  EXPECT_LE(widest_line(table.out), 100u);
  const json result = json::parse(run_moesim(with(with(kSmall, money), {"--format", "json"})).out);
  const json& plan = result["plans"][0];
  const json& hour = plan["purchase"]["gpu_hour"];
  EXPECT_EQ(plan["purchase"]["price"], 280'000);
  EXPECT_NEAR(hour["capital"].get<double>(), 35'000 / (5 * 8766 * 0.9), 1e-9);
  EXPECT_NEAR(hour["hosting"].get<double>(), 1.275 * 150 * 12 / (8766 * 0.9), 1e-9);
  EXPECT_NEAR(hour["power"].get<double>(), 1.275 * 1.3 * 0.08, 1e-9);
  const double cost = plan["cost"]["value"];
  EXPECT_NEAR(cost, hour["total"].get<double>() * 8 * 24 * plan["days"]["value"].get<double>(), 1e-6 * cost);
  EXPECT_LT(cost, plan["purchase"]["rent_cost"].get<double>());
  // The step of that plan, by compare and as a change.
  folder.write("plan.json", plan["scenario"].dump());
  const Words asked = with({"plan.json", "--draws", "0"}, money);
  const json step = testing::parsed(with({"compare"}, asked), folder.path())["scenarios"][0];
  EXPECT_NEAR(step["cost"].get<double>(),
              hour["total"].get<double>() * 8 * step["time_us"]["value"].get<double>() / 3.6e9, 1e-9);
  const json change =
      testing::parsed(with(with({"whatif"}, asked), {"--set", "ownership.idle_share=0.55"}), folder.path());
  const auto cost_of = [&](const char* side) {
    return change[side]["dispatchers"][0]["cost_per_million_tokens"].get<double>();
  };
  EXPECT_GT(cost_of("change"), 1.5 * cost_of("baseline"));
}

// A proposed plan can be started: its arguments are those of a job with the same plan.
TEST(Plan, ArgumentsOfEveryPlanAreReadBack) {
  TempFolder folder;
  const json result = testing::parsed(with(kPlan, {"--no-upgrades"}));
  ASSERT_GE(result["plans"].size(), 3u);
  for (const json& plan : result["plans"]) {
    folder.write("plan.json", plan["scenario"].dump());
    const json made = testing::parsed({"compare", "plan.json", "--draws", "0", "--arguments", "megatron"},
                                      folder.path())["arguments"];
    folder.write("run.sh", "ARGUMENTS=(\n" + made["text"].get<std::string>() +
                               ")\ntorchrun --nnodes=8 --nproc-per-node=8 pretrain_gpt.py "
                               "\"${ARGUMENTS[@]}\"\n");
    const json again = testing::parsed({"scenario", "from", "megatron", "run.sh"}, folder.path());
    for (const char* size : {"tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch", "global_batch", "seq"})
      EXPECT_EQ(again["parallel"].value(size, json()), plan["scenario"]["parallel"].value(size, json()))
          << size;
    for (const char* part : {"precision", "schedule", "recompute", "launch", "overlap"})
      EXPECT_EQ(again["training"].value(part, json()), plan["scenario"]["training"].value(part, json()))
          << part << " of " << plan["command"];
  }
}

}  // namespace
}  // namespace moesim::tools
