// Overload factors of a step (docs/spec.md 4): what the routing makes, what a log says, what logging costs.
#include "models/step/step_overload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/json_reader.h"
#include "base/random.h"
#include "models/costs/program_prices.h"
#include "models/hardware/cluster.h"
#include "models/step/faults.h"
#include "models/step/jitter.h"
#include "models/step/layer_programs.h"
#include "models/step/pipeline_layout.h"
#include "models/step/step_forecast.h"
#include "models/workload/placement.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// A resolved step of three MoE layers and two microbatches, and what is made of it.
struct Job {
  explicit Job(Scenario given, std::size_t dispatcher = 0)
      : scenario(testing::resolved(std::move(given))),
        programs(scenario, scenario.dispatchers[dispatcher], routing, placement,
                 placement.dispatch_classes().front()) {}
  Scenario scenario;
  JobRouting routing{scenario};
  Placement placement{scenario};
  PipelineLayout plan{scenario, false};
  LayerPrograms programs;

  StepOverload overload() const { return overload_of_step(scenario, plan, programs, routing); }
  // max over mean of what the first layer's ranks get.
  double factor() const {
    const auto& rows = programs.first()->program.dispatched_rows;
    return static_cast<double>(*std::max_element(rows.begin(), rows.end())) /
           (std::accumulate(rows.begin(), rows.end(), 0.0) / static_cast<double>(rows.size()));
  }
};

Scenario routed(const std::string& routing) {
  Scenario s = testing::small_job();
  s.routing = RoutingSpec::parse(routing);
  return s;
}

TEST(StepOverload, ExactBalanceIsOne) {
  const StepOverload o = Job(routed("round-robin")).overload();
  ASSERT_EQ(o.stages.size(), 1u);
  EXPECT_NEAR(o.stages[0].avg, 1, 1e-9);
  EXPECT_NEAR(o.stages[0].max, 1, 1e-9);
  EXPECT_NEAR(o.stages[0].max_cum, 1, 1e-9);
  EXPECT_EQ(o.entries, 3 * 2);
  EXPECT_EQ(o.recorded, 3 * 2);
  EXPECT_EQ(o.of_replicas, 2);  // eight GPUs, experts over four
  EXPECT_NEAR(o.rows.forward_rows, 64 * 2, 1e-6);
  EXPECT_NEAR(o.forward_bytes, 64 * 2 * 64 * 2, 1e-3);  // rows of 64 bf16 columns
}

// Every row is computed in slices by two ranks: balance is balance, and the log's u, which has no ETP,
// says 2.
TEST(StepOverload, SlicesAreNoImbalance) {
  Scenario s = routed("round-robin");
  s.parallel.etp = 2;
  const Job job(s);
  for (const StepOverload& o : {job.overload(), overload_of_layer(job.scenario, job.programs)}) {
    EXPECT_NEAR(o.stages[0].max, 1, 1e-9);
    EXPECT_NEAR(o.stages[0].max_cum, 1, 1e-9);
    EXPECT_NEAR(o.logged[0].max, 2, 1e-6);
    EXPECT_NEAR(o.logged[0].max_cum, 2, 1e-6);
    EXPECT_NEAR(o.rows.forward_rows, 2 * 64 * 2, 1e-6);
  }
}

// Where every layer routes alike, all entries have the same factor, and it cumulates unchanged.
TEST(StepOverload, OneRoutingForAllIsItsFactor) {
  const Job job(routed("zipf:1.2:shared"));
  const double f = job.factor();
  EXPECT_GT(f, 1.1);
  const StepOverload o = job.overload();
  for (const double metric : {o.stages[0].avg, o.stages[0].max, o.stages[0].max_cum})
    EXPECT_NEAR(metric, f, 1e-6);
  EXPECT_EQ(o.routings, 1);
  const StepOverload layer = overload_of_layer(job.scenario, job.programs);
  EXPECT_NEAR(layer.stages[0].max, f, 1e-6);
  EXPECT_EQ(layer.entries, 1);
  // 1F1B of one stage holds one microbatch: three layers of the worst rank's rows.
  EXPECT_NEAR(o.rows.retained_rows, 3 * f * 128, 1e-3);
}

