#include "calibration/fit/fit_dispatch.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "models/costs/ep_kernel.h"
#include "models/hardware/profile.h"
#include "tests/calibration/made_rows.h"

namespace moesim::calibration {
namespace {

using models::Profile;

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
