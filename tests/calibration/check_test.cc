#include "calibration/check/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "calibration/fit/fit_profile.h"
#include "calibration/rows/devices.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {
namespace {

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

}  // namespace
}  // namespace moesim::calibration