// avg <= max, and no rank cumulates more than the worst entry says.
TEST(StepOverload, IndependentLayersShareTheBurden) {
  const Job job(routed("zipf:1.2"));
  const StepOverload o = job.overload();
  EXPECT_LE(o.stages[0].avg, o.stages[0].max);
  EXPECT_LT(o.stages[0].max_cum, o.stages[0].max);
  EXPECT_GE(o.stages[0].max_cum, 1);
  EXPECT_EQ(o.routings, 2 * 2);  // microbatches of two replicas
}

TEST(StepOverload, TheMeanIsOfAStageTheMaximumOfThePipeline) {
  Scenario s = routed("zipf:1.2:shared");
  s.parallel.pp = 4;
  s.parallel.ep = 2;
  const Job job(s);
  const StepOverload o = job.overload();
  ASSERT_EQ(o.stages.size(), 4u);
  EXPECT_EQ(o.stages[0].avg, 0);  // the dense layer
  for (const std::size_t stage : {0u, 1u, 2u, 3u}) EXPECT_NEAR(o.stages[stage].max, job.factor(), 1e-6);
  EXPECT_NEAR(o.printed().avg, job.factor(), 1e-6);
}

// The development branch divides AllGather's balanced rows by R once more; only the log says so.
TEST(StepOverload, TheQuirkIsOfTheLogAndOfAllGather) {
  Scenario s = routed("zipf:1.2:shared");
  s.training.overload.allgather_quirk = true;
  s.set_dispatchers("allgather,alltoall");
  const Job gather(s), exchange(s, 1);
  const StepOverload a = gather.overload(), b = exchange.overload();
  EXPECT_NEAR(a.logged[0].max, 4 * gather.factor(), 1e-4);
  EXPECT_NEAR(a.stages[0].max, gather.factor(), 1e-6);
  EXPECT_NEAR(b.logged[0].max, exchange.factor(), 1e-6);
}

TEST(StepOverload, GraphReplaysAreLoggedAsTheRecorderCan) {
  Scenario s = routed("zipf:1.2:shared");
  s.training.launch = named<LaunchMode>("launch", "graphs");
  const auto recorded = [&](const char* recorder) {
    s.training.overload.recorder = named<OverloadLog::Recorder>("overload recorder", recorder);
    return Job(s).overload();
  };
  EXPECT_EQ(recorded("deferred-clear").recorded, 6);
  EXPECT_EQ(recorded("journal").recorded, 6);
  const StepOverload cleared = recorded("direct-clear");
  EXPECT_EQ(cleared.recorded, 0);
  EXPECT_EQ(cleared.logged[0].max, 0);
  EXPECT_GT(cleared.stages[0].max, 1);
}

// Counts of the tracker: over the group three calls, over the replicas three, over the pipeline one; fused
// one each. Groups of one need none.
TEST(OverloadReport, CountsItsAllReduces) {
  const auto report = [](std::int64_t ep, std::int64_t pp, const char* how) {
    Scenario s = routed("balanced");
    s.parallel.ep = ep;
    s.parallel.pp = pp;
    s.training.overload.report = named<OverloadLog::Report>("overload report", how);
    const Job job(s);
    const ProgramPricer pricer(*job.scenario.cluster);
    return overload_report(job.scenario, job.plan, job.programs, job.placement, pricer);
  };
  EXPECT_EQ(report(4, 1, "none").calls, 0);
  EXPECT_EQ(report(4, 1, "none").seconds, 0);
  EXPECT_EQ(report(4, 1, "sequential").calls, 6);
  EXPECT_EQ(report(2, 2, "sequential").calls, 7);
  EXPECT_EQ(report(4, 2, "sequential").calls, 4);  // one replica
  EXPECT_EQ(report(2, 2, "fused").calls, 3);
  EXPECT_GT(report(2, 2, "sequential").seconds, report(2, 2, "fused").seconds);
}

// Where the faults of a machine meet the stages of a pipeline.

// 16 GPUs, two stages of eight, two dispatch groups of four in each.
std::vector<std::vector<RankFaults>> found(const std::string& faults, std::vector<std::string>& warnings,
                                           const std::string& cluster = "dgx-h100x2") {
  Scenario s = testing::small_job(cluster);
  s.parallel.pp = 2;
  s.parallel.dp = 8;
  s.give("parallel.dp");
  s.faults = Faults::parse(JsonNode::parse(faults, "faults.json"));
  s.resolve();
  return faults_of_stages(s, warnings);
}

