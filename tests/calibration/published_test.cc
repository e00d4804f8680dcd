// Laws of what is normal: not normal is only what is too slow.
#include "calibration/check/published.h"

#include <gtest/gtest.h>

#include <string>

#include "calibration/rows/devices.h"
#include "models/workload/scenario.h"

namespace moesim::calibration {
namespace {

// An all-reduce inside one node of H100, slowed or sped up against its forecast.
JudgedRow judged(double speed) {
  Measurements rows;
  CollectiveRow row;
  row.origin.gpu = "H100-SXM5-80GB";
  row.op = sim::CollectiveOp::all_reduce;
  row.gpus_per_node = 8;
  row.bytes = 1 << 30;
  row.seconds = 1;
  row.datatype = "float";
  rows.collectives.push_back(row);
  const double forecast = check_rows(rows, built_in_of).rows.front().forecast.value;
  rows.collectives.front().seconds = forecast / speed;
  return judge(check_rows(rows, built_in_of).rows.front());
}

TEST(Published, FasterIsNeverLessNormalAndMoreAreSlower) {
  double slower = 0;
  bool normal = false;
  for (double speed = 0.05; speed < 4; speed *= 1.1) {
    const JudgedRow row = judged(speed);
    EXPECT_GE(row.slower, slower) << speed;
    EXPECT_GE(row.normal, normal) << speed;
    slower = row.slower;
    normal = row.normal;
  }
  EXPECT_TRUE(normal);
  EXPECT_FALSE(judged(0.05).normal);
  EXPECT_EQ(judged(4).slower, 1);
}

TEST(Published, WhatTheMedianRowDoesIsNormal) {
  const JudgedRow row = judged(1);
  ASSERT_NE(row.published, nullptr);
  EXPECT_GE(row.published->rows, kEnoughRows);
  EXPECT_GE(row.published->sources.size(), 2u);
  const JudgedRow median = judged(row.published->speed[3]);
  EXPECT_TRUE(median.normal);
  EXPECT_NEAR(median.slower, 0.5, 1e-6);
  EXPECT_NEAR(median.ratio(), 1, 1e-6);
  EXPECT_NEAR(median.usual_bandwidth().value / median.row.bandwidth, 1, 1e-6);
}

TEST(Published, RowsOfOtherCellsHaveNone) {
  EXPECT_EQ(published_rows(""), nullptr);
  EXPECT_EQ(published_rows("step, h100-sxm, a model of nobody"), nullptr);
}

}  // namespace
}  // namespace moesim::calibration
