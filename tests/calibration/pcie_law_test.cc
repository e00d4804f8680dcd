#include "calibration/fit/pcie_law.h"

#include <gtest/gtest.h>

#include <string>

#include "calibration/fit/derive.h"
#include "calibration/fit/fit_profile.h"
#include "calibration/rows/devices.h"
#include "models/costs/size_curve.h"

namespace moesim::calibration {
namespace {

using Links = models::GpuFamily::Links;
using models::SizeCurve;

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
