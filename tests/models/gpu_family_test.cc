#include "models/hardware/gpu_family.h"

#include <gtest/gtest.h>

#include <string>

#include "base/input_error.h"
#include "models/costs/collectives.h"
#include "models/hardware/cluster.h"
#include "models/hardware/profile.h"

namespace moesim::models {
namespace {

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

}  // namespace
}  // namespace moesim::models
