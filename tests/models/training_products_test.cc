#include "models/costs/training_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace moesim::models {
namespace {

TEST(SlowestOf, GrowsSlowlyWithTheGpusThatWait) {
  EXPECT_EQ(slowest_of(1), 1);
  double last = 1;
  for (const std::int64_t n : {2, 8, 64, 1024, 16384}) {
    EXPECT_GT(slowest_of(n), last);
    last = slowest_of(n);
  }
  // Expected largest of 8 and 1,000 standard normal numbers: 1.424 and 3.241 (tables of normal order
  // statistics).
  EXPECT_NEAR((slowest_of(8) - 1) / (0.08 / 5.4), 1.424, 0.12);
  EXPECT_NEAR((slowest_of(1000) - 1) / (0.08 / 5.4), 3.241, 0.05);
}

// Data of the profile, whatever the GPU is called.
TEST(PowerSlowdown, IsTheProfiles) {
  for (const char* name : {"a100-sxm", "h100-sxm", "h800-sxm", "h200-sxm", "mi300x", "mi355x"})
    EXPECT_EQ(Profile::load(std::string(name)).device().power_slowdown, 1) << name;
  for (const char* name : {"b200-sxm", "b300-sxm", "gb200"})
    EXPECT_EQ(Profile::load(std::string(name)).device().power_slowdown, 1.3) << name;
  EXPECT_EQ(Profile::load(std::string("gb300")).device().power_slowdown,
            1.2);  // the same peak with more power
  Profile slower = Profile::load(std::string("h100-sxm"));
  slower.device().power_slowdown = 1.5;
  const TrainingProducts usual(Profile::load(std::string("h100-sxm")), {}), taken(slower, {});
  EXPECT_NEAR(taken.dense(4096, 4096, 4096, GemmPass::kForward),
              1.5 * usual.dense(4096, 4096, 4096, GemmPass::kForward), 1e-12);
}

// H100 with 1 TB/s of memory, of which passes reach 95 %, and a smallest kernel of 2 us.
Profile made() {
  Profile profile = Profile::load(std::string("h100-sxm"));
  profile.device().hbm_bandwidth = 2e12;
  profile.device().hbm_efficiency = 0.5;
  profile.launch().kernel_floor = 2e-6;
  return profile;
}

constexpr double kPass = 1 / 0.95e12;  // seconds a byte

constexpr std::int64_t kM = 4096, kN = 2048, kK = 7168;

double conversion(const ProductRecipe& recipe, GemmPass pass) {
  ProductRecipe none = recipe;
  none.conversions = 0;
  return TrainingProducts(made(), recipe).dense(kM, kN, kK, pass) -
         TrainingProducts(made(), none).dense(kM, kN, kK, pass);
}

// Forward converts what comes in (4096 x 7168), dgrad what comes back (4096 x 2048): bf16 read, one byte
// written in both orientations; a scale of the whole tensor reads it once more. wgrad takes both as they are.
TEST(TrainingProducts, ConversionsByHand) {
  const ProductRecipe fp8{.gemm = DType::kFp8}, blocks{.gemm = DType::kFp8Block},
      fused{.gemm = DType::kFp8, .fused = true};
  EXPECT_NEAR(conversion(fp8, GemmPass::kForward), 2e-6 + 6.0 * kM * kK * kPass, 1e-12);
  EXPECT_NEAR(conversion(fp8, GemmPass::kDgrad), 2e-6 + 6.0 * kM * kN * kPass, 1e-12);
  EXPECT_EQ(conversion(fp8, GemmPass::kWgrad), 0);
  EXPECT_NEAR(conversion(blocks, GemmPass::kForward), 2e-6 + 4.0 * kM * kK * kPass, 1e-12);
  EXPECT_NEAR(conversion(fused, GemmPass::kForward), 2e-6 + 3.0 * kM * kK * kPass, 1e-12);
  EXPECT_EQ(conversion({}, GemmPass::kForward), 0);
  EXPECT_EQ(TrainingProducts(made(), fp8).conversions(), 2);
  EXPECT_EQ(TrainingProducts(made(), {}).conversions(), 0);
}

// A weight gradient reads and writes its accumulator: 8 bytes of each of 2048 x 7168 weights in fp32.
TEST(TrainingProducts, WeightGradientsAreAccumulated) {
  const Profile profile = made();
  const double alone =
      TrainingProducts(profile, {.accumulator_bytes = 0}).plain(kM, kN, kK, GemmPass::kWgrad);
  const double passes = 8.0 * kN * kK * kPass;
  EXPECT_NEAR(TrainingProducts(profile, {}).plain(kM, kN, kK, GemmPass::kWgrad), std::hypot(alone, passes),
              1e-12);
  EXPECT_EQ(TrainingProducts(profile, {.accumulator_bytes = 0}).plain(kM, kN, kK, GemmPass::kForward),
            TrainingProducts(profile, {}).plain(kM, kN, kK, GemmPass::kForward));
}

TEST(TrainingProducts, OfExpertsAreNotFasterThanOneOfAllRows) {
  const TrainingProducts products(made(), {});
  const std::vector<std::int64_t> rows = {900, 0, 100, 1000};
  EXPECT_GE(products.grouped(rows, kN, kK, GemmPass::kForward, GemmBackend::kGrouped),
            products.plain(2000, kN, kK, GemmPass::kForward));
  // The weights of three experts were used, so three gradients are accumulated.
  const double none = TrainingProducts(made(), {.accumulator_bytes = 0})
                          .grouped(rows, kN, kK, GemmPass::kWgrad, GemmBackend::kGrouped);
  EXPECT_NEAR(products.grouped(rows, kN, kK, GemmPass::kWgrad, GemmBackend::kGrouped),
              std::hypot(none, 3 * 8.0 * kN * kK * kPass), 1e-12);
}

TEST(TrainingProducts, TheSlowestGpuStretchesProductsNotPasses) {
  const ProductRecipe slow{.gemm = DType::kFp8, .slowest = 1.5}, usual{.gemm = DType::kFp8};
  const double pass = 2e-6 + 6.0 * kM * kK * kPass;
  EXPECT_NEAR(TrainingProducts(made(), slow).dense(kM, kN, kK, GemmPass::kForward) - pass,
              1.5 * (TrainingProducts(made(), usual).dense(kM, kN, kK, GemmPass::kForward) - pass), 1e-12);
}

}  // namespace
}  // namespace moesim::models
