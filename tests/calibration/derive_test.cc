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
using Links = models::GpuFamily::Links;
using models::SizeCurve;

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

constexpr double kPcie4 = 31.5e9, kPcie5 = 63e9;

SizeCurve curve(const std::string& op, double link, Links links = Links::kPcie) {
  const std::string key = "collective/" + op + "/scaleup";
  return SizeCurve::from(pcie_law(key, link, links), key);
}

// GB/s of nccl-tests' bus bandwidth.
double bus(const SizeCurve& law, double factor, int ranks, double bytes) {
  return factor * (ranks - 1) / ranks * bytes / law.seconds(ranks, bytes) / 1e9;
}

TEST(PcieLaw, ReachesWhatBoxesWithPcie4AndPcie5Publish) {
  // Eight RTX 4090, A100 PCIe and the like on PCIe 4: 10 to 24 GB/s; RTX 5090 and RTX PRO 6000 on PCIe
  // 5: 21.6 to 46.4.
  const double pcie4 = bus(curve("all_reduce", kPcie4), 2, 8, 1e9),
               pcie5 = bus(curve("all_reduce", kPcie5), 2, 8, 1e9);
  EXPECT_GT(pcie4, 10);
  EXPECT_LT(pcie4, 24);
  EXPECT_GT(pcie5, 21.6);
  EXPECT_LT(pcie5, 46.4);
  // The smallest message of eight takes 17 to 48 us.
  EXPECT_GT(curve("all_reduce", kPcie5).seconds(8, 8), 17e-6);
  EXPECT_LT(curve("all_reduce", kPcie5).seconds(8, 8), 48e-6);
}

TEST(PcieLaw, MoreGpusShareTheHostAndExchangesMost) {
  const auto rings = curve("all_gather", kPcie5), exchanges = curve("all_to_all", kPcie5);
  EXPECT_GT(bus(rings, 1, 2, 1e9), bus(rings, 1, 4, 1e9));
  EXPECT_GT(bus(rings, 1, 4, 1e9), bus(rings, 1, 8, 1e9));
  EXPECT_GT(bus(rings, 1, 8, 1e9), 1.3 * bus(exchanges, 1, 8, 1e9));
  EXPECT_NEAR(bus(rings, 1, 2, 1e9), bus(exchanges, 1, 2, 1e9), 0.1);
  // Half the link, half the rate; copies through the host's memory are slower than those between peers.
  EXPECT_NEAR(bus(curve("all_to_all", kPcie4), 1, 8, 1e9), bus(exchanges, 1, 8, 1e9) / 2, 0.1);
  EXPECT_GT(bus(exchanges, 1, 8, 1e9),
            1.1 * bus(curve("all_to_all", kPcie5, Links::kPcieThroughMemory), 1, 8, 1e9));
  // A message to a peer takes its own bytes, as the exchange of two takes half of its buffer.
  EXPECT_NEAR(curve("send_recv", kPcie5).seconds(2, 1e8), exchanges.seconds(2, 2e8), 1e-4);
}

TEST(PcieLaw, IsWhatCardsTakeInsideANodeAndSaysSo) {
  for (const char* name : {"l40s", "rtx-5090", "h100-nvl"}) {
    const Device& device = *find_device(name);
    models::Profile profile = fit_profile(device, {});
    derive_missing(profile, models::Profile::load(std::string(device.relative)));
    const std::string key = "collective/all_to_all/scaleup";
    const models::ParameterSet& law = profile.at(key);
    EXPECT_TRUE(law.derived);
    EXPECT_EQ(law.rows, 0);
    EXPECT_GT(law.residual, 0.2) << "boxes differ";
    EXPECT_NE(law.source.find("PCIe"), std::string::npos);
    EXPECT_NE(profile.gaps().back().find("derived from"), std::string::npos);
    bool told = false;
    for (const std::string& gap : profile.gaps())
      told = told || (gap.find("PCIe") != std::string::npos && gap.find(key) != std::string::npos);
    EXPECT_TRUE(told) << name;
    EXPECT_EQ(profile.at("gemm/bf16").get("peak_share", 2), std::min(1.0, profile.at("gemm/bf16").values[0]));
  }
}

// Six all-reduces of one's own box set the share of the host and the latency right, faster ones, too.
TEST(PcieLaw, IsSetRightByFewRows) {
  const Device& l40s = *find_device("l40s");
  const std::string key = "collective/all_reduce/scaleup";
  const auto law = curve("all_reduce", kPcie4);
  Measurements rows;
  for (const double bytes : {1e8, 5e8}) {
    CollectiveRow row;
    row.op = sim::CollectiveOp::all_reduce;
    row.gpus_per_node = 8;
    row.bytes = bytes;
    row.seconds = law.seconds(8, bytes) / 1.4;
    row.origin.gpu = "NVIDIA L40S";
    rows.collectives.push_back(row);
  }
  models::Profile profile = fit_profile(l40s, rows);
  derive_missing(profile, models::Profile::load(std::string("h100-sxm")), rows);
  EXPECT_FALSE(profile.at(key).derived);
  EXPECT_NEAR(SizeCurve::from(profile.at(key), key).seconds(8, 2e8) / (law.seconds(8, 2e8) / 1.4), 1, 0.05);
  const std::string gather = "collective/all_gather/scaleup";
  EXPECT_TRUE(profile.at(gather).derived);
  EXPECT_LT(SizeCurve::from(profile.at(gather), gather).seconds(8, 1e9),
            curve("all_gather", kPcie4).seconds(8, 1e9) / 1.3);
}

}  // namespace
}  // namespace moesim::calibration
