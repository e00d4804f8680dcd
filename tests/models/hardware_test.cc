// GPUs and hosts: their families, types of numbers, prices, and estimates with a range.
#include "models/hardware/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/random.h"
#include "models/costs/collectives.h"
#include "models/hardware/cluster.h"
#include "models/hardware/dtype.h"
#include "models/hardware/estimate.h"
#include "models/hardware/gpu_family.h"
#include "models/hardware/ownership.h"
#include "models/hardware/profile.h"
#include "models/hardware/rental_list.h"
#include "models/workload/fields.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;

Cluster cluster() {
  Cluster c = Cluster::load(std::string("dgx-h100x4"));
  c.nic.latency = 2e-6;
  c.nic.per_connection_cap = 20e9;
  c.nic.gpu_bandwidth = {1e9, 2e9, 3e9, 4e9, 5e9, 6e9, 7e9, 8e9};
  c.nvlink.latency = 5e-7;
  return c;
}

TEST(HardwareNumbers, AreFoundByPathAndScaleWhatTheyShow) {
  std::set<std::string_view> paths;
  for (const HardwareNumber& number : hardware_numbers()) {
    EXPECT_TRUE(paths.insert(number.path).second) << number.path;
    EXPECT_EQ(find_hardware_number(number.path), &number);
    Cluster c = cluster();
    const double before = number.value(c);
    EXPECT_GT(before, 0) << number.path;
    number.scale(c, 1.5);
    EXPECT_DOUBLE_EQ(number.value(c), 1.5 * before) << number.path;
  }
  EXPECT_EQ(find_hardware_number("gpu"), nullptr);
}

// Each can be changed alone: no other number moves, nor a law that is not its own.
TEST(HardwareNumbers, LeaveEachOtherAlone) {
  for (const HardwareNumber& changed : hardware_numbers()) {
    Cluster c = cluster();
    changed.scale(c, 2);
    const Cluster before = cluster();
    for (const HardwareNumber& other : hardware_numbers()) {
      if (&other == &changed) continue;
      EXPECT_EQ(other.value(c), other.value(before)) << changed.path << " " << other.path;
    }
    for (const auto& [key, set] : c.profile.sets()) {
      const bool latencies = changed.path == "nic.latency_factor" ? key.find("/network") != std::string::npos
                             : changed.path == "nvlink.latency_factor"
                                 ? key.find("/scaleup") != std::string::npos
                                 : false;
      if (latencies) continue;
      EXPECT_EQ(set.values, before.profile.at(key).values) << changed.path << " " << key;
    }
  }
}

TEST(HardwareNumbers, APortTakesItsConnectionsAndGpusAlong) {
  Cluster c = cluster();
  find_hardware_number("nic.bandwidth")->scale(c, 2);
  EXPECT_EQ(c.nic.per_connection_cap, 40e9);
  EXPECT_EQ(c.nic.gpu_bandwidth[7], 16e9);
  EXPECT_EQ(c.nic.latency, 2e-6);
}

TEST(HardwareNumbers, LatencyFactorsScaleLatenciesOnly) {
  Cluster c = cluster();
  find_hardware_number("nic.latency_factor")->scale(c, 3);
  EXPECT_DOUBLE_EQ(c.nic.latency, 6e-6);
  EXPECT_EQ(c.nvlink.latency, 5e-7);
  const Cluster untouched = cluster();
  const ParameterSet &before = untouched.profile.at("collective/all_gather/network"),
                     &after = c.profile.at("collective/all_gather/network");
  int latencies = 0;
  for (std::size_t i = 0; i < after.names.size(); ++i) {
    const bool latency = after.names[i].starts_with("latency");
    latencies += latency;
    EXPECT_DOUBLE_EQ(after.values[i], (latency ? 3 : 1) * before.values[i]) << after.names[i];
  }
  EXPECT_GT(latencies, 0);
}

