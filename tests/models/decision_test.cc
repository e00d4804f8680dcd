// The recommended dispatcher, its possible loss, and the sentences about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/answers/answer.h"
#include "models/answers/sentences.h"

namespace moesim::models {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Verdict = Decision::Verdict;

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

Comparison compared(std::vector<Answer> answers) {
  Comparison c;
  Scenario s;
  s.scope = Scenario::Scope::kStep;
  c.scenario = std::make_shared<const Scenario>(std::move(s));
  c.answers = std::move(answers);
  c.decision = decide(c.answers);
  return c;
}

const std::vector<double> kFast(20, 1.0);

TEST(Decide, NineteenOfTwentyDrawsAreClearAndSeventeenAreNot) {
  std::vector<double> other(20, 2.0);
  other[0] = 0.5;
  Decision d = decide({of("a", 1, kFast), of("b", 1.5, other)});
  EXPECT_EQ(d.verdict, Verdict::kClear);
  EXPECT_NEAR(*d.probability(), (19 + 0.5) / 21, 1e-12);
  other[1] = other[2] = 0.5;
  d = decide({of("a", 1, kFast), of("b", 1.5, other)});
  EXPECT_EQ(d.verdict, Verdict::kOpen);  // in three of twenty draws it takes twice as long as the fastest
  EXPECT_THAT(d.among, ElementsAre(0, 1));
  EXPECT_DOUBLE_EQ(d.loss()->expected, 3 * 1.0 / 20);
}

// Worked by hand: "a" is 1 % faster in the mean, but one draw in five it takes 30 % longer.
TEST(Decide, RecommendsWhatLosesLeast) {
  std::vector<double> risky(20, 0.99), steady(20, 1.0);
  for (int d = 0; d < 4; ++d) risky[static_cast<std::size_t>(d)] = 1.3;
  const Decision d = decide({of("a", 0.99, risky), of("b", 1, steady)});
  EXPECT_EQ(d.shortest, 0);
  EXPECT_EQ(d.winner, 1);
  EXPECT_NEAR(d.loss()->expected, 16 * (1 / 0.99 - 1) / 20, 1e-12);
  EXPECT_NEAR(d.loss()->at_most, 1 / 0.99 - 1, 1e-12);
  EXPECT_EQ(d.verdict, Verdict::kSafe);
  EXPECT_EQ(decide({of("a", 0.99, risky), of("b", 1, steady)}, 0.005).verdict, Verdict::kOpen);
}

TEST(Decide, WithoutDrawsNoProbabilityIsSaid) {
  const Comparison c = compared({of("a", 1, {}), of("b", 1.5, {})});
  EXPECT_FALSE(c.decision.probability());
  EXPECT_FALSE(c.decision.loss());
  EXPECT_EQ(c.decision.winner, 0);
  EXPECT_THAT(sentence(c), AllOf(HasSubstr("a has the shortest forecast"), HasSubstr("b takes 50 % longer"),
                                 Not(HasSubstr("probability"))));
}

TEST(Decide, WhatNoRowSupportsNeverWinsOverWhatIsMeasured) {
  Scenario s;
  s.set_model("mixtral-8x7b");
  s.set_cluster("dgx-h100x1");
  s.set_dispatchers("alltoall,allgather");
  s.parallel.ep = 8;
  std::vector<Answer> answers = answer(s, {.draws = 0}).answers;
  ASSERT_LT(answers[0].time_us.value, answers[1].time_us.value);
  for (Answer& a : answers) a.bar = Bar::kNone, a.memory.fits = true;
  answers[0].unmeasured = {{"a dispatch kernel was not measured", 0.5, true, true, true}};
  rank(answers, false);
  EXPECT_EQ(answers[0].bar, Bar::kNoRows);
  EXPECT_EQ(decide(answers).winner, 1);
  answers.pop_back();
  answers[0].bar = Bar::kNone;
  rank(answers, false);  // alone it is all there is
  EXPECT_EQ(answers[0].bar, Bar::kNone);
}

TEST(Sentences, SayWhichAreAlikeAndWhatTheOthersCost) {
  const Comparison c = compared({of("alltoall", 1.0, std::vector<double>(20, 1.0)),
                                 of("hybrid", 1.01, std::vector<double>(20, 1.01)),
                                 of("allgather", 1.24, std::vector<double>(20, 1.24))});
  EXPECT_THAT(c.decision.alike, ElementsAre(0, 1));
  EXPECT_THAT(sentence(c),
              AllOf(HasSubstr("alltoall and hybrid are within 1.0 % of each other: run either of them"),
                    HasSubstr("allgather takes 24 % longer"), Not(HasSubstr("wins"))));
  EXPECT_THAT(because(c), HasSubstr("alltoall saves"));
}

TEST(Sentences, SayOfAnOpenChoiceWhatItMayCost) {
  std::vector<double> other(20, 1.2);
  for (int d = 0; d < 6; ++d) other[static_cast<std::size_t>(d)] = 0.8;
  const Comparison c = compared({of("a", 1, kFast), of("b", 1.1, other)});
  ASSERT_EQ(c.decision.verdict, Verdict::kOpen);
  EXPECT_THAT(sentence(c), AllOf(HasSubstr("Open between a and b"), HasSubstr("may be 25 % slower"),
                                 HasSubstr("more than the tolerance of 10 %")));
}

// Invariants of every decision, for any draws.
RC_GTEST_PROP(Decide, KeepsItsPromises, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(2, 5);
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<double> draws;
    for (int d = 0; d < 24; ++d) draws.push_back(*rc::gen::inRange(100, 200));
    answers.push_back(
        of(std::string(1, static_cast<char>('a' + i)), *rc::gen::inRange(100, 200), std::move(draws)));
  }
  const Comparison c = compared(std::move(answers));
  const Decision& d = c.decision;
  double shares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    shares += d.fastest[i];
    RC_ASSERT(d.losses[static_cast<std::size_t>(d.winner)].expected <= d.losses[i].expected);
    RC_ASSERT(d.losses[i].expected >= 0 && d.losses[i].at_most >= 0);
  }
  RC_ASSERT(std::abs(shares - 1) < 1e-9);
  RC_ASSERT((d.verdict == Verdict::kClear) == (*d.probability() >= Decision::kSure));
  if (d.verdict == Verdict::kSafe) RC_ASSERT(d.loss()->at_most <= d.tolerance);
  RC_ASSERT(sentence(c).find("wins") == std::string::npos);
}

}  // namespace
}  // namespace moesim::models
