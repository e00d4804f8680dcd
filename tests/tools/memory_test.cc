// Memory as a user sees it: `validate --memory`, `--detail memory`, and what is said where nothing fits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::parsed;
using testing::run_moesim;
using testing::TempFolder;
using testing::with;
using Words = std::vector<std::string>;

const Words kTight{"compare",    "--scope", "step", "--model",      "qwen3-30b-a3b", "--cluster",
                   "dgx-h100x1", "--ep",    "8",    "--dispatcher", "alltoall"};

constexpr const char* kTableHeader =
    "id,gpu,gpus,gpus_per_node,model,layers,dense_layers,framework,dispatcher,precision,gbs,mbs,seq_len,tp,"
    "pp,cp,"
    "ep,etp,recompute,routing,optimizer,peak_allocated_GiB,status,note\n";

// Two cuts of a model whose peaks are made up: forecast, error, the call, and what is skipped and why.
TEST(ValidateMemory, ComparesPeaksAndCountsJobsThatRan) {
  TempFolder folder;
  folder.write(
      "rows.csv",
      std::string("# comment\n") + kTableHeader +
          "a,H100-SXM5-80GB,8,8,mixtral-8x7b,4,,Megatron-LM,alltoall,BF16,8,1,4096,1,1,1,8,1,none,,,20,fits,"
          "\n"
          "b,H100-SXM5-80GB,8,8,mixtral-8x7b,8,,Megatron-LM,alltoall,BF16,8,1,4096,1,1,1,8,1,none,,,,fits,\n"
          "c,H100-SXM5-80GB,8,8,mixtral-8x7b,32,,Megatron-LM,alltoall,BF16,8,1,4096,1,1,1,8,1,none,,,70,out "
          "of "
          "memory,\n"
          "d,H100-SXM5-80GB,8,8,Llama3 8B,4,,Megatron-LM,none (dense),BF16,8,1,4096,1,1,1,,,none,,,20,fits,\n"
          "e,H100-SXM5-80GB,8,8,mixtral-8x7b,4,,Megatron-LM,alltoall,BF16,8,1,4096,1,1,1,8,1,none,natural,,"
          "20,"
          "fits,\n");
  const json r = parsed({"validate", "--memory", "rows.csv"}, folder.path());
  EXPECT_EQ(r["schema"], "moesim.validate/1");
  ASSERT_EQ(r["rows"].size(), 4u);
  const json &a = r["rows"][0], &b = r["rows"][1], &c = r["rows"][2], &d = r["rows"][3];
  EXPECT_EQ(a["id"], "a");
  EXPECT_EQ(a["measured_bytes"], 20.0 * 1024 * 1024 * 1024);
  EXPECT_NEAR(a["error"].get<double>(),
              a["forecast_bytes"].get<double>() / a["measured_bytes"].get<double>() - 1, 1e-12);
  EXPECT_TRUE(b["error"].is_null());
  EXPECT_TRUE(b["measured_bytes"].is_null());
  EXPECT_GT(b["forecast_bytes"], a["forecast_bytes"]);
  EXPECT_EQ(c["ran"], false);
  EXPECT_TRUE(c["error"].is_null());  // it was never whole
  EXPECT_EQ(c["fits"], false);
  EXPECT_EQ(c["fits_probability"], 0);
  EXPECT_EQ(d["dispatcher"], "none");
  EXPECT_EQ(r["ran"], 3);
  EXPECT_EQ(r["ran_but_called_unfit"], 0);
  ASSERT_EQ(r["skipped"].size(), 1u);
  EXPECT_THAT(r["skipped"][0]["reason"].get<std::string>(), HasSubstr("how imbalanced it was is not stated"));
  const double errors[] = {std::abs(a["error"].get<double>()), std::abs(d["error"].get<double>())};
  EXPECT_DOUBLE_EQ(r["median_abs_error"].get<double>(), (errors[0] + errors[1]) / 2);
  EXPECT_DOUBLE_EQ(r["worst_abs_error"].get<double>(), std::max(errors[0], errors[1]));

  const json causes = parsed({"validate", "--memory", "rows.csv", "--detail", "causes"}, folder.path());
  double sum = 0;
  for (const json& cause : causes["rows"][0]["causes"]) sum += cause["bytes"].get<double>();
  EXPECT_NEAR(sum / a["forecast_bytes"].get<double>(), 1, 1e-9);

  const Outcome text = run_moesim({"validate", "--memory", "rows.csv"}, folder.path());
  EXPECT_THAT(text.out, AllOf(HasSubstr("2 measured peaks: median absolute error"),
                              HasSubstr("3 of 3 jobs that ran are called fitting")));
  const Outcome csv = run_moesim({"validate", "--memory", "rows.csv", "--format", "csv"}, folder.path());
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 5);
  EXPECT_EQ(
      run_moesim({"validate", "--memory", "rows.csv", "--max-error", "0.001%"}, folder.path()).exit_code, 1);
}