TEST(GpuFamily, EveryBuiltInProfileHasOneAndOnlyBuiltInRelatives) {
  for (const std::string& name : Profile::names()) EXPECT_NE(gpu_family(name), nullptr) << name;
  for (const GpuFamily& gpu : gpu_families()) {
    EXPECT_NO_THROW(Profile::load(gpu.profile));
    if (!gpu.relative.empty()) {
      EXPECT_NE(gpu_family(gpu.relative), nullptr) << gpu.profile;
    }
    if (gpu.kernels != GpuFamily::Kernels::kNone) {
      EXPECT_FALSE(gpu.relative.empty()) << gpu.profile;
    }
    if (!gpu.next.empty()) {
      EXPECT_EQ(Cluster::load(gpu.next).profile.name(), gpu.next);
    }
  }
  EXPECT_EQ(gpu_family("my-gpu"), nullptr);
}

TEST(GpuFamily, KernelsOfARelativeAreBorrowed) {
  const Profile own = Cluster::load("dgx-h100x2").profile, derived = Cluster::load("dgx-h200x2").profile;
  const char* key = "ep/hybridep_dispatch_kernel@bf16";
  ASSERT_NE(own.find(key), nullptr);
  ASSERT_NE(derived.find(key), nullptr);
  EXPECT_TRUE(derived.at(key).derived);
  EXPECT_GT(derived.at(key).residual, own.at(key).residual);
  EXPECT_EQ(Cluster::load("hgx-h20x2").profile.find(key), nullptr);
}

TEST(GpuFamily, NamesAreTakenAsPeopleWriteThem) {
  const auto named = [](std::string_view text) {
    const GpuFamily* gpu = gpu_named(text);
    return gpu ? gpu->profile : "";
  };
  EXPECT_EQ(named("NVIDIA GeForce RTX 4090"), "rtx-4090");
  EXPECT_EQ(named("rtx_5090"), "rtx-5090");
  EXPECT_EQ(named("rtx4090-24gb"), "rtx-4090");
  EXPECT_EQ(named("RTX 6000 PRO"), "rtx-pro-6000");
  EXPECT_EQ(named("AMD Instinct MI350X"), "mi350x");
  EXPECT_EQ(named("RTX 4090 D"), "");
  EXPECT_EQ(named("RTX 40"), "");
  EXPECT_EQ(named(""), "");
  EXPECT_EQ(Cluster::load(std::string("RTX 4090")).name, "rtx-4090");
  EXPECT_EQ(Cluster::load(std::string("H100 NVL")).holding(16).name, "h100-nvlx2");
  EXPECT_EQ(Cluster::load(std::string("h100-pcie")).profile.name(), "h100-pcie");
  EXPECT_EQ(Cluster::load(std::string("h100")).profile.name(), "h100-sxm");
  for (const char* no_gpu : {"rtx", "pcie", "nvl"})
    EXPECT_THROW(Cluster::load(std::string(no_gpu)), InputError);
}

