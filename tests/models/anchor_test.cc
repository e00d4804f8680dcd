// A run of one's own anchors the forecasts of the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "models/answers/answer.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using ::testing::HasSubstr;

Scenario step_of(const char* dispatchers) {
  Scenario s;
  s.set_model("olmoe");
  s.set_cluster("dgx-h100x2");
  s.set_dispatchers(dispatchers);
  s.parallel.ep = 8;
  s.parallel.dp = 16;
  s.give("parallel.dp");
  s.scope = Scenario::Scope::kStep;
  return s;
}

Comparison anchored(const Scenario& s, std::vector<Measured> measured,
                    double tolerance = Decision::kTolerance) {
  AnswerOptions options;
  options.measured = std::move(measured);
  options.tolerance = tolerance;
  return answer(s, options);
}

double width(const Estimate& e) { return e.high / e.low; }

TEST(Anchor, WhatWasMeasuredIsKnownAndTheOthersFollow) {
  const Scenario s = step_of("allgather,alltoall,flex-deepep");
  const Comparison before = answer(s, {.draws = kAnchorDraws});
  const double slower = 1.2 * before.answers[1].time_us.value;
  const Comparison after = anchored(s, {{"alltoall", slower}});
  ASSERT_TRUE(after.anchor && after.anchor->explained);
  EXPECT_DOUBLE_EQ(after.answers[1].time_us.value, slower);
  EXPECT_LT(width(after.answers[1].time_us), 1.05);
  for (const std::size_t i : {0u, 2u}) {
    // The others are slower than forecast, too, and better known than before.
    EXPECT_GT(after.answers[i].time_us.value, 1.05 * before.answers[i].time_us.value) << i;
    EXPECT_LT(after.answers[i].time_us.value, 1.35 * before.answers[i].time_us.value) << i;
    EXPECT_LT(width(after.answers[i].time_us), width(before.answers[i].time_us)) << i;
    EXPECT_DOUBLE_EQ(after.anchor->forecasts[i].value, before.answers[i].time_us.value);
  }
}

TEST(Anchor, MoreRunsTellMore) {
  const Scenario s = step_of("allgather,alltoall,flex-deepep");
  const Comparison before = answer(s, {.draws = kAnchorDraws});
  const double a = before.answers[0].time_us.value, b = before.answers[1].time_us.value;
  const Comparison one = anchored(s, {{"alltoall", 1.1 * b}}),
                   two = anchored(s, {{"alltoall", 1.1 * b}, {"allgather", 1.1 * a}});
  EXPECT_LE(width(two.answers[2].time_us), 1.02 * width(one.answers[2].time_us));
}

TEST(Anchor, CarriesOverToAnotherPlan) {
  const Scenario s = step_of("alltoall");
  const Comparison own = answer(s, {.draws = 0});
  const Comparison run = anchored(s, {{"", 1.2 * own.answers[0].time_us.value}});
  Scenario other = s;
  other.parallel.ep = 4;
  AnswerOptions options;
  options.anchor = &*run.anchor;
  const Comparison there = answer(other, options), alone = answer(other, {.draws = kAnchorDraws});
  EXPECT_NEAR(there.answers[0].time_us.value / alone.answers[0].time_us.value, 1.2, 0.1);
  EXPECT_LT(width(there.answers[0].time_us), width(alone.answers[0].time_us));
}

TEST(Anchor, ARunThatNothingExplainsIsToldWithItsSuspects) {
  Scenario s = step_of("alltoall");
  s.training.launch = named<LaunchMode>("launch", "eager");
  s.give("training.launch");
  Scenario full = s;
  full.training.recompute = StepRecompute::parse("full");
  full.give("training.recompute");
  const double recomputed = answer(full, {.draws = 0}).answers[0].time_us.value;
  const Comparison far = anchored(s, {{"alltoall", 8 * recomputed}});
  ASSERT_FALSE(far.anchor->explained);
  const Comparison half = anchored(s, {{"alltoall", 0.2 * recomputed}});
  EXPECT_FALSE(half.anchor->explained);
  // The forecasts stay what they were.
  EXPECT_DOUBLE_EQ(far.answers[0].time_us.value, answer(s, {.draws = 0}).answers[0].time_us.value);
}

TEST(Anchor, RefusesWhatItDoesNotKnow) {
  const Scenario s = step_of("allgather,alltoall");
  const auto refusal = [&](std::vector<Measured> measured) {
    return moesim::testing::message_of([&] { anchored(s, std::move(measured)); });
  };
  EXPECT_THAT(refusal({{"altoall", 1e6}}), HasSubstr("did you mean 'alltoall'"));
  EXPECT_THAT(refusal({{"", 1e6}}), HasSubstr("expected DISPATCHER=TIME"));
}

