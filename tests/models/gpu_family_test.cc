#include "models/hardware/gpu_family.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace moesim::models
