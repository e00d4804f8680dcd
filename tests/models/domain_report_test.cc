// Reports of a forecast about prices outside of a profile's measurements.
#include "models/costs/domain_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "models/costs/gemm.h"

namespace moesim::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

OutsideDomain ranks(std::string price, double value) {
  return {std::move(price), "", {"ranks", 2, 8}, value};
}

TEST(DomainReport, OneLineForEachPriceWithTheLongestValue) {
  DomainReport report;
  report.add(1, std::nullopt);
  report.add(2, ranks("a gather", 16));
  report.add(5, ranks("a gather", 12));
  report.add(1, ranks("a reduction", 64));
  report.add(1, OutsideDomain::derived("a product", "derived from h100-sxm: somebody"));
  EXPECT_THAT(report.lines(), ElementsAre("a gather extrapolates to 12 ranks (measured 2 to 8)",
                                          "a reduction extrapolates to 64 ranks (measured 2 to 8)",
                                          "a product is derived from h100-sxm: somebody"));
  EXPECT_DOUBLE_EQ(report.share(), 0.9);
}

TEST(DomainReport, UnmeasuredPartsAreThoseWithoutAMeasurementOfTheirOwn) {
  DomainReport report;
  report.add(5, std::nullopt);
  report.add(2, ranks("a gather", 16));
  report.add(2, OutsideDomain{"a kernel", "was not measured", {}, 0});
  report.add(1, OutsideDomain::derived("a product", "derived from h100-sxm: somebody"));
  const auto parts = report.unmeasured();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].part, "a kernel was not measured");
  EXPECT_DOUBLE_EQ(parts[0].share, 0.2);
  EXPECT_FALSE(parts[0].drawn);
  EXPECT_TRUE(parts[1].drawn);

  // A part is off by one factor under a draw, in every time that contains it; derived parts are unchanged.
  std::vector<double> a(400, 10.0), b(400, 30.0);
  doubt_unmeasured(parts, 10, a);
  doubt_unmeasured(parts, 30, b);
  double squares = 0;
  for (std::size_t d = 0; d < a.size(); ++d) {
    EXPECT_NEAR(b[d], 3 * a[d], 1e-9);
    const double factor = (a[d] - 8) / 2;
    ASSERT_GT(factor, 0);
    squares += std::log(factor) * std::log(factor);
  }
  EXPECT_NEAR(std::sqrt(squares / 400), 0.365, 0.04);
}

TEST(DomainReport, PartsBelowOnePercentDoNotWarn) {
  DomainReport report;
  report.add(99.5, std::nullopt);
  for (int i = 0; i < 4; ++i) report.add(0.1, ranks("a gather", 16));
  report.add(0.05, ranks("a reduction", 16));
  EXPECT_THAT(report.lines(), IsEmpty());
  report.add(1, ranks("a gather", 16));  // together they are enough
  EXPECT_THAT(report.lines(), ElementsAre(HasSubstr("a gather")));
  EXPECT_THAT(DomainReport().lines(), IsEmpty());
  EXPECT_EQ(DomainReport().share(), 0);
}

RC_GTEST_PROP(DomainReport, FarthestIsTheRangeWithTheMostOctaves, ()) {
  FarthestOutside farthest;
  std::vector<std::pair<DomainRange, double>> tried;
  const int ranges = *rc::gen::inRange(0, 5);
  for (int i = 0; i < ranges; ++i) {
    const double low = *rc::gen::inRange(1, 1000), high = low + *rc::gen::inRange(0, 1000);
    const double value = *rc::gen::inRange(0, 5000);
    tried.push_back({{"q" + std::to_string(i), low, high}, value});
    farthest.try_range(&tried.back().first, value);
  }
  farthest.try_range(nullptr, 5);
  double most = 0;
  for (const auto& [range, value] : tried) {
    const double octaves = octaves_outside(range, value);
    // A value of 0 is a size that is not known.
    RC_ASSERT((octaves > 0) == (value > 0 && (value < range.low || value > range.high)));
    if (octaves > 0.1) most = std::max(most, octaves);  // less is as good as inside
  }
  const auto found = farthest.of("p");
  RC_ASSERT(found.has_value() == (most > 0));
  if (found) RC_ASSERT(octaves_outside(found->measured, found->value) == most);
}

TEST(DomainReport, BytesHaveTheirUnit) {
  OutsideDomain outside;
  outside.price = "a gather";
  outside.measured = {.quantity = "bytes", .low = 512, .high = 536870912};
  outside.value = 14495514624;
  EXPECT_EQ(outside.text(), "a gather extrapolates to 14.50 GB (measured 512 B to 536.87 MB)");
}

// h100-sxm: bf16 products were measured for n of 1,024 to 16,384 and k of 1,536 to 16,384.
TEST(DomainReport, ProductsAreHeldAgainstTheirLaw) {
  const GemmModel h100(Profile::load("h100-sxm")), h800(Profile::load("h800-sxm"));
  const auto why = [](const std::optional<OutsideDomain>& outside) { return outside ? outside->text() : ""; };
  EXPECT_EQ(why(h100.outside({4096, 4096, 4096}, DType::kBf16)), "");
  EXPECT_EQ(why(h100.outside({4096, 128, 4096}, DType::kBf16)),
            "h100-sxm: bf16 GEMM extrapolates to n = 128 (measured 1024 to 16384)");
  EXPECT_EQ(why(h100.outside({4096, 4096, 65536}, DType::kBf16)),
            "h100-sxm: bf16 GEMM extrapolates to k = 65536 (measured 1536 to 16384)");
  EXPECT_EQ(why(h100.outside({4096, 4096, 4096}, DType::kFp16)), "h100-sxm: fp16 GEMM was not measured");
  EXPECT_THAT(why(h800.outside({4096, 4096, 4096}, DType::kBf16)),
              HasSubstr("h800-sxm: bf16 GEMM is derived from h100-sxm"));
  const std::vector<std::int64_t> rows{65536, 0}, none{0, 0};
  EXPECT_EQ(why(h100.grouped_outside(rows, 4096, 4096, DType::kBf16)), "");
  EXPECT_THAT(why(h100.grouped_outside(rows, 4096, 4096, DType::kBf16, GemmPass::kWgrad, GemmBackend::kLoop)),
              HasSubstr("k = 65536"));
  EXPECT_EQ(why(h800.grouped_outside(none, 4096, 4096, DType::kBf16)), "");
  EXPECT_THAT(why(h800.grouped_outside(rows, 4096, 4096, DType::kBf16)),
              HasSubstr("h800-sxm: grouped bf16 GEMM is derived from h100-sxm"));
}

}  // namespace
}  // namespace moesim::models
