#include "models/costs/kernels.h"

#include <gtest/gtest.h>

namespace moesim::models {
namespace {

TEST(Kernels, NeverFasterThanTheMemoryAndNeverFree) {
  for (const std::string& name : Profile::names()) {
    const Profile profile = Profile::load(name);
    const KernelModel model(profile);
    for (std::size_t i = 0; i < kKernelClasses; ++i) {
      const auto kernel = static_cast<KernelClass>(i);
      EXPECT_GE(model.seconds(kernel, 6e8, 4e8), 1e9 / profile.device().hbm_bandwidth) << name;
      EXPECT_GT(model.seconds(kernel, 0, 0), 0) << name;
      EXPECT_NEAR(model.seconds(kernel, 0, 0, 5), 5 * model.seconds(kernel, 0, 0), 1e-15);
      const Estimate estimate = model.estimate(kernel, 1e6, 1e6);
      EXPECT_LE(estimate.low, estimate.value);
      EXPECT_GE(estimate.high, estimate.value);
    }
  }
}

TEST(Kernels, NamesReadBack) {
  for (std::size_t i = 0; i < kKernelClasses; ++i) {
    const auto kernel = static_cast<KernelClass>(i);
    EXPECT_EQ(parse_kernel_class(name_of(kernel)), kernel);
  }
  EXPECT_FALSE(parse_kernel_class("nothing"));
}

}  // namespace
}  // namespace moesim::models