TEST(FaultsOfStages, NothingSlowIsNothing) {
  std::vector<std::string> warnings;
  EXPECT_TRUE(found("{}", warnings).empty());
  EXPECT_TRUE(warnings.empty());
}

TEST(FaultsOfStages, FindTheirStageAndGroup) {
  std::vector<std::string> warnings;
  // GPU 13 is in stage 1 (8 to 15), in its second group (12 to 15), second there.
  const auto stages = found(R"({"slow_gpus": [{"gpu": 13, "factor": 1.5}]})", warnings);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_TRUE(stages[0].empty());
  ASSERT_EQ(stages[1].size(), 1u);
  EXPECT_THAT(stages[1][0].compute, ElementsAre(1, 1.5, 1, 1));
  EXPECT_THAT(stages[1][0].network, ElementsAre(1, 1, 1, 1));
  EXPECT_TRUE(warnings.empty());
  const auto both = found(
      R"({"slow_gpus": [{"gpu": 8, "factor": 2}], "nvlinks": [{"gpu": 15, "bandwidth": 0.5}]})", warnings);
  ASSERT_EQ(both[1].size(), 2u);  // one group each
  EXPECT_THAT(both[1][0].compute, ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(both[1][1].nvlink, ElementsAre(1, 1, 1, 2));
}

// Jitter alone is the same everywhere, one group stands for all; beside a real fault it does not count apart.
TEST(FaultsOfStages, JitterIsOneGroupOfEveryStage) {
  std::vector<std::string> warnings;
  const auto all = found(R"({"jitter": 0.1})", warnings);
  ASSERT_EQ(all.size(), 2u);
  for (const auto& stage : all) {
    ASSERT_EQ(stage.size(), 1u);
    EXPECT_EQ(stage[0].jitter, 0.1);
  }
  const auto both = found(R"({"jitter": 0.1, "slow_gpus": [{"gpu": 13, "factor": 1.5}]})", warnings);
  ASSERT_EQ(both[0].size(), 1u);
  ASSERT_EQ(both[1].size(), 1u);
  EXPECT_THAT(both[1][0].compute, ElementsAre(1, 1.5, 1, 1));
  EXPECT_EQ(both[1][0].jitter, 0.1);
}

TEST(FaultsOfStages, OutsideOfThePlanAreOnlySaid) {
  std::vector<std::string> warnings;
  const auto stages =
      found(R"({"slow_gpus": [{"gpu": 16, "factor": 2}], "nics": [{"gpu": 17, "bandwidth": 0.5}]})", warnings,
            "dgx-h100x4");
  EXPECT_THAT(warnings, ElementsAre("faults: 2 on GPUs that the plan does not use"));
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_TRUE(stages[0].empty());
  EXPECT_TRUE(stages[1].empty());
}

// Faults of the simulated machine: what they cost follows from where they are; failures and restarts against
// Daly's and a played-out history.

Faults faults_of(const std::string& text) { return Faults::parse(JsonNode::parse(text, "faults.json")); }

TEST(Faults, AFailedPortSharesItsNeighbours) {
  const Cluster cluster = Cluster::load("dgx-h100x2");
  const std::vector<std::int32_t> gpus{6, 7, 8, 9, 15};
  const RankFaults f = RankFaults::of(
      faults_of(R"({"nics": [{"gpu": 7, "bandwidth": 0}, {"gpu": 9, "bandwidth": 0.25}]})"), cluster, gpus);
  // GPU 7's neighbour is GPU 0 of its own node, which is not among these.
  EXPECT_THAT(f.network, ElementsAre(1, 2, 1, 4, 1));
  EXPECT_THAT(f.compute, Each(1));
  // The last one of the second node has the first of that node beside it.
  const RankFaults last =
      RankFaults::of(faults_of(R"({"nics": [{"gpu": 15, "bandwidth": 0}]})"), cluster, gpus);
  EXPECT_THAT(last.network, ElementsAre(1, 1, 2, 1, 2));
}

// Plays failures out: work, checkpoints, losses and restarts, a failure possible at any time.
double played(double mean, double interval, double dump, double restart, std::uint64_t seed) {
  Random random(seed);
  const auto next = [&] { return -mean * std::log(1 - random.uniform()); };
  double now = 0, failure = next(), done = 0;
  const int segments = 20000;
  for (int i = 0; i < segments;) {
    if (now + interval + dump <= failure) {
      now += interval + dump, done += interval, ++i;
      continue;
    }
    now = failure;
    failure = now + next();
    while (failure < now + restart) {
      now = failure;
      failure = now + next();
    }
    now += restart;
  }
  return done / now;
}

TEST(Goodput, IsWhatAPlayedOutHistoryKeeps) {
  Faults f;
  EXPECT_EQ(goodput(f, 1024, 10).share, 1);
  f.gpu_mtbf_hours = 30'000;
  f.checkpoint_s = 60;
  f.restart_s = 600;
  f.interval_s = 1800;
  for (const std::int64_t gpus : {1024, 16384}) {
    const double mean = f.gpu_mtbf_hours * 3600 / static_cast<double>(gpus);
    EXPECT_NEAR(goodput(f, gpus, 10).share, played(mean, 1800, 60, 600, 3), 0.01) << gpus;
    EXPECT_NEAR(goodput(f, gpus, 10).failures_per_day, 86400 / mean, 1e-9);
  }
}

TEST(Goodput, WhatNobodySaysIsAssumed) {
  Faults f, said;
  f.gpu_mtbf_hours = said.gpu_mtbf_hours = 50'000;
  said.checkpoint_s = 30;
  said.restart_s = 300;
  EXPECT_EQ(goodput(f, 32, 3).share, goodput(said, 32, 3).share);
  EXPECT_GT(goodput(f, 32, 3).interval_s, 3600) << "not a checkpoint after every step";
}

TEST(Goodput, TheBestIntervalIsTheBest) {
  Faults f;
  f.gpu_mtbf_hours = 30'000;
  f.checkpoint_s = 60;
  f.restart_s = 600;
  const Goodput best = goodput(f, 4096, 10);
  EXPECT_NEAR(best.interval_s, std::sqrt(2 * 60 * 30'000 * 3600.0 / 4096), 120);  // Young's first order
  for (const double other : {0.5, 0.8, 1.25, 2.0}) {
    f.interval_s = best.interval_s * other;
    EXPECT_LT(goodput(f, 4096, 10).share, best.share + 1e-4) << other;
  }
  f.interval_s = 0;
  EXPECT_GT(goodput(f, 1024, 10).share, best.share);
}

// Variation of the time of a step from one to the next.

Parallel plan(std::int64_t dp, std::int64_t pp, std::int64_t tp, std::int64_t microbatches) {
  Parallel p;
  p.dp = dp;
  p.pp = pp;
  p.tp = tp;
  p.microbatches = microbatches;
  return p;
}

// Trace AR of ByteDance-Seed/StragglerAnalysis: 64 GPUs, 32 microbatches, no spike in 44 steps; its step
// times lie at 1.0053 (p90) of the median. The forecast's quantiles hold spikes of one step in 38 beside
// that.
TEST(Jitter, TheStepsOfATraceThatItWasNotFittedTo) {
  const StepQuantiles q = step_quantiles(plan(3, 4, 4, 32), 1e6);
  EXPECT_DOUBLE_EQ(q.p50, 1e6);
  EXPECT_NEAR(q.p90 / q.p50, 1.0053, 0.0015);
  EXPECT_NEAR(q.p99 / q.p50, 1.05, 0.02);
}

TEST(Jitter, GrowsWithFewerPassesAndShrinksWithMoreGroupsThatWait) {
  const auto spread = [](const Parallel& p) {
    const StepQuantiles q = step_quantiles(p, 1);
    EXPECT_LT(q.p50, q.p90);
    EXPECT_LT(q.p90, q.p99);
    return q.p90 - q.p50;
  };
  EXPECT_GT(spread(plan(4, 1, 1, 1)), spread(plan(4, 1, 1, 64)));
  // The largest of many scatters less than one alone.
  EXPECT_GT(spread(plan(1, 1, 1, 8)), spread(plan(256, 1, 1, 8)));
}

}  // namespace
}  // namespace moesim::models