// A name without options is the one that was asked for so, and no other of two.
TEST(Anchor, TakesTheDispatcherThatWasMeant) {
  const Scenario both = step_of("flex-deepep:sms=8,flex-deepep");
  const double us = answer(both, {.draws = 0}).answers[1].time_us.value;
  EXPECT_DOUBLE_EQ(anchored(both, {{"flex-deepep", us}}).answers[1].time_us.value, us);
  const Scenario two = step_of("flex-deepep:sms=8,flex-deepep:sms=16");
  EXPECT_THAT(moesim::testing::message_of([&] {
                anchored(two, {{"flex-deepep", us}});
              }),
              HasSubstr("expected one with its options"));
}

// The layer of the step: what its host takes carries over, what frameworks differ in stays as uncertain.
TEST(Anchor, AMeasuredLayerCarriesOverToSteps) {
  Scenario s = step_of("allgather,alltoall");
  s.training.launch = named<LaunchMode>("launch", "eager");
  s.give("training.launch");
  Scenario layer = s;
  layer.scope = Scenario::Scope::kLayer;
  const Comparison before = answer(s, {.draws = kAnchorDraws}),
                   alone = answer(layer, {.draws = kAnchorDraws});
  double last = 0;
  for (const double by : {0.9, 1.0, 1.4}) {
    const Comparison c = anchored(s, {{"alltoall", by * alone.answers[1].time_us.value, true}});
    ASSERT_TRUE(c.anchor->explained) << by;
    EXPECT_EQ(c.anchor->known("alltoall"), -1);
    EXPECT_DOUBLE_EQ(c.anchor->before[0].value, alone.answers[1].time_us.value);
    EXPECT_GT(c.answers[1].time_us.value, last) << by;
    last = c.answers[1].time_us.value;
    EXPECT_GT(width(c.answers[1].time_us), std::exp(2 * 1.645 * 0.14)) << by;
  }
  EXPECT_GT(last, before.answers[1].time_us.value);
  const Comparison far = anchored(s, {{"alltoall", 20 * alone.answers[1].time_us.value, true}});
  EXPECT_FALSE(far.anchor->explained);
}

// Settings of whole steps do not hinder the layer, and a step beside it is known exactly.
TEST(Anchor, ALayerAndAStepAreBothTaken) {
  Scenario s = step_of("allgather,alltoall");
  s.batch = GlobalBatch::parse("64");
  s.give("parallel.global_batch");
  s.training.overlap.expert_communication = true;
  s.give("training.overlap.expert_communication");
  Scenario layer = step_of("allgather,alltoall");
  layer.scope = Scenario::Scope::kLayer;
  const double step_us = 1.1 * answer(s, {.draws = 0}).answers[1].time_us.value,
               layer_us = 1.1 * answer(layer, {.draws = 0}).answers[0].time_us.value;
  const Comparison c = anchored(s, {{"alltoall", step_us}, {"allgather", layer_us, true}});
  ASSERT_TRUE(c.anchor->explained);
  EXPECT_DOUBLE_EQ(c.answers[1].time_us.value, step_us);
  EXPECT_EQ(c.anchor->known("alltoall"), 0);
  EXPECT_EQ(c.anchor->known("allgather"), -1);
}

TEST(Anchor, SpansAreAsLongAsTheTime) {
  Scenario s = step_of("alltoall");
  s.parallel.pp = 2;
  s.parallel.dp = 8;
  AnswerOptions options;
  options.draws = 0;
  options.trace = true;
  const Answer before = answer(s, options).answers[0];
  options.measured = {{"", 1.2 * before.time_us.value}};
  const Answer after = answer(s, options).answers[0];
  ASSERT_FALSE(before.slots.empty());
  ASSERT_EQ(after.slots.size(), before.slots.size());
  const auto by_factor = [](std::int64_t now, std::int64_t then) {
    return std::abs(static_cast<double>(now) - 1.2 * static_cast<double>(then)) <= 1;
  };
  for (std::size_t i = 0; i < after.slots.size(); ++i)
    EXPECT_TRUE(by_factor(after.slots[i].to, before.slots[i].to)) << i;
  for (std::size_t i = 0; i < after.stage_end.size(); ++i)
    EXPECT_TRUE(by_factor(after.stage_end[i], before.stage_end[i])) << i;
  ASSERT_TRUE(before.layer);
  for (std::uint32_t i = 0; i < before.layer->graph.task_count(); ++i)
    EXPECT_TRUE(by_factor(after.layer->timeline.end(sim::TaskId(i)).ps(),
                          before.layer->timeline.end(sim::TaskId(i)).ps()))
        << i;
}

// A law: a slower run never makes another dispatcher's forecast faster.
TEST(Anchor, ASlowerRunMakesNothingFaster) {
  const Scenario s = step_of("allgather,alltoall");
  const double own = answer(s, {.draws = 0}).answers[1].time_us.value;
  double before = 0;
  for (const double by : {0.8, 0.95, 1.0, 1.1, 1.3}) {
    const Comparison c = anchored(s, {{"alltoall", by * own}});
    ASSERT_TRUE(c.anchor->explained) << by;
    EXPECT_GE(c.answers[0].time_us.value, 0.995 * before) << by;
    before = c.answers[0].time_us.value;
  }
}

}  // namespace
}  // namespace moesim::models
