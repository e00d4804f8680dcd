#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "calibration/fit/fit_collectives.h"
#include "calibration/rows/devices.h"
#include "tests/calibration/made_rows.h"

namespace moesim::calibration {
namespace {

using sim::CollectiveOp;

TEST(RankCounts, SwitchReductionsBetweenRingAndNvls) {
  // Two ranks use the ring, eight the switch, integers the ring everywhere: four ranks take the better of
  // both.
  const auto ring = [](int n, double bytes) {
    return 6e-6 + 1e-6 * (n - 1) + 2 * (n - 1.0) / n * bytes / 300e9;
  };
  const auto floats = rows_of_law(CollectiveOp::all_reduce, {2, 8}, [&](int n, double bytes) {
    return n == 2 ? ring(n, bytes) : 13e-6 + (1 + 1.0 / n) * bytes / 280e9;
  });
  auto integers = rows_of_law(CollectiveOp::all_reduce, {2, 8}, ring);
  for (auto& row : integers) row.datatype = "int8";
  const auto points = missing_rank_counts(floats, integers, {}, *find_device("h100-sxm"));
  ASSERT_FALSE(points.empty());
  for (const CurvePoint& point : points) {
    if (point.bytes <= 1e8) continue;
    EXPECT_NEAR(point.seconds / std::min(ring(4, point.bytes), 1.25 * point.bytes / 280e9 + 9e-6), 1, 0.03);
  }
}

TEST(RankCounts, AreLeftAloneWhereNothingIsKnownOfThem) {
  const auto law = [](int n, double bytes) { return 10e-6 + 1e-6 * n + bytes / 300e9; };
  const auto floats = rows_of_law(CollectiveOp::all_reduce, {2, 8}, law);
  const Device& h100 = *find_device("h100-sxm");
  EXPECT_TRUE(missing_rank_counts(floats, {}, floats, h100).empty());  // no integers to show the ring
  const auto measured = rows_of_law(CollectiveOp::all_reduce, {2, 4, 8}, law);
  EXPECT_TRUE(missing_rank_counts(measured, floats, measured, h100).empty());
  const auto gather = rows_of_law(CollectiveOp::all_gather, {2, 8}, law);
  EXPECT_TRUE(missing_rank_counts(gather, floats, gather, h100).empty());  // no reduction
}

// A B200 measured two and eight ranks, a GB200 four: the curve of the GB200 stands in, with the latencies of
// the B200 and at its bandwidth, which is two thirds of the GB200's here.
TEST(RankCounts, OfBlackwellComeFromItsSibling) {
  const auto law = [](double latency, double bandwidth) {
    return [=](int n, double bytes) { return latency * (1 + 0.1 * n) + bytes * (n - 1) / n / bandwidth; };
  };
  auto b200 = rows_of_law(CollectiveOp::all_gather, {2, 8}, law(10e-6, 400e9));
  for (CollectiveRow& row : b200) row.origin.gpu = find_device("b200-sxm")->gpu;
  auto gb200 = rows_of_law(CollectiveOp::all_gather, {2, 4, 8}, law(20e-6, 600e9));
  for (CollectiveRow& row : gb200) row.origin.gpu = find_device("gb200")->gpu;
  std::vector<CollectiveRow> all = b200;
  all.insert(all.end(), gb200.begin(), gb200.end());
  const auto points = missing_rank_counts(b200, {}, all, *find_device("b200-sxm"));
  ASSERT_EQ(points.size(), 21u);  // 512 bytes to 512 MiB
  for (const CurvePoint& point : points) {
    EXPECT_EQ(point.ranks, 4);
    EXPECT_NEAR(point.seconds / law(10e-6, 400e9)(4, point.bytes), 1, 0.02) << point.bytes;
  }
  for (CollectiveRow& row : all)
    row.library = row.origin.gpu == gb200.front().origin.gpu ? "NCCL 2.1" : row.library;
  EXPECT_TRUE(missing_rank_counts(b200, {}, all, *find_device("b200-sxm")).empty());  // another library
}

}  // namespace
}  // namespace moesim::calibration
