#include "calibration/fit/derive.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "calibration/fit/fit_profile.h"
#include "calibration/rows/devices.h"
#include "models/costs/size_curve.h"

namespace moesim::calibration {
namespace {

using sim::CollectiveOp;

TEST(DerivedProfiles, SlowerLinksStretchOnlyTheBandwidthPart) {
  const models::Profile h100 = models::Profile::load("h100-sxm");
  models::Profile half;
  half.describe("half", "Half", "test", {});
  half.device() = h100.device();
  half.device().scaleup_bandwidth /= 2;
  derive_missing(half, h100);
  const std::string key = "collective/all_gather/scaleup";
  ASSERT_TRUE(half.at(key).derived);
  const auto slow = models::SizeCurve::from(half.at(key), key),
             fast = models::SizeCurve::from(h100.at(key), key);
  EXPECT_DOUBLE_EQ(slow.floor(8), fast.floor(8));
  // The links bind, the copying of the same chip does not get slower: between the link's own time and twice
  // the time.
  EXPECT_LT(slow.seconds(8, 1e10) / fast.seconds(8, 1e10), 2);
  EXPECT_GT(slow.seconds(8, 1e10), 1e10 * 7 / 8 / (0.85 * half.device().scaleup_bandwidth));
  // Another chip copies at another rate, too.
  half.device().sms /= 2;
  const auto other =
      models::SizeCurve::from(on_other_links(h100.at(key), h100.device(), half.device(), 1, 0.84), key);
  EXPECT_NEAR(other.seconds(8, 1e10) / fast.seconds(8, 1e10), 2, 0.05);
  EXPECT_NEAR(slow.seconds(8, 4096) / fast.seconds(8, 4096), 1, 0.05);
}

TEST(DerivedProfiles, AreSetRightByFewRows) {
  // H800: an H100 with slower links; five exchanges of one recording, made by a law with a link rate and a
  // time of small messages that differ from the derivation's.
  const models::Profile h100 = models::Profile::load("h100-sxm");
  const Device& h800 = *find_device("h800-sxm");
  const std::string key = "collective/all_to_all/scaleup";
  models::ParameterSet truth =
      on_other_links(h100.at(key), h100.device(), h800.limits, /*wire_factor=*/1, /*share=*/0.7);
  for (std::size_t i = 0; i < truth.names.size(); ++i)
    if (truth.names[i].starts_with("latency")) truth.values[i] *= 2;
  const auto law = models::SizeCurve::from(truth, key);
  Measurements rows;
  for (const auto& [ranks, bytes] : {std::pair(2, 24e6), {4, 30e6}, {4, 32e6}, {8, 45e6}, {8, 54e6}}) {
    CollectiveRow row;
    row.op = CollectiveOp::all_to_all;
    row.gpus_per_node = ranks;
    row.bytes = bytes;
    row.seconds = law.seconds(ranks, bytes);
    row.origin.gpu = h800.gpu;
    rows.collectives.push_back(row);
  }
  const auto of = [&](const Measurements& measured) {
    models::Profile profile = fit_profile(h800, measured);
    derive_missing(profile, h100, measured);
    return profile;
  };
  const models::Profile fitted = of(rows), blind = of({});
  EXPECT_FALSE(fitted.at(key).derived);
  EXPECT_TRUE(blind.at(key).derived);
  const auto curve = models::SizeCurve::from(fitted.at(key), key);
  for (const int ranks : {2, 3, 6, 8})
    for (const double bytes : {20e6, 100e6, 500e6})
      EXPECT_NEAR(curve.seconds(ranks, bytes) / law.seconds(ranks, bytes), 1, 0.05) << ranks << " " << bytes;
  // The rate of the links serves operations without rows of their own.
  const std::string gather = "collective/all_gather/scaleup";
  EXPECT_TRUE(fitted.at(gather).derived);
  EXPECT_GT(models::SizeCurve::from(fitted.at(gather), gather).seconds(8, 1e9),
            1.1 * models::SizeCurve::from(blind.at(gather), gather).seconds(8, 1e9));
}

TEST(DerivedProfiles, EqualLinksChangeNothing) {
  const models::Profile h100 = models::Profile::load("h100-sxm");
  const std::string key = "collective/all_reduce/scaleup";
  const auto same = on_other_links(h100.at(key), h100.device(), h100.device(), 2, 0.84);
  const auto before = models::SizeCurve::from(h100.at(key), key), after = models::SizeCurve::from(same, key);
  for (double bytes = 512; bytes < 1e10; bytes *= 3)
    EXPECT_NEAR(after.seconds(8, bytes) / before.seconds(8, bytes), 1, 0.02) << bytes;
}

TEST(DerivedProfiles, KeepWhatWasMeasuredAndSayWhatWasNot) {
  const models::Profile h100 = models::Profile::load("h100-sxm");
  const Device& h200 = *find_device("h200-sxm");
  models::Profile profile = fit_profile(h200, {});
  models::ParameterSet own;
  own.law = "tiles";
  own.names = {"peak_share"};
  own.values = {0.5};
  profile.set("gemm/bf16", own);
  const std::size_t gaps = profile.gaps().size();
  derive_missing(profile, h100);
  EXPECT_EQ(profile.at("gemm/bf16").get("peak_share", 0), 0.5);
  EXPECT_FALSE(profile.at("gemm/bf16").derived);
  const std::string key = "collective/all_gather/scaleup";
  EXPECT_TRUE(profile.at(key).derived);
  EXPECT_EQ(profile.at(key).rows, 0);
  EXPECT_GT(profile.at(key).residual, h100.at(key).residual);
  ASSERT_EQ(profile.gaps().size(), gaps + 1);
  EXPECT_NE(profile.gaps().back().find(key), std::string::npos);
  EXPECT_EQ(profile.gaps().back().find(" gemm/bf16"), std::string::npos);
}

// MI300X's best dense product reaches 668.4 of 1307 TFLOP/s, H100's 794.5 of 989.
TEST(DerivedProfiles, ProductsReachWhatTheBestOneDid) {
  const models::Profile h100 = models::Profile::load("h100-sxm");
  const Device& mi300x = *find_device("mi300x");
  models::Profile profile = fit_profile(mi300x, {});
  derive_missing(profile, h100, {});
  const double ratio = 668.4 / 1307 / (794.5 / 989);
  const auto share = [](const models::Profile& p, const char* key) { return p.at(key).get("peak_share", 0); };
  EXPECT_NEAR(share(profile, "gemm/bf16") / share(h100, "gemm/bf16"), ratio, 1e-9);
  EXPECT_NEAR(share(profile, "grouped_gemm/bf16") / share(h100, "grouped_gemm/bf16"),
              ratio * mi300x.grouped_share, 1e-9);
  EXPECT_LT(mi300x.grouped_share, 1);
}

}  // namespace
}  // namespace moesim::calibration
