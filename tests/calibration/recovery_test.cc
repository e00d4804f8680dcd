// Rows made from a law's own formula, with noise: every fit finds the law again, and says how well.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/input_error.h"
#include "base/random.h"
#include "calibration/fit/call_overhead.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/fit/fit_ffn.h"
#include "calibration/fit/fit_kernels.h"
#include "calibration/fit/leave_out.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/ffn_rows.h"
#include "models/costs/collectives.h"
#include "models/costs/ep_kernel.h"
#include "models/costs/expert_ffn.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {
namespace {

using models::Profile;
using sim::CollectiveOp;

double noise(Random& random) { return std::exp(0.01 * random.normal()); }

Origin origin() { return {{}, "H100-SXM5-80GB", "a law"}; }

TEST(FitKernel, FindsFloorAndShare) {
  const Profile profile = Profile::load("h100-sxm");
  const double bandwidth = profile.device().hbm_bandwidth * profile.device().hbm_efficiency;
  Random random(1);
  std::vector<Measurements::KernelRow> rows;
  for (double bytes = 1e4; bytes < 1e9; bytes *= 2)
    for (const int launches : {1, 3})
      rows.push_back({origin(), "permute", bytes,
                      (launches * 5e-6 + bytes / (0.6 * bandwidth)) * noise(random), launches});
  const models::ParameterSet set = fit_kernel(profile, rows);
  EXPECT_NEAR(set.get("floor", 0), 5e-6, 0.05e-6);
  EXPECT_NEAR(set.get("share", 0), 0.6, 0.006);
  EXPECT_NEAR(set.residual, 0.01, 0.005);
  EXPECT_EQ(set.rows, static_cast<int>(rows.size()));
  EXPECT_EQ(set.range("bytes")->low, 1e4);
}

std::vector<FfnRow> ffn_rows(const Profile& profile, const std::string& key) {
  const models::ExpertFfnModel truth(profile, key, models::DType::kBf16);
  Random random(2);
  std::vector<FfnRow> rows;
  for (const auto& [hidden, inter, experts] : {std::tuple{4096, 14336, 8}, {2048, 768, 64}})
    for (const char* routing : {"balanced", "power_law_1.2"})
      for (const std::int64_t tokens : {16, 64, 256, 1024, 4096, 16384}) {
        FfnRow row{origin(), "a law", "", "bf16", routing, tokens, hidden, inter, 2, experts, 1, 1, 0};
        const auto draws = expert_rows(row);
        const models::FfnShape shape = ffn_shape(row, draws);
        for (const auto& draw : draws) row.seconds += truth.seconds(shape, draw);
        row.seconds *= noise(random) / static_cast<double>(draws.size());
        rows.push_back(row);
      }
  return rows;
}

TEST(FitFfn, ForecastsTheRowsOfALaw) {
  Profile profile = Profile::load("h100-sxm");
  const std::string key = "ffn/bf16@moe_torch_flow_cutlass";
  ASSERT_NE(profile.find(key), nullptr);
  const std::vector<FfnRow> rows = ffn_rows(profile, key);
  const models::ParameterSet set = fit_ffn(profile, rows, key, true);
  EXPECT_LT(set.residual, 0.03);
  EXPECT_GT(set.systematic, 0);  // shapes were left out
  EXPECT_EQ(set.range("tokens")->low, 16);
  EXPECT_EQ(set.range("tokens")->high, 16384);
  profile.set(key, set);
  for (const double error : ffn_residuals(profile, rows, key)) EXPECT_LT(std::abs(error), 0.1);
  EXPECT_TRUE(ffn_residuals(profile, {}, key).empty());
}

TEST(FitDispatch, FindsTheSharesOfTheLinks) {
  Profile profile = Profile::load("h100-sxm");
  const std::string key = "ep/deepep_dispatch@bf16";
  models::ParameterSet truth;
  truth.law = "ep-kernel";
  truth.names = {"latency", "latency_per_octave", "per_token", "scaleup_share", "network_share"};
  truth.values = {3e-5, 4e-6, 2e-9, 0.7, 0.85};
  Profile made = profile;
  made.set(key, truth);
  const models::EpKernelModel model(made, key, profile.device().nic_bandwidth);
  Random random(3);
  std::vector<DispatchRow> rows;
  for (const int ep : {8, 16, 32, 64})
    for (const double tokens : {128.0, 512.0, 2048.0, 8192.0})
      for (const int hidden : {4096, 7168}) {
        DispatchRow row{origin(), "deepep_dispatch", "bf16", ""};
        row.ep = ep;
        row.nodes = ep / 8;
        row.tokens = tokens;
        row.hidden = hidden;
        row.topk = 8;
        row.seconds = model.seconds(*call_of(row)) * noise(random);
        rows.push_back(row);
      }
  ASSERT_EQ(law_key(rows.front()), key);
  const models::ParameterSet set = fit_dispatch(profile, rows, key);
  EXPECT_NEAR(set.get("latency", 0), 3e-5, 0.3e-5);
  EXPECT_NEAR(set.get("scaleup_share", 0), 0.7, 0.05);
  EXPECT_NEAR(set.get("network_share", 0), 0.85, 0.05);
  EXPECT_NEAR(set.residual, 0.01, 0.006);
  EXPECT_EQ(set.range("ranks")->high, 64);
}

TEST(FitDispatch, ABandwidthStandsForATime) {
  DispatchRow row{origin(), "deepep_dispatch", "fp8", ""};
  row.ep = 8;
  row.tokens = 4096;
  row.hidden = 7168;
  row.topk = 8;
  EXPECT_EQ(seconds_of(row), 0);  // neither
  row.bandwidth = 150e9;
  const double token = 7168 + 7168 / 128.0 * 4;  // bytes, with a scale for every 128 elements
  EXPECT_NEAR(seconds_of(row), 4096 * models::distinct_places(8, 8) * token / 150e9, 1e-9);
  row.ep = 1;
  EXPECT_FALSE(call_of(row));
}

TEST(CallOverheads, AreWhatALaunchAddsToTheTransfer) {
  Profile profile = Profile::load("h100-sxm");
  const models::CollectiveModel model(cluster_of(profile, nullptr, 1, 8));
  Measurements measured;
  const auto add = [&](double bytes, double overhead) {
    CollectiveRow row;
    row.origin = origin();
    row.op = CollectiveOp::all_gather;
    row.gpus_per_node = 8;
    row.bytes = bytes;
    row.seconds = model.seconds(row.op, models::GroupShape::uniform(1, 8), bytes / 8) + overhead;
    measured.exposed_calls.push_back(row);
  };
  for (const double us : {80, 100, 140}) add(1 << 20, us * 1e-6);
  add(1 << 30, 1e-6);  // mostly transfer: does not count
  fit_call_overheads(profile, measured);
  const models::Constant* constant = profile.find_constant("exposed_call/all_gather");
  ASSERT_NE(constant, nullptr);
  EXPECT_NEAR(constant->value, 100, 0.1);
  EXPECT_NEAR(constant->sigma, std::sqrt((400 + 0 + 1600) / 3.0), 0.1);
  EXPECT_EQ(constant->unit, "us");
}

// What is left out is forecast from the rest: rows of a smooth law come out right.
TEST(LeaveOut, ForecastsWhatItDidNotSee) {
  Measurements measured;
  Random random(4);
  for (const int n : {2, 4, 8})
    for (double bytes = 512; bytes <= 1 << 29; bytes *= 2)
      for (const CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::all_to_all}) {
        CollectiveRow row;
        row.origin = origin();
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

}  // namespace
}  // namespace moesim::calibration
