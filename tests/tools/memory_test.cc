// Memory as a user sees it: `--detail memory`, and what is said where nothing fits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
