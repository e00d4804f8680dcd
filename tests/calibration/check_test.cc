// Profiles against rows that they were not fitted to: the check, and fits that leave rows out.
#include "calibration/check/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "base/input_error.h"
#include "base/random.h"
#include "calibration/check/leave_out.h"
#include "calibration/fit/fit_profile.h"
#include "calibration/rows/devices.h"
#include "models/hardware/profile.h"
#include "tests/calibration/made_rows.h"

namespace moesim::calibration {
namespace {

using sim::CollectiveOp;

TEST(Check, RowsThatNobodyCanForecastAreSkippedWithTheirReason) {
  Measurements rows;
  GemmRow gemm;
  gemm.origin.gpu = "H100-SXM5-80GB";
  gemm.m = gemm.n = gemm.k = 4096;
  gemm.seconds = 2e-4;
  gemm.kernel = "torch";
  for (const char* dtype : {"bfloat16", "nvfp4", "nvfp4"}) {
    gemm.dtype = dtype;
    rows.gemms.push_back(gemm);
  }
  gemm.origin.gpu = "GTX";
  rows.gemms.push_back(gemm);
  const models::Profile h100 = models::Profile::load("h100-sxm");
  const CheckReport report =
      check_rows(rows, [&](const std::string& gpu) { return gpu.starts_with("H100") ? &h100 : nullptr; });
  EXPECT_EQ(report.rows.size(), 1u);
  ASSERT_EQ(report.skipped.size(), 2u);
  EXPECT_EQ(report.skipped.at("no profile for GTX"), 1u);
  const auto unknown = std::find_if(report.skipped.begin(), report.skipped.end(), [](const auto& entry) {
    return entry.first.find("nvfp4") != std::string::npos;
  });
  ASSERT_NE(unknown, report.skipped.end());
  EXPECT_EQ(unknown->second, 2u);
  // A fit leaves them out, too.
  EXPECT_NE(fit_profile(*find_device("h100-sxm"), rows,
                        {.leave_out_shapes = false, .provenance = {}, .progress = {}})
                .find("gemm/bf16@torch"),
            nullptr);
}

TEST(Check, TheMedianOfTwoIsTheirMean) {
  CheckReport report;
  for (const double forecast : {1.1, 1.3}) {
    CheckedRow row;
    row.measured = 1;
    row.forecast = models::Estimate::exact(forecast);
    report.rows.push_back(row);
  }
  EXPECT_NEAR(report.total().median_abs_error, 0.2, 1e-12);
}

// Errors of +10 %, -30 % and +50 %; the second lies outside of its interval.
TEST(Check, GroupsByHand) {
  CheckReport report;
  const auto add = [&](const char* op, double forecast, double half, double bytes) {
    CheckedRow row;
    row.op = op;
    row.measured = 2;
    row.bytes = bytes;
    row.forecast = {forecast, forecast - half, forecast + half};
    report.rows.push_back(row);
  };
  add("all_gather", 2.2, 0.3, 1e3);
  add("all_reduce", 1.4, 0.3, 1e6);
  add("all_gather", 3.0, 1.0, 1e9);
  const CheckGroup total = report.total();
  EXPECT_EQ(total.rows, 3u);
  EXPECT_NEAR(total.mean_abs_error, 0.3, 1e-12);
  EXPECT_NEAR(total.median_abs_error, 0.3, 1e-12);
  EXPECT_NEAR(total.bias, 0.1, 1e-12);
  EXPECT_NEAR(total.coverage, 2.0 / 3, 1e-12);
  EXPECT_EQ(report.collectives_from(1e6).rows, 2u);
  const auto groups = report.groups();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].op, "all_gather");
  EXPECT_NEAR(groups[0].mean_abs_error, 0.3, 1e-12);
  EXPECT_EQ(groups[0].coverage, 1);
  EXPECT_EQ(groups[1].coverage, 0);
  EXPECT_EQ(CheckReport().total().rows, 0u);
}

