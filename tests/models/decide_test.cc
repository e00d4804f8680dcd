// Who wins, and when it is too close to call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/answers/answer.h"

namespace moesim::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Answer of(std::string name, double us, std::vector<double> draws,
          std::vector<DomainReport::Unmeasured> unmeasured = {}) {
  Answer a;
  a.dispatcher = std::move(name);
  a.time_us = Estimate::exact(us);
  a.draws_us = std::move(draws);
  a.unmeasured = std::move(unmeasured);
  a.memory.fits = true;
  a.tx_bytes = {0};
  a.breakdown_us[static_cast<std::size_t>(sim::Category::dispatch)] = us;
  return a;
}

const std::vector<double> kFast(20, 1.0), kSlow(20, 2.0);
const DomainReport::Unmeasured kKernel{"b300-sxm: DeepEP dispatch kernel was not measured across nodes", 0.5,
                                       true, true},
    kExchange{"b300-sxm: all_to_all across nodes was not measured, taken from all_gather", 0.5};

TEST(Decide, NineteenOfTwentyDrawsAreClearAndSeventeenAreNot) {
  std::vector<double> other(20, 2.0);
  other[0] = 0.5;
  Decision d = decide({of("a", 1, kFast), of("b", 1.5, other)});
  EXPECT_EQ(d.verdict, Decision::Verdict::kClear);
  EXPECT_NEAR(d.probability, (19 + 0.5) / 21, 1e-12);
  other[1] = other[2] = 0.5;
  d = decide({of("a", 1, kFast), of("b", 1.5, other)});
  EXPECT_EQ(d.verdict, Decision::Verdict::kTooClose);
  EXPECT_THAT(d.among, ElementsAre(0, 1));
  EXPECT_THAT(d.because, HasSubstr("Too close to call between a and b"));
}

TEST(Decide, AKernelThatNobodyMeasuredDoesNotWinOnItsOwnWord) {
  const Decision d = decide({of("a", 1, kFast, {kKernel}), of("b", 2, kSlow)});
  EXPECT_EQ(d.winner, 0);
  EXPECT_EQ(d.verdict, Decision::Verdict::kTooClose);
  EXPECT_DOUBLE_EQ(d.probability, 0.5);
  EXPECT_THAT(d.because, HasSubstr(kKernel.part));
}

TEST(Decide, AKernelThatNobodyMeasuredMayLose) {
  const Decision d = decide({of("a", 1, kFast), of("b", 2, kSlow, {kKernel})});
  EXPECT_EQ(d.verdict, Decision::Verdict::kClear);
  EXPECT_DOUBLE_EQ(d.probability, (20 + 0.5) / 21);  // 20 draws tell no more
}

TEST(Decide, WhatBothLackDoesNotDecide) {
  const Decision d = decide({of("a", 1, kFast, {kKernel}), of("b", 2, kSlow, {kKernel})});
  EXPECT_EQ(d.verdict, Decision::Verdict::kClear);
}

TEST(Decide, SaysWhatThatNobodyMeasuredDecides) {
  std::vector<double> other(20, 2.0);
  other[0] = other[1] = other[2] = 0.5;
  const Decision d = decide({of("a", 1, kFast), of("b", 1.5, other, {kExchange})});
  EXPECT_EQ(d.verdict, Decision::Verdict::kTooClose);
  EXPECT_THAT(d.because, HasSubstr("What decides: " + kExchange.part));
}

}  // namespace
}  // namespace moesim::models