// Cards share the host's PCIe where modules have NVLink; a GPU with more memory or a faster one has more of
// it.
TEST(GpuFamily, CardsAreSlowerBesideEachOtherThanModulesWithNvlink) {
  const auto seconds = [](const char* cluster, sim::CollectiveOp op) {
    return CollectiveModel(Cluster::load(std::string(cluster))).seconds(op, GroupShape::uniform(1, 8), 64e6);
  };
  for (const auto op : {sim::CollectiveOp::all_to_all, sim::CollectiveOp::all_reduce,
                        sim::CollectiveOp::all_gather, sim::CollectiveOp::reduce_scatter}) {
    EXPECT_GT(seconds("h100-pciex1", op), 5 * seconds("dgx-h100x1", op));
    EXPECT_GT(seconds("l40sx1", op), 1.5 * seconds("h100-pciex1", op));  // PCIe 4 and 5
    EXPECT_GT(seconds("rtx-4090x1", op), seconds("l40sx1", op));         // no peer-to-peer access
    EXPECT_NEAR(seconds("mi325x-x1", op) / seconds("mi300x-x1", op), 1, 0.01);
  }
  const auto limits = [](const char* profile) { return Profile::load(std::string(profile)).device(); };
  EXPECT_GT(limits("mi325x").memory_bytes, limits("mi300x").memory_bytes);
  EXPECT_GT(limits("h100-nvl").memory_bytes, limits("h100-pcie").memory_bytes);
  EXPECT_GT(limits("rtx-5090").hbm_bandwidth, limits("rtx-4090").hbm_bandwidth);
  EXPECT_LT(limits("mi350x").peak_flops[static_cast<std::size_t>(DType::kFp8)],
            limits("mi355x").peak_flops[static_cast<std::size_t>(DType::kFp8)]);
  for (const GpuFamily& gpu : gpu_families())
    EXPECT_EQ(by_pcie(gpu.profile), limits(gpu.profile.c_str()).scaleup_bandwidth <= 63e9) << gpu.profile;
  EXPECT_FALSE(by_pcie("no-such-gpu"));
}

// 16 GPUs of DGX H100, 10.2 kW a node: 20.4 kW.
struct TwoNodes {
  Cluster cluster = Cluster::load("dgx-h100x2");
  PriceTable rent;
  Ownership own;
  HourCost hour() const { return hour_cost(rent, own, cluster, 16); }
};

// At the share from which it pays, an hour of work costs what it costs rented.
TEST(Ownership, PaysFromWhereItCostsTheRent) {
  TwoNodes m;
  m.rent = parse_prices("2.5");
  m.own.buy = parse_prices("35000", Ownership::kKeys);
  m.own.kwh = 0.08;
  const double share = m.hour().pays_from;
  ASSERT_GT(share, 0.1);
  ASSERT_LT(share, 1);
  m.own.idle_share = 1 - share;
  EXPECT_NEAR(m.hour().total(), m.hour().rent, 1e-9);
  EXPECT_NEAR(m.hour().rent, 16 * 2.5, 1e-12);
  m.rent = parse_prices("0.01");
  EXPECT_GT(m.hour().pays_from, 1);
}

TEST(Ownership, WhatIsNotBoughtIsRented) {
  TwoNodes m;
  m.rent = parse_prices("h100=2,b200=5");
  m.own.buy = parse_prices("b200=50000", Ownership::kKeys);
  m.own.kwh = 0.1;
  EXPECT_FALSE(m.hour().bought);
  EXPECT_DOUBLE_EQ(m.hour().total(), 32);  // the rent has its power in it where others are bought
  EXPECT_TRUE(hour_cost(m.rent, m.own, Cluster::load("dgx-b200x2"), 16).bought);
  m.own.buy = {};
  EXPECT_NEAR(m.hour().total(), 32 + 20.4 * Ownership::kPue * 0.1, 1e-9);
  m.own.buy = PriceTable::parse(JsonNode::parse(R"({"node": 300000})", "b.json"), Ownership::kKeys);
  EXPECT_DOUBLE_EQ(m.hour().purchase, 600'000);
  EXPECT_TRUE(has_price({}, m.own, m.cluster));
  EXPECT_FALSE(has_price({}, {}, m.cluster));
}

// The help says what is used.
TEST(Ownership, DefaultsStandInTheTableOfFields) {
  EXPECT_EQ(find_field("ownership.years")->fallback, std::to_string(static_cast<int>(Ownership::kYears)));
  EXPECT_EQ(std::stod(std::string(find_field("ownership.pue")->fallback)), Ownership::kPue);
}

// A node takes more than its GPUs' boards, whose other parts no data sheet says for all.
TEST(RentalList, NodesTakeMoreThanTheirBoards) {
  const RentalList& list = RentalList::shipped();
  for (const std::string& profile : Profile::names()) {
    ASSERT_TRUE(list.watts.contains(profile)) << profile;
    const double ratio = list.node_watts_of(profile) / list.watts.at(profile).value;
    EXPECT_GT(ratio, 1.25) << profile;
    EXPECT_LT(ratio, 2.1) << profile;
  }
  EXPECT_DOUBLE_EQ(list.node_watts_of("h100-sxm"), 1275);
  EXPECT_EQ(list.node_watts_of("no such"), 0);
}

TEST(DType, EveryNameNamesOneType) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    EXPECT_TRUE(names.insert(name_of(type)).second) << name_of(type);
    EXPECT_EQ(dtype_named(name_of(type)), type);
    EXPECT_EQ(dtype_named("torch." + std::string(name_of(type))), type);
  }
}

