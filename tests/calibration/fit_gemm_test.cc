#include "calibration/fit/fit_gemm.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "calibration/rows/devices.h"
#include "models/costs/gemm.h"

namespace moesim::calibration {
namespace {

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

}  // namespace
}  // namespace moesim::calibration
