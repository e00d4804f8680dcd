// Whole training steps as a user runs them: `compare --scope step`, `whatif --best`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::parsed;
using testing::run_moesim;
using testing::TempFolder;
using testing::with;
using Words = std::vector<std::string>;

const Words kCompare{
    "compare", "--scope", "step",           "--model", "qwen3-30b-a3b", "--cluster",         "dgx-h100x2",
    "--ep",    "8",       "--microbatches", "8",       "--dispatcher",  "alltoall,allgather"};

TEST(CompareStep, AnswersWithTheFieldsOfTheContract) {
  const json r = parsed(kCompare);
  EXPECT_EQ(r["schema"], "moesim.compare/1");
  ASSERT_EQ(r["scenarios"].size(), 2u);
  for (const json& s : r["scenarios"]) {
    double sum = 0;
    for (const json& part : s["breakdown_us"]) sum += part.get<double>();
    EXPECT_NEAR(sum / s["time_us"]["value"].get<double>(), 1, 1e-6);
    EXPECT_LT(s["time_us"]["low"], s["time_us"]["value"]);
    EXPECT_GT(s["time_us"]["high"], s["time_us"]["value"]);
    for (const char* key : {"tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "bubble_us", "exposed_comm_us",
                            "peak_memory_bytes", "memory", "fits", "flop_convention"})
      EXPECT_TRUE(s.contains(key)) << key;
    EXPECT_THAT(s["flop_convention"].get<std::string>(), HasSubstr("6 x weights"));
  }
  EXPECT_EQ(r["winner"]["dispatcher"], "alltoall");
  EXPECT_GE(r["winner"]["speedup"]["value"], 1.0);
  EXPECT_THAT(r["because"].get<std::string>(), HasSubstr("over allgather, most of it in"));
}

TEST(CompareStep, TableSaysTheSameAsTheResult) {
  const json r = parsed(kCompare);
  const Outcome table = run_moesim(with(kCompare, {"--format", "csv", "--quiet"}));
  ASSERT_EQ(table.exit_code, 0) << table.err;
  std::istringstream lines(table.out);
  std::string header, row;
  std::getline(lines, header);
  for (const json& s : r["scenarios"]) {
    ASSERT_TRUE(std::getline(lines, row));
    std::vector<std::string> names, cells;
    for (auto [text, out] : {std::pair{&header, &names}, std::pair{&row, &cells}}) {
      std::istringstream in(*text);
      for (std::string cell; std::getline(in, cell, ',');) out->push_back(cell);
    }
    ASSERT_EQ(names.size(), cells.size());
    double parts = 0;
    for (std::size_t i = 7; names[i] != "tx/rank [MB]"; ++i) parts += std::stod(cells[i]);
    EXPECT_EQ(cells[0], s["dispatcher"].get<std::string>());
    const double ms = s["time_us"]["value"].get<double>() * 1e-3;
    EXPECT_NEAR(std::stod(cells[1]), ms, 0.06);
    // All parts of the breakdown have a column.
    EXPECT_NEAR(parts, ms, 0.06 * static_cast<double>(cells.size()));
  }
}

TEST(CompareStep, ReadsEveryPartOfAPlan) {
  TempFolder folder;
  folder.write("s.json", R"({"model": "deepseek-v2-lite", "cluster": "dgx-h100x2", "scope": "step",
    "dispatcher": "flex-deepep", "parallel": {"ep": 4, "pp": 4, "microbatches": 16, "seq": 2048},
    "training": {"precision": "fp8_block", "schedule": "dualpipe", "sharding": "distributed-optimizer",
      "recompute": "layernorm+mla_up_proj", "launch": "partial-graphs", "fused_kernels": true,
      "overlap": {"expert_communication": true, "delayed_wgrad": true}}})");
  const json r = parsed({"compare", "s.json"}, folder.path());
  const json& training = r["inputs"]["scenario"]["training"];
  EXPECT_EQ(training["schedule"], "dualpipe");
  EXPECT_EQ(training["recompute"], "mla_up_proj+layernorm");
  EXPECT_EQ(training["overlap"]["delayed_wgrad"], true);
  EXPECT_EQ(r["scenarios"][0]["gpus"], 16);
}

TEST(CompareStep, WarnsOnceOfWhatWasNeverMeasured) {
  TempFolder folder;
  folder.write("s.json", R"({"model": {"base": "mixtral-8x7b", "layers": 8}, "cluster": "echo-h800x2",
    "scope": "step", "dispatcher": "flex-hybridep,flex-deepep",
    "parallel": {"pp": 2, "ep": 2, "dp": 8, "seq": 1024, "microbatches": 8}})");
  for (const Words& words : {Words{"compare", "s.json"},
                             {"whatif", "s.json", "--set", "topk=1"},
                             {"whatif", "s.json", "--best", "dispatcher"}}) {
    const json warnings = parsed(words, folder.path())["warnings"];
    const std::set<std::string> different(warnings.begin(), warnings.end());
    EXPECT_EQ(different.size(), warnings.size()) << warnings;
    EXPECT_THAT(different, Contains(HasSubstr("HybridEP dispatch kernel was not measured"))) << words[1];
    EXPECT_THAT(different,
                Contains(HasSubstr("DeepEP dispatch kernel extrapolates to 2 ranks (measured 8 to 8)")))
        << words[1];
  }
}