// The digits in a name are its bits; a torch bool takes a byte and TF32 is stored as fp32.
TEST(DType, BytesFollowFromTheName) {
  for (std::size_t i = 0; i < kDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    const std::string name(name_of(type));
    int bits = 0;
    for (const char c : name.substr(0, name.find('_')))
      if (c >= '0' && c <= '9') bits = bits * 10 + (c - '0');
    if (type == DType::kBool) bits = 8;
    if (type == DType::kTf32) bits = 32;
    if (type == DType::kFp4) bits = 8;  // an operand of products alone, which count its half byte
    EXPECT_EQ(bytes_of(type) * 8, bits) << name;
  }
}

TEST(DType, LongSpellingsAreKnownAndOthersRefused) {
  EXPECT_EQ(dtype_named("torch.bfloat16"), DType::kBf16);
  EXPECT_EQ(dtype_named("half"), DType::kFp16);
  EXPECT_EQ(dtype_named("float8_e5m2"), DType::kFp8);
  for (const char* wrong : {"", "torch.", "BF16", "fp6", "bfloat", "torch.torch.fp8"}) {
    EXPECT_THAT(message_of([&] { dtype_named(wrong); }),
                ::testing::HasSubstr("expected one of bool, uint8, fp8"))
        << wrong;
  }
}

// ln 2 / 1.6449 is the sigma whose 90 % interval reaches from half to twice the value.
TEST(Estimate, OfALogNormalFactor) {
  const Estimate estimate = Estimate::log_normal(8, std::log(2) / 1.6448536269514722);
  EXPECT_EQ(estimate.value, 8);
  EXPECT_NEAR(estimate.low, 4, 1e-12);
  EXPECT_NEAR(estimate.high, 16, 1e-12);
  const Estimate sure = Estimate::log_normal(8, 0);
  EXPECT_EQ(sure.low, 8);
  EXPECT_EQ(sure.high, 8);
}

TEST(Estimate, TheIntervalHoldsNinetyPercentOfWhatItsLawDraws) {
  const double sigma = 0.3;
  const Estimate estimate = Estimate::log_normal(5, sigma);
  Random random(11);
  int inside = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double drawn = 5 * std::exp(sigma * random.normal());
    inside += estimate.low <= drawn && drawn <= estimate.high;
  }
  EXPECT_NEAR(static_cast<double>(inside) / kDraws, 0.9, 0.01);
}

TEST(Estimate, OfSamplesInAnyOrderHoldsItsValue) {
  std::vector<double> samples;
  for (int i = 0; i <= 100; ++i) samples.push_back(i * 37 % 101);  // 0 to 100, shuffled
  const Estimate inside = Estimate::from_samples(50, samples);
  EXPECT_DOUBLE_EQ(inside.low, 5);
  EXPECT_DOUBLE_EQ(inside.high, 95);
  EXPECT_EQ(Estimate::from_samples(2, samples).low, 2);
  EXPECT_DOUBLE_EQ(Estimate::from_samples(2, samples).high, 95);
  EXPECT_EQ(Estimate::from_samples(99, samples).high, 99);
}

}  // namespace
}  // namespace moesim::models
