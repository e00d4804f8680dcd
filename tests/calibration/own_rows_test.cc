// Twelve rows of one's own, on published tables (docs/calibration.md, "One log makes it mine").
#include "calibration/fit/own_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace moesim::calibration {
namespace {

struct Score {
  double log_ratio = 0, coverage = 0;
  int cases = 0, halved = 0, far = 0, far_halved = 0;
  double worst = 0;  // points of error that were added
};

Score score(bool by_law) {
  const auto folder = std::filesystem::path(MOESIM_DATA_DIR) / "published";
  Measurements all;
  for (const char* file : {"collectives_intranode.csv", "collectives_multinode.csv",
                           "collectives_multinode_2.csv", "ep_dispatch_combine_sweeps.csv",
                           "ep_dispatch_combine_tables.csv", "ep_dispatch_combine_tables_2.csv"})
    all.append(read_measurements(folder / file));
  Score s;
  for (const OwnRowsCase& one : own_rows_cases(all, by_law)) {
    const double before = one.before.total().mean_abs_error, after = one.after.total().mean_abs_error;
    EXPECT_EQ(one.before.rows.size(), one.after.rows.size()) << one.machine;
    ++s.cases;
    s.log_ratio += std::log(after / before);
    s.coverage += one.after.total().coverage;
    s.halved += after <= 0.5 * before;
    s.far += before > 0.2;
    s.far_halved += before > 0.2 && after <= 0.5 * before;
    s.worst = std::max(s.worst, after - before);
  }
  return s;
}

TEST(OwnRows, TwelveRowsOfOneOperation) {
  if (!std::filesystem::exists(std::filesystem::path(MOESIM_DATA_DIR) / "published"))
    GTEST_SKIP() << "no tables under " << MOESIM_DATA_DIR;
  const Score s = score(true);
  EXPECT_GE(s.cases, 40);
  EXPECT_LT(std::exp(s.log_ratio / s.cases), 0.36);  // the geometric mean of the errors falls to
  EXPECT_GE(s.halved, 25);
  EXPECT_GE(s.far_halved, s.far - 3);
  EXPECT_GT(s.coverage / s.cases, 0.85);
  EXPECT_LT(s.worst, 0.01);
}

TEST(OwnRows, TwelveRowsOfAMachine) {
  if (!std::filesystem::exists(std::filesystem::path(MOESIM_DATA_DIR) / "published"))
    GTEST_SKIP() << "no tables under " << MOESIM_DATA_DIR;
  const Score s = score(false);
  EXPECT_GE(s.cases, 20);
  EXPECT_LT(std::exp(s.log_ratio / s.cases), 0.40);
  EXPECT_GE(s.far_halved, s.far - 2);
  EXPECT_GT(s.coverage / s.cases, 0.82);
  EXPECT_LT(s.worst, 0.01);
}

}  // namespace
}  // namespace moesim::calibration