// Everything that a step does is held against the profile's domain, its dense part and its gradients too.
TEST(CompareStep, WarnsOfWhatIsExtrapolated) {
  TempFolder folder;
  folder.write("s.json", R"({"model": "qwen3-30b-a3b", "cluster": "gb200-nvl72x1", "scope": "step",
    "parallel": {"ep": 8, "tp": 2, "dp": 36, "microbatches": 4}})");
  const json far = parsed({"compare", "s.json", "--dispatcher", "alltoall"}, folder.path());
  EXPECT_THAT(far["warnings"], Contains("gb200: reduce_scatter inside a node extrapolates to 14.50 GB "
                                        "(measured 512 B to 536.87 MB)"));
  EXPECT_THAT(far["warnings"],
              Contains("gb200: bf16 GEMM extrapolates to n = 75968 (measured 1024 to 16384)"));
  EXPECT_THAT(far["warnings"],
              Contains("gb200: all_gather inside a node extrapolates to 2 ranks (measured 4 to 4)"));
  EXPECT_GT(far["scenarios"][0]["outside_domain"], 0.05);
  EXPECT_LT(far["scenarios"][0]["outside_domain"], 1);
  // That model inside of the measured range, except for its vocabulary and its narrow experts.
  folder.write("near.json", R"({"model": "mixtral-8x7b", "cluster": "dgx-h100x1", "scope": "step",
    "parallel": {"ep": 8, "dp": 8, "microbatches": 4}})");
  const json near = parsed({"compare", "near.json", "--dispatcher", "alltoall"}, folder.path());
  EXPECT_LT(near["scenarios"][0]["outside_domain"], 0.05);
  EXPECT_EQ(near["warnings"], json::array());
}

TEST(CompareStep, SaysWhatDoesNotFitAndWhatWouldHelp) {
  const Words words{"compare",   "--scope",        "step", "--model",      "deepseek-v3",
                    "--cluster", "dgx-h100x256",   "--ep", "64",           "--pp",
                    "16",        "--microbatches", "60",   "--dispatcher", "flex-deepep"};
  const json r = parsed(words);
  const json& s = r["scenarios"][0];
  EXPECT_EQ(s["gpus"], 2048);
  ASSERT_EQ(s["fits"], false);
  EXPECT_GT(s["missing_bytes"], 0);
  const Outcome text = run_moesim(with(words, {"--quiet"}));
  EXPECT_THAT(text.out, HasSubstr("does not fit: stage"));
  if (s.contains("recompute_that_fits")) {
    const json again = parsed(with(words, {"--recompute", s["recompute_that_fits"].get<std::string>()}));
    EXPECT_EQ(again["scenarios"][0]["fits"], true);
  }
}

TEST(CompareFaults, LayerAndStepSayWhatTheyCost) {
  for (const char* scope : {"layer", "step"}) {
    const bool step = std::string(scope) == "step";
    const std::string failures = step ? R"(, "gpu_mtbf_hours": 50000, "checkpoint_s": 30)" : "";
    const Words words{"compare",
                      "--scope",
                      scope,
                      "--model",
                      "mixtral-8x7b",
                      "--cluster",
                      "dgx-h100x2",
                      "--ep",
                      "8",
                      "--dispatcher",
                      "alltoall",
                      "--faults",
                      R"({"slow_gpus": [{"gpu": 3, "factor": 1.3}])" + failures + "}"};
    const json s = parsed(words)["scenarios"][0];
    EXPECT_GT(s["time_us"]["value"], s["healthy_time_us"]) << scope;
    EXPECT_LT(s["time_us"]["value"].get<double>(), 1.3 * s["healthy_time_us"].get<double>()) << scope;
    const Outcome text = run_moesim(with(words, {"--quiet"}));
    EXPECT_THAT(text.out, HasSubstr("on a healthy machine (+")) << scope;
    if (step) {
      EXPECT_LT(s["goodput"]["share"], 1.0);
      EXPECT_THAT(text.out, HasSubstr("of the time is work that counts"));
    }
  }
}

TEST(CompareFaults, WhatIfSetsThem) {
  TempFolder folder;
  folder.write("s.json", R"({"model": "mixtral-8x7b", "parallel": {"ep": 8}, "dispatcher": "alltoall",
                             "cluster": "dgx-h100x2"})");
  const json r = parsed({"whatif", "s.json", "--set", R"(faults={"slow_gpus": [{"gpu": 3, "factor": 1.3}]})"},
                        folder.path());
  EXPECT_GT(r["difference"]["time_us"]["value"], 0.0);
}

constexpr const char* kPlan = R"({"model": "olmoe", "cluster": "dgx-h100x1", "scope": "step",
  "dispatcher": "alltoall", "parallel": {"ep": 8, "microbatches": 8, "seq": 2048}})";

