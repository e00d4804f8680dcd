#include "calibration/fit/fit_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/costs/size_curve.h"
#include "tests/calibration/made_rows.h"

namespace moesim::calibration {
namespace {

using sim::CollectiveOp;
using ::testing::Contains;
using ::testing::HasSubstr;

const Device& h100() { return *find_device("h100-sxm"); }

double seconds_of_law(const models::Profile& profile, const std::string& key) {
  return models::SizeCurve::from(profile.at(key), key).seconds(8, 1 << 28);
}

std::vector<CollectiveRow> sweep(const std::string& library, double bandwidth) {
  auto rows = rows_of_law(CollectiveOp::all_gather, {2, 8}, [=](int n, double bytes) {
    return 10e-6 + 1e-6 * n + bytes * (n - 1) / n / bandwidth;
  });
  for (CollectiveRow& row : rows) row.library = library;
  return rows;
}

void add(Measurements& rows, const std::vector<CollectiveRow>& more) {
  rows.collectives.insert(rows.collectives.end(), more.begin(), more.end());
}

TEST(FitProfile, WithoutRowsThereAreLimitsAndGapsOnly) {
  const models::Profile profile =
      fit_profile(h100(), {}, {.leave_out_shapes = true, .provenance = "nobody", .progress = {}});
  EXPECT_EQ(profile.name(), "h100-sxm");
  EXPECT_EQ(profile.provenance(), "nobody");
  EXPECT_TRUE(profile.sets().empty());
  EXPECT_EQ(profile.device().hbm_bandwidth, h100().limits.hbm_bandwidth);
  EXPECT_THAT(profile.gaps(), Contains(HasSubstr("memory-bound kernels")));
}

// 2.9 comes before 2.18; the old release's law stays beside the default under its name.
TEST(FitProfile, TheNewestLibraryIsTheDefault) {
  Measurements rows;
  rows.collectives = sweep("NCCL 2.9.1", 200e9);
  add(rows, sweep("NCCL 2.18.3", 400e9));
  const models::Profile profile = fit_profile(h100(), rows);
  const std::string key = "collective/all_gather/scaleup";
  EXPECT_NEAR(seconds_of_law(profile, key), 18e-6 + 0.875 * (1 << 28) / 400e9, 1e-5);
  EXPECT_NEAR(seconds_of_law(profile, key + "@NCCL 2.9.1"), 18e-6 + 0.875 * (1 << 28) / 200e9, 1e-5);
  EXPECT_EQ(profile.find(key + "@NCCL 2.18.3"), nullptr);
  // A newer one that was measured at three sizes only is no default.
  std::vector<CollectiveRow> few = sweep("NCCL 2.30.0", 300e9);
  std::erase_if(few, [](const CollectiveRow& row) { return row.bytes > 2048; });
  add(rows, few);
  EXPECT_NEAR(seconds_of_law(fit_profile(h100(), rows), key), 18e-6 + 0.875 * (1 << 28) / 400e9, 1e-5);
}

TEST(FitProfile, SinglePointsAndOtherGpusMakeNoLaw) {
  Measurements rows;
  rows.collectives = sweep("NCCL 2.29.2", 300e9);
  std::erase_if(rows.collectives, [](const CollectiveRow& row) { return row.bytes > 1024; });
  EXPECT_TRUE(fit_profile(h100(), rows).sets().empty());  // two sizes are no sweep
  rows.collectives = sweep("NCCL 2.29.2", 300e9);
  EXPECT_TRUE(fit_profile(*find_device("a100-sxm"), rows).sets().empty());
  EXPECT_EQ(fit_profile(h100(), rows).sets().size(), 1u);
}

TEST(FitProfile, SaysWhatItFitsAndFromWhom) {
  Measurements rows;
  rows.collectives = sweep("NCCL 2.29.2", 300e9);
  for (std::size_t i = 0; i < rows.collectives.size(); ++i)
    rows.collectives[i].origin.source = "source " + std::to_string(i % 5);
  rows.kernels.push_back({of_a_law(), "copy", 1e6, 5e-6, 1});
  rows.kernels.push_back({of_a_law(), "copy", 1e8, 1e-4, 1});
  std::vector<std::string> told;
  const models::Profile profile = fit_profile(
      h100(), rows, {.leave_out_shapes = true, .provenance = "", .progress = [&](const std::string& what) {
                       told.push_back(what);
                     }});
  EXPECT_THAT(told,
              ::testing::ElementsAre("h100-sxm: collective/all_gather/scaleup", "h100-sxm: kernel/copy"));
  EXPECT_EQ(profile.at("collective/all_gather/scaleup").source, "source 0; source 1; source 2; 2 more");
  EXPECT_THAT(profile.gaps(), ::testing::Not(Contains(HasSubstr("memory-bound kernels"))));
}

}  // namespace
}  // namespace moesim::calibration
