// Fits of kernels and of dispatch kernels find the law that made the rows.
#include "calibration/fit/fit_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/ep_kernel.h"
#include "models/costs/expert_ffn.h"
#include "models/costs/gemm.h"
#include "models/hardware/profile.h"
#include "tests/calibration/made_rows.h"

namespace moesim::calibration {
namespace {

using models::Profile;

TEST(FitKernels, FindsFloorAndShare) {
  const Profile profile = Profile::load("h100-sxm");
  const double bandwidth = profile.device().hbm_bandwidth * profile.device().hbm_efficiency;
  Random random(1);
  std::vector<Measurements::KernelRow> rows;
  for (double bytes = 1e4; bytes < 1e9; bytes *= 2)
    for (const int launches : {1, 3})
      rows.push_back({of_a_law(), "permute", bytes,
                      (launches * 5e-6 + bytes / (0.6 * bandwidth)) * noise(random), launches});
  const models::ParameterSet set = fit_kernel(profile, rows);
  EXPECT_NEAR(set.get("floor", 0), 5e-6, 0.05e-6);
  EXPECT_NEAR(set.get("share", 0), 0.6, 0.006);
  EXPECT_NEAR(set.residual, 0.01, 0.005);
  EXPECT_EQ(set.rows, static_cast<int>(rows.size()));
  EXPECT_EQ(set.range("bytes")->low, 1e4);
}

TEST(FitGemm, RecoversItsOwnLaw) {
  models::Profile profile;
  profile.device() = find_device("h100-sxm")->limits;
  models::ParameterSet truth;
  truth.law = "tiles";
  truth.names = {"peak_share", "floor", "memory_share"};
  truth.values = {0.7, 4e-6, 0.8};
  models::Profile made = profile;
  made.set("gemm/bf16", truth);
  const models::GemmModel model(made, models::Clocks::kBurst);
  std::vector<GemmRow> rows;
  for (const double m : {1., 16., 100., 500., 2000., 9000.})
    for (const auto& [n, k] :
         std::vector<std::pair<double, double>>{{1024, 4096}, {4096, 4096}, {8192, 2048}, {16384, 8192}}) {
      GemmRow row;
      row.origin.gpu = "H100-SXM5-80GB";
      row.origin.source = "a law";
      row.dtype = "bf16";
      row.m = m;
      row.n = n;
      row.k = k;
      row.seconds = model.seconds(
          {static_cast<std::int64_t>(m), static_cast<std::int64_t>(n), static_cast<std::int64_t>(k)},
          models::DType::kBf16);
      rows.push_back(row);
    }
  profile.set("gemm/bf16", fit_dense_gemm(profile, rows, false));
  for (const double r : gemm_residuals(profile, rows)) EXPECT_NEAR(r, 0, 0.06);
  EXPECT_NEAR(profile.at("gemm/bf16").get("peak_share", 0), 0.7, 0.05);
}

std::vector<FfnRow> ffn_rows(const Profile& profile, const std::string& key) {
  const models::ExpertFfnModel truth(profile, key, models::DType::kBf16);
  Random random(2);
  std::vector<FfnRow> rows;
  for (const auto& [hidden, inter, experts] : {std::tuple{4096, 14336, 8}, {2048, 768, 64}})
    for (const char* routing : {"balanced", "power_law_1.2"})
      for (const std::int64_t tokens : {16, 64, 256, 1024, 4096, 16384}) {
        FfnRow row{of_a_law(), "a law", "", "bf16", routing, tokens, hidden, inter, 2, experts, 1, 1, 0};
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
        DispatchRow row{of_a_law(), "deepep_dispatch", "bf16", ""};
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
  DispatchRow row{of_a_law(), "deepep_dispatch", "fp8", ""};
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
  row.ep = 8;
  row.kernel = "deepep_dispatch+combine";  // no law is of both
  EXPECT_FALSE(call_of(row));
}

TEST(FitDispatch, WhatADataSetDoubtsIsSuspect) {
  DispatchRow row;
  for (const char* note :
       {"suspect: unit", "median; SUSPICIOUS: does not fit", "STALE (older kernels)", "reported as too low",
        "four NICs: broken mapping, do not fit", "an untuned or badly configured fabric",
        "NCCL 2.22.3 at defaults (lazy connections)"}) {
    row.note = note;
    EXPECT_TRUE(suspect(row)) << note;
  }
  row.note = "median; EFA, own run";
  EXPECT_FALSE(suspect(row));
}

}  // namespace
}  // namespace moesim::calibration
