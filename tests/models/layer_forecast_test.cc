// One MoE layer under one dispatcher: what its time is made of, with faults and on a network.
#include "models/step/layer_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/json_reader.h"
#include "models/hardware/cluster_fabric.h"
#include "models/step/contention.h"
#include "tests/models/job_with_programs.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

// A resolved scenario of one layer and its answer, which refers to it.
struct Job : testing::JobWithPrograms {
  using JobWithPrograms::JobWithPrograms;

  LayerForecaster forecaster(const std::optional<RankFaults>& faults = std::nullopt) const {
    return {scenario, programs, routing, faults, nullptr};
  }
  LayerForecaster forecaster_beside(const Contention& contention) const {
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

TEST(LayerForecaster, BookingAddsUpToTheTimeOfTheCriticalRank) {
  for (const char* dispatcher : {"alltoall", "allgather", "flex-deepep", "tutel:pipeline=2"}) {
    const Job job(one_layer(dispatcher, "zipf:1.2"));
    const Forecast f = job.forecaster().forecast(job.pricer, {}, true, false);
    const double booked = std::accumulate(f.breakdown_us.begin(), f.breakdown_us.end(), 0.0);
    EXPECT_NEAR(booked, f.time_us.value, 1e-6) << dispatcher;
    EXPECT_TRUE(f.layer.empty());
  }
}

TEST(LayerForecaster, ServingIsForwardOnly) {
  const Job training(one_layer());
  Scenario s = one_layer();
  s.train = false;
  const Job serving(s);
  EXPECT_LT(serving.forecaster().total_ps(serving.pricer), training.forecaster().total_ps(training.pricer));
  for (const PassTrace& pass : serving.forecaster().trace(serving.pricer)) EXPECT_TRUE(pass.forward);
}

// The first layer is dense: the answer is of the second one, whose dispatcher runs there and back.
TEST(LayerForecaster, TracesAreOfTheFirstMoeLayer) {
  const Job job(one_layer("alltoall", "zipf:1.2"));
  const Forecast f = job.forecaster().forecast(job.pricer, {}, false, true);
  int forward = 0, backward = 0;
  std::int64_t last = 0;
  for (const PassTrace& pass : f.layer) {
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
  EXPECT_EQ(last, job.forecaster().total_ps(job.pricer));
}

// Computing on one rank takes twice as long: later than healthy, never twice as late.
TEST(LayerForecaster, ASlowRankHoldsTheOthers) {
  const Job job(one_layer());
  RankFaults faults;
  faults.compute.assign(8, 1);
  faults.nvlink = faults.network = faults.compute;
  faults.compute[3] = 2;
  const LayerForecaster forecaster = job.forecaster(faults);
  const std::int64_t slow = forecaster.total_ps(job.pricer), healthy = forecaster.total_ps(job.pricer, false);
  EXPECT_GT(slow, healthy);
  EXPECT_LE(slow, 2 * healthy);
}

TEST(LayerForecaster, RecomputationRunsTheForwardAgain) {
  Scenario s = one_layer();
  s.training.recompute = StepRecompute::parse("full");
  const Job plain(one_layer()), again(s);
  EXPECT_GT(again.forecaster().total_ps(again.pricer), plain.forecaster().total_ps(plain.pricer));
  const auto forwards = [](const Job& job) {
    const std::vector<PassTrace> passes = job.forecaster().trace(job.pricer);
    return std::ranges::count(passes, true, &PassTrace::forward);
  };
  EXPECT_EQ(forwards(again), 2 * forwards(plain));
}

// One group alone on its node has the network to itself.
TEST(LayerForecaster, OnANetworkThatNothingFillsItTakesAsLong) {
  for (const char* dispatcher : {"alltoall", "allgather", "flex-deepep", "alltoall:batch_overlap=true"}) {
    const Job job(one_layer(dispatcher, "zipf:1.2"));
    const sim::Fabric fabric = cluster_fabric(*job.scenario.cluster);
    const Contention contention(job.scenario, job.programs, job.pricer, fabric);
    const auto flow = static_cast<double>(job.forecaster_beside(contention).total_ps(job.pricer));
    const auto calibrated = static_cast<double>(job.forecaster().total_ps(job.pricer));
    EXPECT_NEAR(flow / calibrated, 1, 0.01) << dispatcher;
    EXPECT_EQ(contention.report(0).groups, 1);
    EXPECT_FALSE(contention.report(0).busiest.from.empty());
  }
}

}  // namespace
}  // namespace moesim::models
