// Overload factors of a step (docs/spec.md 4): what the routing makes, what a log says, what logging costs.
#include "models/step/step_overload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "models/costs/program_prices.h"
#include "models/step/layer_programs.h"
#include "models/step/pipeline_layout.h"
#include "models/workload/placement.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

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

}  // namespace
}  // namespace moesim::models