TEST(WhatIfBest, FindsTheBestOfEveryPlanOfASmallSpace) {
  TempFolder folder;
  folder.write("s.json", kPlan);
  const json r =
      parsed({"whatif", "s.json", "--best", "dispatcher,recompute", "--under", "memory", "--top", "100"},
             folder.path());
  EXPECT_EQ(r["plans"]["skipped"], 0);
  EXPECT_THAT(r["method"].get<std::string>(), HasSubstr("exhaustive"));
  const json& best = r["best"];
  ASSERT_GT(best.size(), 4u);
  for (std::size_t i = 1; i < best.size(); ++i)
    EXPECT_LE(best[i - 1]["forecast"]["time_us"]["value"], best[i]["forecast"]["time_us"]["value"]);
  for (const json& plan : best) {
    EXPECT_EQ(plan["forecast"]["fits"], true);
    EXPECT_LT(plan["forecast"]["time_us"]["low"], plan["forecast"]["time_us"]["value"]);
    // Each is what compare says of the same plan.
    const json again = parsed({"compare", "s.json", "--dispatcher", plan["dispatcher"].get<std::string>(),
                               "--recompute", plan["training"]["recompute"].get<std::string>()},
                              folder.path());
    EXPECT_DOUBLE_EQ(again["scenarios"][0]["time_us"]["value"].get<double>(),
                     plan["forecast"]["time_us"]["value"].get<double>());
  }
}

TEST(WhatIfBest, CountsEveryCombinationAndKeepsTheBatch) {
  TempFolder folder;
  folder.write("s.json", kPlan);
  const Words words{"whatif", "s.json", "--best", "parallel,dispatcher,recompute", "--under", "memory"};
  const json all = parsed(words, folder.path()), some = parsed(with(words, {"--most", "60"}), folder.path());
  for (const json* r : {&all, &some}) {
    const json& p = (*r)["plans"];
    EXPECT_EQ(p["candidates"].get<int>(), p["forecast"].get<int>() + p["does_not_fit"].get<int>() +
                                              p["illegal"].get<int>() + p["slower"].get<int>() +
                                              p["skipped"].get<int>());
    for (const json& plan : (*r)["best"]) {
      const json& size = plan["parallel"];
      EXPECT_EQ(size["dp"].get<int>() * size["microbatches"].get<int>() * size["micro_batch"].get<int>(), 64);
      EXPECT_EQ(size["dp"].get<int>() * size["tp"].get<int>() * size["cp"].get<int>() * size["pp"].get<int>(),
                8);
    }
  }
  EXPECT_EQ(all["plans"]["skipped"], 0);
  EXPECT_GT(all["plans"]["slower"], 300);
  // No plan is counted or shown twice.
  const json every = parsed(with(words, {"--top", "1000", "--draws", "0"}), folder.path());
  std::set<std::string> different;
  for (const json& plan : every["best"])
    different.insert(plan["parallel"].dump() + plan["dispatcher"].dump() + plan["training"].dump());
  EXPECT_EQ(different.size(), every["best"].size());
  EXPECT_GT(some["plans"]["skipped"], 0);
  EXPECT_THAT(some["method"].get<std::string>(), HasSubstr("it ended after"));
  EXPECT_GE(some["best"][0]["forecast"]["time_us"]["value"], all["best"][0]["forecast"]["time_us"]["value"]);
  // Equal for any number of threads.
  EXPECT_EQ(parsed(with(words, {"--threads", "1"}), folder.path())["best"],
            parsed(with(words, {"--threads", "3"}), folder.path())["best"]);
}

TEST(WhatIfBest, SaysWhichDispatcherItUses) {
  TempFolder folder;
  folder.write("s.json", kPlan);
  const Words words{"whatif", "s.json", "--quiet", "--best", "recompute"};
  const auto space = [&](const Words& asked) {
    return parsed(asked, folder.path())["plans"]["space"].get<std::string>();
  };
  EXPECT_THAT(space(words), HasSubstr("dispatcher alltoall, as given;"));
  EXPECT_THAT(run_moesim(words, folder.path()).out, Not(HasSubstr("Add dispatcher")));
  const Words several = with(words, {"--set", "dispatcher=allgather,alltoall"});
  EXPECT_THAT(space(several), HasSubstr("dispatcher allgather, the scenario's first;"));
  EXPECT_THAT(run_moesim(several, folder.path()).out, HasSubstr("\nAdd dispatcher to --best"));
}

// A scenario without a scope is asked about its step.
TEST(WhatIfBest, ComparesSteps) {
  TempFolder folder;
  json scenario = json::parse(kPlan);
  folder.write("step.json", scenario.dump());
  scenario.erase("scope");
  folder.write("open.json", scenario.dump());
  const auto best = [&](const char* file) {
    return run_moesim({"whatif", file, "--best", "dispatcher", "--draws", "0", "--quiet"}, folder.path());
  };
  EXPECT_EQ(best("open.json").out, best("step.json").out);
}

}  // namespace
}  // namespace moesim::tools
