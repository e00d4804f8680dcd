// Twelve rows of one's own, on published tables (docs/calibration.md, "One log makes it mine").
#include "calibration/fit/own_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
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

// Clusters of the tables of collectives between nodes: a dozen rows choose the network and move its laws.
TEST(OwnRows, TwelveRowsOfAClusterFindItsNetwork) {
  const auto folder = std::filesystem::path(MOESIM_DATA_DIR) / "published";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no tables under " << MOESIM_DATA_DIR;
  Measurements all;
  for (const char* file :
       {"collectives_multinode.csv", "collectives_multinode_2.csv", "collectives_multinode_3.csv"})
    all.append(read_measurements(folder / file));
  int clusters = 0, near = 0, worse = 0;
  double covered = 0, rows = 0;
  for (const OwnRowsCase& one : own_rows_cases(all, false, true)) {
    if (one.nearest.empty()) continue;
    const CheckGroup before = one.before.total(), after = one.after.total();
    std::printf("%-22s %-34s %-18s took %-18s rows %4zu  %5.1f -> %5.1f %%  inside %3.0f -> %3.0f %%\n",
                one.gpu.c_str(), one.machine.c_str(), one.base.c_str(), one.nearest.c_str(), after.rows,
                100 * before.mean_abs_error, 100 * after.mean_abs_error, 100 * before.coverage,
                100 * after.coverage);
    ++clusters;
    near += after.mean_abs_error <= 0.10;
    worse += after.mean_abs_error > before.mean_abs_error + 0.01;
    EXPECT_GT(after.coverage, 0.75) << one.machine;
    covered += after.coverage * static_cast<double>(after.rows);
    rows += static_cast<double>(after.rows);
  }
  std::printf("%d clusters, %d within 10 %%, %d worse than before, %.0f %% inside\n", clusters, near, worse,
              100 * covered / rows);
  // The goal is 8 of 10 within 10 % (docs/calibration.md says what is missed and why).
  EXPECT_GE(clusters, 9);
  EXPECT_GE(near, 6);
  EXPECT_EQ(worse, 0);
  EXPECT_GT(covered / rows, 0.88);
  EXPECT_LT(covered / rows, 0.97);
}

}  // namespace
}  // namespace moesim::calibration
