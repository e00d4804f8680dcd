// One MoE layer under one dispatcher: what its time is made of, with faults and on a network.
#include "models/answers/layer_answer.h"

#include <gtest/gtest.h>

#include "base/json_reader.h"
#include "tests/models/job_with_programs.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

// A resolved scenario of one layer and its answer, which refers to it.
struct Job : testing::JobWithPrograms {
  using JobWithPrograms::JobWithPrograms;

  LayerAnswer answer(const std::optional<RankFaults>& faults = std::nullopt) const {
    return {scenario, programs, routing, faults, nullptr};
  }
  LayerAnswer answer_beside(const Contention& contention) const {
    return {scenario, programs, routing, std::nullopt, &contention};
  }
};

Scenario one_layer(const std::string& dispatcher = "alltoall", const std::string& routing = "balanced") {
  Scenario s = testing::small_job();
  s.scope = Scenario::Scope::kLayer;
  s.parallel.ep = 8;  // one dispatch group on the node
  s.parallel.microbatches = 1;
  s.set_dispatchers(dispatcher);
  s.routing = RoutingSpec::parse(routing);
  return s;
}

TEST(LayerAnswer, BookingAddsUpToTheTimeOfTheCriticalRank) {
  for (const char* dispatcher : {"alltoall", "allgather", "flex-deepep", "tutel:pipeline=2"}) {
    const Job job(one_layer(dispatcher, "zipf:1.2"));
    const LayerAnswer::Timed timed = job.answer().time(job.pricer, true, false);
    std::int64_t booked = 0;
    for (const sim::Time part : timed.booked.breakdown) booked += part.ps();
    EXPECT_EQ(booked, timed.total_ps) << dispatcher;
    EXPECT_TRUE(timed.traces.empty());
  }
}

TEST(LayerAnswer, ServingIsForwardOnly) {
  const Job training(one_layer());
  Scenario s = one_layer();
  s.train = false;
  const Job serving(s);
  const auto both = training.answer().time(training.pricer, false, true),
             forward = serving.answer().time(serving.pricer, false, true);
  EXPECT_LT(forward.total_ps, both.total_ps);
  for (const PassTrace& pass : forward.traces) EXPECT_TRUE(pass.forward);
}

// The first layer is dense: the answer is of the second one, whose dispatcher runs there and back.
TEST(LayerAnswer, TracesAreOfTheFirstMoeLayer) {
  const Job job(one_layer("alltoall", "zipf:1.2"));
  const LayerAnswer::Timed timed = job.answer().time(job.pricer, false, true);
  int forward = 0, backward = 0;
  std::int64_t last = 0;
  for (const PassTrace& pass : timed.traces) {
    ASSERT_EQ(pass.trace.end.size(), pass.pass().size() * pass.trace.ranks);
    for (std::size_t i = 0; i < pass.trace.end.size(); ++i) {
      EXPECT_LE(pass.trace.start[i], pass.trace.begin[i]);
      EXPECT_LE(pass.trace.begin[i], pass.trace.end[i]);
      last = std::max(last, pass.trace.end[i]);
    }
    if (!pass.dispatcher) continue;
    EXPECT_EQ(pass.program, &job.programs.first()->program);
    ++(pass.forward ? forward : backward);
  }
  EXPECT_EQ(forward, 1);
  EXPECT_EQ(backward, 1);
  EXPECT_EQ(last, timed.total_ps);
}

// Computing on one rank takes twice as long: later than healthy, never twice as late.
TEST(LayerAnswer, ASlowRankHoldsTheOthers) {
  const Job job(one_layer());
  RankFaults faults;
  faults.compute.assign(8, 1);
  faults.nvlink = faults.network = faults.compute;
  faults.compute[3] = 2;
  const LayerAnswer answer = job.answer(faults);
  const std::int64_t slow = answer.time(job.pricer, false, false).total_ps,
                     healthy = answer.time(job.pricer, false, false, false).total_ps;
  EXPECT_GT(slow, healthy);
  EXPECT_LE(slow, 2 * healthy);
}

TEST(LayerAnswer, RecomputationRunsTheForwardAgain) {
  Scenario s = one_layer();
  s.training.recompute = StepRecompute::parse("full");
  const Job plain(one_layer()), again(s);
  const auto once = plain.answer().time(plain.pricer, false, true),
             twice = again.answer().time(again.pricer, false, true);
  EXPECT_GT(twice.total_ps, once.total_ps);
  const auto forwards = [](const LayerAnswer::Timed& timed) {
    int count = 0;
    for (const PassTrace& pass : timed.traces) count += pass.forward ? 1 : 0;
    return count;
  };
  EXPECT_EQ(forwards(twice), 2 * forwards(once));
}

// One group alone on its node has the network to itself.
TEST(LayerAnswer, OnANetworkThatNothingFillsItTakesAsLong) {
  for (const char* dispatcher : {"alltoall", "allgather", "flex-deepep", "alltoall:batch_overlap=true"}) {
    const Job job(one_layer(dispatcher, "zipf:1.2"));
    const sim::Fabric fabric = cluster_fabric(*job.scenario.cluster);
    const Contention contention(job.scenario, job.programs, job.pricer, fabric);
    const auto flow =
        static_cast<double>(job.answer_beside(contention).time(job.pricer, false, false).total_ps);
    const auto calibrated = static_cast<double>(job.answer().time(job.pricer, false, false).total_ps);
    EXPECT_NEAR(flow / calibrated, 1, 0.01) << dispatcher;
    EXPECT_EQ(contention.report(0).groups, 1);
    EXPECT_FALSE(contention.report(0).busiest.from.empty());
  }
}

}  // namespace
}  // namespace moesim::models