// An interval says what a forecast would: less is known of an exchange of more ranks than a law has rows of.
TEST(Check, KernelsBeyondTheirRowsAreLessCertain) {
  models::Profile h100 = models::Profile::load("h100-sxm");
  models::ParameterSet law;
  law.law = "ep-kernel";
  law.names = {"latency", "scaleup_share"};
  law.values = {3e-5, 0.7};
  law.residual = 0.1;
  law.domain = {{"tokens", 128, 4096}, {"ranks", 2, 2}};
  h100.set("ep/made_dispatch@bf16", law);
  Measurements rows;
  DispatchRow row;
  row.origin.gpu = "H100-SXM5-80GB";
  row.kernel = "made_dispatch";
  row.dtype = "bf16";
  row.hidden = 4096;
  row.topk = 8;
  row.nodes = 1;
  row.seconds = 1e-4;
  for (const auto& [ep, tokens] : {std::pair{2, 512.0}, {4, 512.0}, {8, 512.0}, {8, 65536.0}}) {
    row.ep = ep;
    row.tokens = tokens;
    rows.dispatches.push_back(row);
  }
  const CheckReport report = check_rows(rows, [&](const std::string&) { return &h100; });
  ASSERT_EQ(report.rows.size(), 4u);
  const auto width = [&](std::size_t i) {
    return report.rows[i].forecast.high / report.rows[i].forecast.low;
  };
  EXPECT_NEAR(std::log(width(0)), 2 * 1.6449 * 0.1, 1e-3);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_GT(width(i), 1.05 * width(i - 1));
}

struct Published {
  const char* file;
  double median;  // the shipped profiles must stay this good on the rows they were fitted to
  double coverage;
};

class PublishedRows : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedRows, AreForecastByTheShippedProfiles) {
  const auto path = std::filesystem::path(MOESIM_DATA_DIR) / "published" / GetParam().file;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no data set at " << path;
  std::map<std::string, models::Profile> profiles;
  const CheckReport report =
      check_rows(read_measurements(path), [&](const std::string& gpu) -> const models::Profile* {
        const Device* device = device_of_gpu(gpu);
        if (!device) return nullptr;
        const std::string name(device->profile);
        return &profiles.try_emplace(name, models::Profile::load(name)).first->second;
      });
  const CheckGroup total = report.total();
  EXPECT_GT(total.rows, 0u);
  EXPECT_LE(total.median_abs_error, GetParam().median);
  EXPECT_GE(total.coverage, GetParam().coverage);
}

INSTANTIATE_TEST_SUITE_P(Shipped, PublishedRows,
                         ::testing::Values(Published{"collectives_intranode.csv", 0.01, 0.95},
                                           Published{"collectives_multinode.csv", 0.06, 0.85},
                                           Published{"gemm_dense.csv", 0.07, 0.85},
                                           Published{"grouped_gemm.csv", 0.12, 0.5},
                                           Published{"moe_ffn_h100.csv", 0.07, 0.85},
                                           Published{"moe_ffn_b200.csv", 0.08, 0.85},
                                           Published{"ep_dispatch_combine_sweeps.csv", 0.1, 0.85}),
                         [](const auto& info) {
                           std::string name = info.param.file;
                           name = name.substr(0, name.find('.'));
                           return name;
                         });

// Rows left out are forecast from the rest: rows of a smooth law come out right.
TEST(LeaveOut, ForecastsWhatItDidNotSee) {
  Measurements measured;
  Random random(4);
  for (const int n : {2, 4, 8})
    for (int power = 9; power <= 29; ++power)
      for (const CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::all_to_all}) {
        const double bytes = std::ldexp(1.0, power);
        CollectiveRow row;
        row.origin = of_a_law();
        row.op = op;
        row.gpus_per_node = n;
        row.bytes = bytes;
        row.seconds = (10e-6 + 2e-6 * n + bytes * (n - 1) / n / 300e9) * noise(random);
        row.library = "NCCL 2.29.2";
        row.datatype = "half";
        measured.collectives.push_back(row);
      }
  for (const char* what : {"sizes", "decades", "ranks", "between"}) {
    const CheckReport report = leave_out(measured, what);
    ASSERT_FALSE(report.rows.empty()) << what;
    double sum = 0;
    for (const CheckedRow& row : report.rows) sum += std::abs(row.error());
    EXPECT_LT(sum / static_cast<double>(report.rows.size()), 0.06) << what;
  }
  EXPECT_THROW(leave_out(measured, "weather"), InputError);
}

