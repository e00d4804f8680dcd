// Products, expert feed-forward blocks and kernels: how long each takes.
#include "models/costs/gemm.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "models/costs/expert_ffn.h"
#include "models/costs/kernels.h"
#include "models/costs/training_products.h"

namespace moesim::models {
namespace {

const Profile& h100() {
  static const Profile profile = Profile::load("h100-sxm");
  return profile;
}

const GemmModel& model() {
  static const GemmModel model(h100(), Clocks::kBurst);
  return model;
}

RC_GTEST_PROP(Gemm, NeverBelowTheRoofline, ()) {
  const auto extent = rc::gen::inRange<std::int64_t>(1, 20000);
  const GemmShape shape{*extent, *extent, *extent};
  const DType dtype = *rc::gen::element(DType::kBf16, DType::kFp8, DType::kFp32);
  const double seconds = model().seconds(shape, dtype);
  const double flops =
      2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  RC_ASSERT(seconds >= flops / h100().device().peak_flops[static_cast<std::size_t>(dtype)]);
  RC_ASSERT(seconds >= model().roofline_seconds(shape, dtype));
}

RC_GTEST_PROP(Gemm, GroupedNeverBelowTheRooflineOfItsRows, ()) {
  const auto rows = *rc::gen::container<std::vector<std::int64_t>>(*rc::gen::inRange<std::size_t>(1, 64),
                                                                   rc::gen::inRange<std::int64_t>(0, 4000));
  const auto n = *rc::gen::inRange<std::int64_t>(64, 8000), k = *rc::gen::inRange<std::int64_t>(64, 8000);
  const auto total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  for (const GemmPass pass : {GemmPass::kForward, GemmPass::kDgrad, GemmPass::kWgrad})
    for (const GemmBackend backend : {GemmBackend::kGrouped, GemmBackend::kLoop, GemmBackend::kBatched}) {
      const double seconds = model().grouped_seconds(rows, n, k, DType::kBf16, pass, backend);
      const double flops = 2.0 * static_cast<double>(total) * static_cast<double>(n) * static_cast<double>(k);
      RC_ASSERT(seconds >= flops / h100().device().peak_flops[static_cast<std::size_t>(DType::kBf16)]);
      RC_ASSERT((total == 0) == (seconds == 0));
    }
}

TEST(Gemm, PartlyFilledTilesAreNotFree) {
  // 129 rows need more tiles than 128, and one expert with all rows fewer than many with one row each.
  const std::vector<std::int64_t> full(8, 128), ragged(8, 129);
  EXPECT_GE(model().grouped_seconds(ragged, 4096, 4096, DType::kBf16),
            model().grouped_seconds(full, 4096, 4096, DType::kBf16));
  const std::vector<std::int64_t> one = {64, 0, 0, 0, 0, 0, 0, 0}, spread(8, 8);
  EXPECT_LT(model().grouped_seconds(one, 4096, 4096, DType::kBf16),
            model().grouped_seconds(spread, 4096, 4096, DType::kBf16));
}

TEST(Gemm, FewRowsCostTheWeightsOfTheExpertsThatHaveThem) {
  // 64 experts of 4096 x 4096 bf16 are 2.1 GB: with one row each they are read once.
  const std::vector<std::int64_t> rows(64, 1);
  const double bytes = 64.0 * 4096 * 4096 * 2;
  const double seconds = model().grouped_seconds(rows, 4096, 4096, DType::kBf16);
  EXPECT_GT(seconds, bytes / h100().device().hbm_bandwidth);
  EXPECT_LT(seconds, 2 * bytes / h100().device().hbm_bandwidth);
}

TEST(Gemm, PaddingToTheLargestExpertCosts) {
  const std::vector<std::int64_t> skewed = {4096, 16, 16, 16}, even(4, 1036);
  EXPECT_GT(
      model().grouped_seconds(skewed, 4096, 4096, DType::kBf16, GemmPass::kForward, GemmBackend::kBatched),
      1.5 * model().grouped_seconds(skewed, 4096, 4096, DType::kBf16));
  EXPECT_LT(
      model().grouped_seconds(even, 4096, 4096, DType::kBf16, GemmPass::kForward, GemmBackend::kBatched),
      1.3 * model().grouped_seconds(even, 4096, 4096, DType::kBf16));
}

TEST(Gemm, SustainedClocksAreSlowerForLargeProducts) {
  const GemmModel sustained(h100(), Clocks::kSustained);
  const GemmShape large{8192, 8192, 8192};
  const double ratio = sustained.seconds(large, DType::kBf16) / model().seconds(large, DType::kBf16);
  EXPECT_NEAR(ratio, 1 / h100().device().sustained_clock, 0.05);
}

TEST(Gemm, UnknownElementTypesAreRefused) {
  EXPECT_THROW(model().seconds({1, 1, 1}, DType::kInt64), InputError);
  EXPECT_EQ(model().seconds({0, 10, 10}, DType::kBf16), 0);
}

const std::string kKey = "ffn/bf16";

// H100's limits and a law with these parameters beside those of its products.
Profile profile_of(const std::vector<std::pair<std::string, double>>& parameters) {
  Profile profile;
  profile.device() = Profile::load("h100-sxm").device();
  profile.device().hbm_bandwidth = 2e12;
  profile.device().hbm_efficiency = 0.5;  // 1 TB/s
  ParameterSet set;
  set.law = "expert-ffn";
  for (const auto& [name, value] : parameters) {
    set.names.push_back(name);
    set.values.push_back(value);
  }
  profile.set(kKey, set);
  return profile;
}

double products(const Profile& profile, const FfnShape& shape, const std::vector<std::int64_t>& rows) {
  const GemmModel gemm(profile, Clocks::kBurst, kKey);
  return gemm.grouped_seconds(rows, 2 * shape.inter, shape.hidden, DType::kBf16) +
         gemm.grouped_seconds(rows, shape.hidden, shape.inter, DType::kBf16);
}

// 100 tokens with two choices, hidden 1,000, experts of 500: 200 rows of 2 x (3,000 + 1,500) bytes through
// permute, activation and unpermute, 1.8 MB; 100 outputs of 4,000 bytes, 0.4 MB; 200 choices of 2 x (2,000 +
// 1,500), 1.4 MB.
TEST(ExpertFfn, KernelsAroundTheProductsByHand) {
  const FfnShape shape{100, 1000, 500, 2, 0};
  const std::vector<std::int64_t> rows = {120, 0, 50, 30};
  const auto around = [&](double row_pass, double token_pass, double slot_pass) {
    const Profile profile = profile_of(
        {{"overhead", 7e-6}, {"row_pass", row_pass}, {"token_pass", token_pass}, {"slot_pass", slot_pass}});
    return ExpertFfnModel(profile, kKey, DType::kBf16).seconds(shape, rows) - products(profile, shape, rows);
  };
  EXPECT_NEAR(around(0, 0, 0), 7e-6, 1e-12);
  EXPECT_NEAR(around(1, 0, 0), 7e-6 + 1.8e-6, 1e-12);
  EXPECT_NEAR(around(0, 1, 0), 7e-6 + 0.4e-6, 1e-12);
  EXPECT_NEAR(around(0, 0, 1), 7e-6 + 1.4e-6, 1e-12);
  EXPECT_NEAR(around(2, 3, 0.5), 7e-6 + 3.6e-6 + 1.2e-6 + 0.7e-6, 1e-12);
}

// Where half of the rows that belong elsewhere are multiplied all the same, 100 of them grow 200 rows to 250,
// spread like the own ones.
TEST(ExpertFfn, RowsOfOtherRanksTakePart) {
  const Profile profile =
      profile_of({{"overhead", 7e-6}, {"row_pass", 1}, {"token_pass", 1}, {"remote_share", 0.5}});
  const ExpertFfnModel model(profile, kKey, DType::kBf16);
  const FfnShape alone{150, 1024, 512, 2, 0}, shared{150, 1024, 512, 2, 100};
  EXPECT_DOUBLE_EQ(model.seconds(shared, std::vector<std::int64_t>{120, 80}),
                   model.seconds(alone, std::vector<std::int64_t>{150, 100}));
}

TEST(ExpertFfn, MoreRowsNeverTakeLess) {
  const Profile h100 = Profile::load("h100-sxm");
  const ExpertFfnModel model(h100, "ffn/bf16@moe_torch_flow_cutlass", DType::kBf16);
  double last = 0;
  for (std::int64_t rows = 1; rows <= 1 << 14; rows *= 2) {
    const double seconds = model.seconds({rows * 4, 4096, 14336, 2, 0}, std::vector<std::int64_t>(8, rows));
    EXPECT_GE(seconds, last) << rows;
    last = seconds;
  }
  // Never faster than the arithmetic at the peak: 6 FLOPs for each of rows, hidden and intermediate size.
  EXPECT_GE(last, 6.0 * (8 << 14) * 4096 * 14336 /
                      h100.device().peak_flops[static_cast<std::size_t>(DType::kBf16)]);
}

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