TEST(ValidateMemory, RefusesWhatItCannotUse) {
  TempFolder folder;
  folder.write("other.csv", "a,b\n1,2\n");
  folder.write("number.csv",
               std::string(kTableHeader) +
                   "a,H100-SXM5-80GB,8,8,mixtral-8x7b,,,Megatron-LM,alltoall,BF16,8,1,4096,1,1,1,8,1,"
                   "none,,,many,fits,\n");
  for (const auto& [words, expected] : std::vector<std::pair<Words, std::string>>{
           {{"--memory", "other.csv"}, "other.csv:1: found no column 'gpu'"},
           {{"--memory", "number.csv"}, "number.csv:2"},
           {{"--memory", "none.csv"}, "none.csv"},
           {{"--memory", "number.csv", "--training", "other.csv"}, "found --memory beside --training"},
           {{"--memory", "number.csv", "--detail", "breakdown"}, "expected causes"},
           {{"--memory", "number.csv", "--timeline", "t.json"}, "found --timeline beside --memory"},
           {{"--training", "other.csv", "--detail", "causes"}, "found --detail causes beside --training"}}) {
    const Outcome outcome = run_moesim(with({"validate"}, words), folder.path());
    EXPECT_EQ(outcome.exit_code, 2) << expected;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
}

class MeasuredPeaks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(data_ / "memory")) GTEST_SKIP() << "no measured peaks at " << data_ / "memory";
  }
  fs::path data_ = MOESIM_DATA_DIR;
};

// docs/step.md says what the figures are; these are the bounds that they must keep.
TEST_F(MeasuredPeaks, AreForecastWithinTheirBounds) {
  const json r = parsed({"validate", "--memory", (data_ / "memory" / "simumax.csv").string()});
  EXPECT_LT(r["median_abs_error"], 0.01);
  EXPECT_LT(r["worst_abs_error"], 0.07);
  EXPECT_EQ(r["ran_but_called_unfit"], 0);
  int whole = 0;
  for (const json& row : r["rows"]) {
    SCOPED_TRACE(row["id"]);
    if (row["gpu"] == "B200-SXM6-180GB" && !row["error"].is_null()) {
      EXPECT_LT(std::abs(row["error"].get<double>()), 0.012);
      for (const json& stage : row["stages"]) EXPECT_LT(std::abs(stage["error"].get<double>()), 0.012);
      ++whole;
    }
    // Jobs of Nemotron 3 Nano that ran out of memory are told from those that did not.
    if (row["id"].get<std::string>().starts_with("nano")) {
      if (row["ran"].get<bool>())
        EXPECT_GT(row["fits_probability"], 0.9);
      else
        EXPECT_LT(row["fits_probability"], 0.9);
    }
  }
  EXPECT_GE(whole, 17);
}

TEST_F(MeasuredPeaks, EveryPublishedPlanThatRanFits) {
  const json r = parsed({"validate", "--memory", (data_ / "published" / "moe_training_e2e.csv").string()});
  EXPECT_GE(r["ran"], 160);
  EXPECT_EQ(r["ran_but_called_unfit"], 0);
}

TEST(CompareMemory, TellsTheTreeOfCausesAtBothScopes) {
  for (const char* scope : {"layer", "step"}) {
    SCOPED_TRACE(scope);
    const Words words{"compare",   "--scope",    scope,     "--model", "qwen3-30b-a3b",
                      "--cluster", "dgx-h100x1", "--ep",    "8",       "--dispatcher",
                      "alltoall",  "--routing",  "zipf:1.2"};
    const json s = parsed(words)["scenarios"][0];
    EXPECT_GE(s["fits_probability"], 0);
    EXPECT_LE(s["fits_probability"], 1);
    ASSERT_FALSE(s["memory"]["stages"].empty());
    const json& stage = s["memory"]["stages"][s["memory"]["stage"].get<std::size_t>()];
    double sum = 0;
    for (const json& cause : stage["causes"]) sum += cause["bytes"].get<double>();
    EXPECT_NEAR(sum / s["memory"]["total_bytes"].get<double>(), 1, 1e-9);
    EXPECT_LE(stage["low_bytes"], stage["high_bytes"]);
    const Outcome text = run_moesim(with(words, {"--detail", "memory", "--quiet"}));
    EXPECT_THAT(text.out, AllOf(HasSubstr("memory [GB]"), HasSubstr("placeholders of weight gradients"),
                                HasSubstr("first moment fp32"), HasSubstr("queries, keys, values"),
                                HasSubstr("fits with probability")));
  }
}

TEST(CompareMemory, OptimizerTypesLowerIt) {
  const json wide = parsed(kTight)["scenarios"][0],
             narrow = parsed(with(kTight, {"--optimizer-dtypes", "fp32,bf16,bf16"}))["scenarios"][0];
  EXPECT_DOUBLE_EQ(narrow["memory"]["optimizer_bytes"].get<double>() * 12,
                   wide["memory"]["optimizer_bytes"].get<double>() * 8);
  const Outcome wrong = run_moesim(with(kTight, {"--optimizer-dtypes", "fp32,bf16"}));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("expected three of fp32, bf16, fp16, fp8"));
}

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

}  // namespace
}  // namespace moesim::tools
