#include "calibration/fit/fit_kernels.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
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

}  // namespace
}  // namespace moesim::calibration
