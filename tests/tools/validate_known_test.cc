// The golden page of public figures: ours beside each, and a band that it must not leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "tests/replaced.h"
#include "tests/tools/process.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_moesim;

const std::filesystem::path kKnown = std::filesystem::path(MOESIM_SOURCE_DIR) / "calibration/known";

// A copy of the page in which one file has another text.
std::string copy_with(const std::string& file, const std::string& from, const std::string& to) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "known";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(kKnown, folder);
  const std::string text = read_file(kKnown / file), changed = replaced(text, from, to);
  EXPECT_NE(text, changed);
  write_file((folder / file).string(), changed);
  return folder.string();
}

TEST(ValidateKnown, FortyFiguresLieInTheirBands) {
  const Outcome done = run_moesim({"validate", "--known", kKnown.string(), "--format", "json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  const json figures = json::parse(done.out)["figures"];
  EXPECT_GE(figures.size(), 40u);
  for (const json& f : figures) {
    SCOPED_TRACE(f["what"]);
    EXPECT_FALSE(f["source"].get<std::string>().empty());
    EXPECT_TRUE(f["inside"]);
    EXPECT_NEAR(f["forecast"].get<double>() / f["published"].get<double>(), f["ratio"].get<double>(), 1e-9);
    // The spread of what was measured, around the figure and a known miss of ours.
    const double spread = f["spread"], miss = f["miss"].is_null() ? 1.0 : f["miss"].get<double>();
    EXPECT_GT(spread, 0);
    EXPECT_LE(spread, 0.07);
    EXPECT_TRUE(f["miss"].is_null() || std::abs(miss - 1) > spread) << "it is no miss";
    EXPECT_NEAR(f["band"][0], std::min(1.0, miss) - spread, 1e-12);
    EXPECT_NEAR(f["band"][1], std::max(1.0, miss) + spread, 1e-12);
  }
}

TEST(ValidateKnown, AFigureOutsideOfItsBandFails) {
  const std::string folder = copy_with("kernels.csv", "4096,7168,8,4,bf16,158,", "4096,7168,8,4,bf16,100,");
  const Outcome done = run_moesim({"validate", "--known", folder});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err, HasSubstr("check failed: DeepEP combine, EP 8: "));
}

TEST(ValidateKnown, AFigureWithoutAForecastIsRefused) {
  const Outcome done =
      run_moesim({"validate", "--known", copy_with("collectives.csv", "MI300X,1,8", "MI999,1,8")});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(
      done.err,
      HasSubstr("found 15 of 16 figures with a forecast (no profile for MI999), expected all of them"));
}

TEST(ValidateKnown, RefusesWhatItDoesNotLookAt) {
  EXPECT_EQ(run_moesim({"validate", "--known", kKnown.string(), "--max-error", "5%"}).exit_code, 2);
  EXPECT_EQ(run_moesim({"validate", "--known", kKnown.string(), "--draws", "4"}).exit_code, 2);
}

}  // namespace
}  // namespace moesim::tools