// Between domains a law belongs to its network: of two clusters of one kind the second is forecast from the
// first, and a network that is left out from what the other one reaches of its line rate.
TEST(LeaveOut, BetweenDomainsANetworkKeepsItsOwnLaw) {
  Measurements measured;
  Random random(7);
  const auto add = [&](const char* source, double rate) {
    for (const int nodes : {2, 4, 8, 16})
      for (const double bytes : {0x1p24, 0x1p26, 0x1p28, 0x1p30}) {
        CollectiveRow row;
        row.origin = {{}, "H100-SXM5-80GB", source};
        row.op = CollectiveOp::all_gather;
        row.nodes = nodes;
        row.gpus_per_node = 8;
        row.bytes = bytes;
        const double n = row.ranks();
        row.seconds = (50e-6 + 5e-6 * n + bytes * (n - 1) / n / rate) * noise(random);
        measured.collectives.push_back(row);
      }
  };
  add("together-nccl-tests", 320e9);
  add("xxrjun/nccl-tests-cluster", 320e9);
  add("aws-samples", 160e9);
  const auto mean_error = [&](const char* what) {
    const CheckReport report = leave_out(measured, what);
    EXPECT_FALSE(report.rows.empty()) << what;
    double sum = 0;
    for (const CheckedRow& row : report.rows) sum += std::abs(row.error());
    return sum / static_cast<double>(report.rows.size());
  };
  EXPECT_LT(mean_error("nodes"), 0.1);
  EXPECT_LT(mean_error("far"), 0.2);
  EXPECT_LT(mean_error("clusters"), 0.1);
  // The other network reaches another share, which cannot be known.
  EXPECT_GT(mean_error("networks"), 0.2);
}

TEST(LeaveOut, FourGpusOfOneMachineFromTwoAndEightOfAnother) {
  const auto file = std::filesystem::path(MOESIM_DATA_DIR) / "published" / "collectives_intranode.csv";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
  const CheckReport report = leave_out(read_measurements(file), "between");
  EXPECT_GE(report.rows.size(), 168u);
  double sum = 0, large = 0;
  std::size_t rows = 0;
  for (const CheckedRow& row : report.rows) {
    sum += std::abs(row.error());
    if (row.sizes.find("M-") != std::string::npos || row.sizes.ends_with("GB")) {
      large += std::abs(row.error());
      ++rows;
    }
  }
  EXPECT_LT(sum / static_cast<double>(report.rows.size()), 0.06);
  EXPECT_LT(large / static_cast<double>(rows), 0.05);
}

// A row that nothing else is like moves no forecast of its own: it is forecast from the rows around it.
TEST(LeaveOut, WhatIsHeldOutIsNotSeen) {
  Measurements measured;
  measured.collectives = rows_of_law(CollectiveOp::all_gather, {2, 8}, [](int n, double bytes) {
    return (10e-6 + 2e-6 * n + bytes * (n - 1) / n / 300e9) * (bytes == 1 << 20 ? 5 : 1);
  });
  std::size_t strange = 0;
  for (const CheckedRow& row : leave_out(measured, "sizes").rows)
    if (row.bytes == 1 << 20) {
      EXPECT_NEAR(row.error(), 1 / 5.0 - 1, 0.06);
      ++strange;
    }
  EXPECT_EQ(strange, 2u);
}

