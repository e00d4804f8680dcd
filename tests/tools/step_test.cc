// Whole training steps as a user runs them: `compare --scope step`, `whatif --best`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
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
using testing::parsed;
using testing::run_moesim;
using testing::TempFolder;
using testing::with;
using Words = std::vector<std::string>;

const Words kCompare{
    "compare", "--scope", "step",           "--model", "qwen3-30b-a3b", "--cluster",         "dgx-h100x2",
    "--ep",    "8",       "--microbatches", "8",       "--dispatcher",  "alltoall,allgather"};

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
    // Columns are the paths of the JSON.
    double parts = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const json::json_pointer path("/" + std::regex_replace(names[i], std::regex("\\."), "/"));
      const json value = s.contains(path) ? s.at(path) : json();
      EXPECT_EQ(cells[i], value.is_string() ? value.get<std::string>()
                          : value.is_null() ? ""
                                            : value.dump())
          << names[i];
      if (names[i].starts_with("breakdown_us.") && !cells[i].empty()) parts += std::stod(cells[i]);
    }
    EXPECT_NEAR(parts, s["time_us"]["value"].get<double>(), 1e-6 * parts);
  }
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

const Words kTight{"compare",    "--scope", "step", "--model",      "qwen3-30b-a3b", "--cluster",
                   "dgx-h100x1", "--ep",    "8",    "--dispatcher", "alltoall"};

// Qwen3 30B on eight GPUs does not fit with all of its state in fp32; the change that is named makes it fit.
TEST(CompareMemory, NamesTheCheapestChangeThatFits) {
  const json r = parsed(kTight);
  ASSERT_EQ(r["scenarios"][0]["fits"], false);
  EXPECT_THAT(r["answer"].get<std::string>(), HasSubstr("Nothing fits the memory"));
  ASSERT_TRUE(r.contains("change_that_fits")) << r["answer"];
  std::istringstream options(r["change_that_fits"].get<std::string>());
  Words words = kTight;
  for (std::string word; options >> word;) words.push_back(word);
  const json again = parsed(words);
  EXPECT_EQ(again["scenarios"][0]["fits"], true) << r["change_that_fits"];
  EXPECT_FALSE(again.contains("change_that_fits"));
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

}  // namespace
}  // namespace moesim::tools
