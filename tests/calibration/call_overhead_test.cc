#include "calibration/fit/call_overhead.h"

#include <gtest/gtest.h>

#include <cmath>

#include "calibration/rows/devices.h"
#include "models/costs/collectives.h"
#include "models/hardware/profile.h"
#include "tests/calibration/made_rows.h"

namespace moesim::calibration {
namespace {

using models::Profile;
using sim::CollectiveOp;

TEST(CallOverheads, AreWhatALaunchAddsToTheTransfer) {
  Profile profile = Profile::load("h100-sxm");
  const models::CollectiveModel model(cluster_of(profile, nullptr, 1, 8));
  Measurements measured;
  const auto add = [&](double bytes, double overhead) {
    CollectiveRow row;
    row.origin = of_a_law();
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

}  // namespace
}  // namespace moesim::calibration
