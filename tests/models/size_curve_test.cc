#include "models/costs/size_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using Named = std::vector<std::pair<std::string, double>>;

ParameterSet set_of(const Named& parameters) {
  ParameterSet set;
  set.law = "size-curve";
  for (const auto& [name, value] : parameters) {
    set.names.push_back(name);
    set.values.push_back(value);
  }
  return set;
}

// Two ranks: 1 us up to 100 bytes, 3 us at 300; eight ranks: 2 us and 10 us at the same sizes.
Named two_and_eight() {
  return {{"latency", 5e-6},      {"latency_per_rank", 1e-6}, {"excess/2/100", 1e-6},
          {"excess/2/300", 3e-6}, {"excess/8/100", 2e-6},     {"excess/8/300", 10e-6}};
}

TEST(SizeCurve, AtAMeasuredCountByHand) {
  const SizeCurve curve = SizeCurve::from(set_of(two_and_eight()), "key");
  EXPECT_NEAR(curve.floor(2), 6e-6, 1e-18);
  EXPECT_NEAR(curve.floor(8), 12e-6, 1e-18);
  EXPECT_NEAR(curve.seconds(2, 50), 7e-6, 1e-18);    // constant below the first knot
  EXPECT_NEAR(curve.seconds(2, 200), 8e-6, 1e-18);   // half way between the knots
  EXPECT_NEAR(curve.seconds(2, 500), 11e-6, 1e-18);  // 10 ns a byte go on
  EXPECT_NEAR(curve.seconds(8, 200), 18e-6, 1e-18);
  EXPECT_TRUE(curve.measured(8));
  EXPECT_FALSE(curve.measured(4));
}

// Sizes between which a measurement fell stand at their mean.
TEST(SizeCurve, ALargerMessageTakesNoLess) {
  const SizeCurve curve = SizeCurve::from(
      set_of({{"latency", 0}, {"excess/8/100", 3e-6}, {"excess/8/200", 1e-6}, {"excess/8/300", 5e-6}}),
      "key");
  EXPECT_NEAR(curve.seconds(8, 100), 2e-6, 1e-18);
  EXPECT_NEAR(curve.seconds(8, 200), 2e-6, 1e-18);
  EXPECT_NEAR(curve.seconds(8, 300), 5e-6, 1e-18);
}

// Between two counts at the same piece: 4 ranks and 400 bytes are pieces of 100; two ranks had them at 200
// bytes (2 us), eight at 800 (10 us and 500 bytes more at 40 ns each: 30 us); a third of the way is 11.333
// us.
TEST(SizeCurve, BetweenCountsAtTheSamePiece) {
  const SizeCurve curve = SizeCurve::from(set_of(two_and_eight()), "key");
  EXPECT_NEAR(curve.excess_at(4, 400), 2e-6 + (30e-6 - 2e-6) / 3, 1e-15);
  EXPECT_NEAR(curve.seconds(4, 400), 8e-6 + 2e-6 + 28e-6 / 3, 1e-15);
  EXPECT_NEAR(curve.excess_at(14, 1400), 2e-6 + 28e-6 * 2, 1e-15);  // beyond the last the line goes on
}

// From eight ranks alone: a ring of n - 1 steps and 0.37 of one more, each with 1/n of the bytes.
TEST(SizeCurve, FromOneCountTheRingGoesOn) {
  const SizeCurve curve =
      SizeCurve::from(set_of({{"latency", 0}, {"excess/8/100", 1e-6}, {"excess/8/300", 3e-6}}), "key");
  EXPECT_NEAR(curve.excess_at(4, 200), 2e-6 * (3.37 / 4) / (7.37 / 8), 1e-15);
  EXPECT_NEAR(curve.excess_at(8, 200), 2e-6, 1e-15);
  // One knot is a bandwidth.
  const SizeCurve line = SizeCurve::from(set_of({{"excess/8/100", 1e-6}}), "key");
  EXPECT_NEAR(line.seconds(8, 400), 4e-6, 1e-15);
}

TEST(SizeCurve, ADrawnErrorIsAQuarterAtMeasuredCounts) {
  ParameterSet drawn = set_of(two_and_eight());
  drawn.factor = std::exp(0.4);
  const SizeCurve plain = SizeCurve::from(set_of(two_and_eight()), "key"),
                  curve = SizeCurve::from(drawn, "key");
  EXPECT_NEAR(curve.seconds(8, 200) / plain.seconds(8, 200), std::exp(0.1), 1e-12);
  EXPECT_NEAR(curve.seconds(4, 400) / plain.seconds(4, 400), std::exp(0.4), 1e-12);
}

RC_GTEST_PROP(SizeCurve, MoreBytesNeverTakeLess, ()) {
  Named parameters = {{"latency", 1e-6}, {"latency_per_rank", 1e-7}};
  for (const int ranks : {2, 4, 8}) {
    double excess = 0;
    for (const int bytes : {1000, 8000, 100000}) {
      excess += *rc::gen::inRange(0, 1000) * 1e-7;
      parameters.emplace_back("excess/" + std::to_string(ranks) + "/" + std::to_string(bytes), excess);
    }
  }
  const SizeCurve curve = SizeCurve::from(set_of(parameters), "key");
  const double ranks = *rc::gen::inRange(2, 9);
  const double bytes = *rc::gen::inRange(1, 1000000), more = bytes + *rc::gen::inRange(0, 1000000);
  RC_ASSERT(curve.seconds(ranks, more) >= curve.seconds(ranks, bytes) * (1 - 1e-12));
}

TEST(SizeCurve, RefusesWhatIsNoCurve) {
  const auto error = [](const Named& parameters) -> std::string {
    return message_of([&] { SizeCurve::from(set_of(parameters), "collective/all_gather/scaleup"); });
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error({{"latency", 1e-6}}), HasSubstr("law collective/all_gather/scaleup: found 0 knots"));
  EXPECT_THAT(error({{"excess/2/100", 1e-6}, {"excess/8/100", 1e-6}, {"excess/8/300", 1e-6}}),
              HasSubstr("3 knots"));
  EXPECT_THAT(error({{"excess/2/100", 1e-6}, {"excess/8/200", 1e-6}}), HasSubstr("different sizes"));
  for (const char* name : {"excess/2", "excess/1/100", "excess/2/0", "excess/two/100", "excess/2/100/3"})
    EXPECT_THAT(error({{name, 1e-6}}), HasSubstr("expected excess/<ranks>/<bytes>")) << name;
  Named many;
  for (int i = 0; i < 9; ++i) many.emplace_back("excess/" + std::to_string(2 + i) + "/100", 1e-6);
  EXPECT_THAT(error(many), HasSubstr("at most 8"));
  many.clear();
  for (int i = 0; i < 33; ++i) many.emplace_back("excess/2/" + std::to_string(100 + i), 1e-6);
  EXPECT_THAT(error(many), HasSubstr("at most 32"));
}

}  // namespace
}  // namespace moesim::models