TEST(LeaveOut, OneValueLeavesNothingToFitFrom) {
  Measurements measured;
  measured.collectives =
      rows_of_law(CollectiveOp::all_gather, {8}, [](int, double bytes) { return 10e-6 + bytes / 300e9; });
  EXPECT_THROW(leave_out(measured, "ranks"), InputError);
  EXPECT_THROW(leave_out(measured, "ep"), InputError);
  EXPECT_FALSE(leave_out(measured, "sizes").rows.empty());
}

Measurements published(const std::vector<const char*>& files) {
  Measurements all;
  for (const char* file : files)
    all.append(read_measurements(std::filesystem::path(MOESIM_DATA_DIR) / "published" / file));
  return all;
}

// Twelve rows of one's own, on published tables (docs/calibration.md, "One log makes it mine").
class OwnRows : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(std::filesystem::path(MOESIM_DATA_DIR) / "published"))
      GTEST_SKIP() << "no tables under " << MOESIM_DATA_DIR;
  }
};

TEST_F(OwnRows, TwelveRowsOfAnOperationAndOfAMachine) {
  const Measurements all = published({"collectives_intranode.csv", "collectives_multinode.csv",
                                      "collectives_multinode_2.csv", "ep_dispatch_combine_sweeps.csv",
                                      "ep_dispatch_combine_tables.csv", "ep_dispatch_combine_tables_2.csv"});
  for (const bool by_law : {true, false}) {
    double log_ratio = 0, coverage = 0, worst = 0;  // worst: points of error that were added
    int cases = 0, halved = 0, far = 0, far_halved = 0;
    for (const OwnRowsCase& one : own_rows_cases(all, by_law)) {
      const double before = one.before.total().mean_abs_error, after = one.after.total().mean_abs_error;
      EXPECT_EQ(one.before.rows.size(), one.after.rows.size()) << one.machine;
      ++cases;
      log_ratio += std::log(after / before);
      coverage += one.after.total().coverage;
      halved += after <= 0.5 * before;
      far += before > 0.2;
      far_halved += before > 0.2 && after <= 0.5 * before;
      worst = std::max(worst, after - before);
    }
    EXPECT_GE(cases, by_law ? 40 : 20);
    // The geometric mean of the errors falls to this share.
    EXPECT_LT(std::exp(log_ratio / cases), by_law ? 0.36 : 0.40);
    EXPECT_GE(halved, by_law ? 25 : 0);
    EXPECT_GE(far_halved, far - (by_law ? 3 : 2));
    EXPECT_GT(coverage / cases, by_law ? 0.85 : 0.82);
    EXPECT_LT(worst, 0.01);
  }
}

// Clusters of the tables of collectives between nodes: a dozen rows choose the network and move its laws.
TEST_F(OwnRows, TwelveOfAClusterFindItsNetwork) {
  const Measurements all =
      published({"collectives_multinode.csv", "collectives_multinode_2.csv", "collectives_multinode_3.csv"});
  int clusters = 0, near = 0, worse = 0;
  double covered = 0, rows = 0;
  for (const OwnRowsCase& one : own_rows_cases(all, false, true)) {
    if (one.nearest.empty()) continue;
    const CheckGroup before = one.before.total(), after = one.after.total();
    ++clusters;
    near += after.mean_abs_error <= 0.10;
    worse += after.mean_abs_error > before.mean_abs_error + 0.01;
    EXPECT_GT(after.coverage, 0.75) << one.machine;
    covered += after.coverage * static_cast<double>(after.rows);
    rows += static_cast<double>(after.rows);
  }
  // The goal is 8 of 10 within 10 % (docs/calibration.md says what is missed and why; the sixth is at 10.1 %).
  EXPECT_GE(clusters, 9);
  EXPECT_GE(near, 5);
  EXPECT_EQ(worse, 0);
  EXPECT_GT(covered / rows, 0.88);
  EXPECT_LT(covered / rows, 0.97);
}

}  // namespace
}  // namespace moesim::calibration
