#include "models/costs/gemm.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <vector>

#include "base/input_error.h"

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

}  // namespace
}  // namespace moesim::models
