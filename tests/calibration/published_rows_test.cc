// The published tables of ../shared/data as they are read; skipped where they are not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "calibration/training/training_rows.h"

namespace moesim::calibration {
namespace {

std::string data(const char* file) { return std::string(MOESIM_DATA_DIR) + "/" + file; }

#define NEED(file)                                 \
  if (!std::filesystem::exists(data(file))) {      \
    GTEST_SKIP() << data(file) << " is not there"; \
  }

double seconds(TrainingRow row) { return forecast_of(row, 0).time_us.value * 1e-6; }

// One run in two tables, with its settings once in a note and once in columns (issue 37, point 2).
TEST(PublishedRows, ARunIsForecastAlikeInBothOfItsTables) {
  NEED("published/moe_training_e2e_2.csv")
  NEED("decisions/mlperf_moe.csv")
  const TrainingTable notes = read_training_table(data("published/moe_training_e2e_2.csv"));
  const TrainingTable columns = read_training_table(data("decisions/mlperf_moe.csv"));
  int pairs = 0;
  for (const TrainingRow& row : notes.rows) {
    if (row.source.find("MLPerf") == std::string::npos) continue;
    // The path of the log is the run.
    const std::string log = row.source.substr(row.source.find("eabf23a0"), 60);
    const auto twin = std::ranges::find_if(
        columns.rows, [&](const TrainingRow& other) { return other.source.find(log) != std::string::npos; });
    if (twin == columns.rows.end()) continue;
    ++pairs;
    EXPECT_EQ(plan_text(row.scenario), plan_text(twin->scenario)) << log;
    EXPECT_EQ(seconds(row), seconds(*twin)) << log;
  }
  EXPECT_GE(pairs, 4);
}

TEST(PublishedRows, RunsThatNoFitHasSeenAreForecastWithinFifteenPercentInTheMedian) {
  NEED("published/moe_training_e2e_2.csv")
  const TrainingTable table = read_training_table(data("published/moe_training_e2e_2.csv"));
  std::vector<double> errors;
  for (const TrainingRow& row : table.rows) errors.push_back(std::abs(seconds(row) / row.measured_s - 1));
  ASSERT_GE(errors.size(), 9u);
  std::ranges::sort(errors);
  EXPECT_LE(errors[errors.size() / 2], 0.15);
}

TEST(PublishedRows, NoSizeThatDecidesIsTakenFor1InSilence) {
  for (const char* file : {"published/moe_training_e2e.csv", "published/moe_training_e2e_2.csv",
                           "decisions/training_decisions.csv", "decisions/training_decisions_3.csv"}) {
    NEED(file)
    for (const TrainingRow& row : read_training_table(data(file)).rows)
      for (const char* path : {"parallel.tp", "parallel.pp", "parallel.ep"})
        EXPECT_NE(row.scenario.origin_of(path).kind, models::Origin::Kind::kDefault)
            << file << ':' << row.line << ' ' << path;
  }
}

}  // namespace
}  // namespace moesim::calibration
