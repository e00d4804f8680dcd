// Mutual slowdown of all groups of a job on a fabric.
#include "models/step/contention.h"

#include <gtest/gtest.h>

#include <string>

#include "base/input_error.h"
#include "models/answers/answer.h"
#include "models/step/layer_forecast.h"
#include "models/step/layer_graph.h"
#include "sim/run/simulator.h"
#include "tests/models/job_with_programs.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

// DGX nodes under leaves of two nodes, whose uplinks are `oversubscription` times too few.
std::shared_ptr<const Cluster> tree(int nodes, double oversubscription) {
  Cluster cluster = Cluster::load("dgx-h100x" + std::to_string(nodes));
  cluster.fabric = R"({"preset": "fat-tree", "nodes_per_leaf": 2, "spines": 2, "oversubscription": )" +
                   std::to_string(oversubscription) + "}";
  return std::make_shared<const Cluster>(std::move(cluster));
}

Scenario step_on(std::shared_ptr<const Cluster> cluster, const std::string& dispatcher, std::int64_t ep,
                 std::int64_t pp = 1) {
  Scenario s = testing::published_job();
  s.cluster = std::move(cluster);
  s.set_dispatchers(dispatcher);
  s.parallel.ep = ep;
  s.parallel.pp = pp;
  return s;
}

Answer asked(const Scenario& s, bool flow) {
  AnswerOptions options;
  options.draws = 0;
  options.flow = flow;
  options.breakdown = true;
  return answer(s, options).answers.front();
}

struct Job : testing::JobWithPrograms {
  using JobWithPrograms::JobWithPrograms;
  sim::Fabric fabric = cluster_fabric(*scenario.cluster);
  Contention contention{scenario, programs, pricer, fabric};
};

// Exchanges stay inside of nodes, and every replica's gradients have a port to themselves.
TEST(Contention, AStepThatSharesNothingTakesAsLong) {
  for (const char* dispatcher : {"alltoall", "allgather", "flex-deepep", "flex-hybridep"}) {
    const Scenario s = step_on(testing::cluster_named("dgx-h100x4"), dispatcher, 8);
    const Answer calibrated = asked(s, false), flow = asked(s, true);
    EXPECT_NEAR(flow.time_us.value / calibrated.time_us.value, 1, 0.01) << dispatcher;
    EXPECT_EQ(flow.network.groups, 4);
    EXPECT_NEAR(flow.network.calibrated_us, calibrated.time_us.value, 1e-6 * calibrated.time_us.value);
  }
}

TEST(Contention, ATighterTreeIsNeverFaster) {
  for (const char* dispatcher : {"alltoall", "allgather", "flex-deepep"}) {
    double before = 0;
    for (const double oversubscription : {1.0, 2.0, 4.0, 8.0}) {
      const double us = asked(step_on(tree(8, oversubscription), dispatcher, 32, 2), true).time_us.value;
      EXPECT_GE(us, before * 0.999) << dispatcher << oversubscription;
      before = us;
    }
    EXPECT_GT(before, 1.2 * asked(step_on(tree(8, 1), dispatcher, 32, 2), false).time_us.value);
  }
}

// The additional time of a step adds up like the rest of it.
TEST(Contention, TheBreakdownAddsUpToTheStep) {
  const Answer a = asked(step_on(tree(8, 8), "alltoall:batch_overlap=true", 32), true);
  double sum = 0;
  for (const double us : a.breakdown_us) sum += us;
  EXPECT_NEAR(sum, a.time_us.value, 1e-6 * a.time_us.value);
  EXPECT_GT(a.time_us.value, a.network.calibrated_us);
}

TEST(Contention, GradientsOfAllReplicasMeetAboveTheLeaves) {
  const Job wide(step_on(testing::cluster_named("dgx-h100x8"), "alltoall", 8)),
      tight(step_on(tree(8, 8), "alltoall", 8));
  for (const Job* job : {&wide, &tight}) {
    const Placement::Members all{&job->placement.expert_replicas(), 8, false};
    const double factor = job->contention.of_replicas(sim::CollectiveOp::reduce_scatter, all, 64e6);
    if (job == &wide) {
      EXPECT_NEAR(factor, 1, 0.01);
    } else {
      EXPECT_GT(factor, 1.5);
    }
    // One node's replicas use NVLink only.
    const Placement::Members neighbours{&job->placement.dense_replicas(), 8, false};
    EXPECT_NEAR(job->contention.of_replicas(sim::CollectiveOp::all_gather, neighbours, 64e6), 1, 0.01);
  }
}

// An exchange between nodes takes from what stages send; one inside a node does not meet it.
TEST(Contention, SendsBetweenStagesMeetExchanges) {
  const Job apart(step_on(testing::cluster_named("dgx-h100x8"), "alltoall", 8, 2)),
      together(step_on(testing::cluster_named("dgx-h100x8"), "alltoall", 32, 2));
  EXPECT_NEAR(apart.contention.of_stages(0, 1, 16e6), 1, 0.01);
  EXPECT_GT(together.contention.of_stages(0, 1, 16e6), 1.05);
  EXPECT_EQ(together.contention.of_stages(1, 0, 16e6), 1) << "no stage sends there";
}

TEST(Contention, OnlyCollectivesAreSlowed) {
  const Job job(step_on(tree(8, 8), "alltoall", 32));
  const Program& program = job.programs.first()->program;
  sim::LockstepProgram priced =
      job.pricer.price(program, program.forward(), job.programs.shapes(), job.programs.first()->loads);
  const sim::LockstepProgram before = priced;
  job.contention.slow(program, true, priced);
  bool slowed = false;
  for (std::size_t i = 0; i < program.forward().size(); ++i)
    for (std::size_t r = 0; r < 32; ++r) {
      const std::int64_t was = before.at(before.ops[i], r), is = priced.at(priced.ops[i], r);
      if (program.forward()[i].kind != OpKind::kCollective) {
        EXPECT_EQ(is, was);
      }
      EXPECT_GE(is, was);
      slowed = slowed || is > was;
    }
  EXPECT_TRUE(slowed);
}

// The factors against the whole pass on all groups, followed message by message.
TEST(Contention, AgreesWithThePassFollowedWhole) {
  for (const char* dispatcher : {"alltoall", "allgather"}) {
    const Job job(step_on(tree(8, 4), dispatcher, 32));
    const Program& program = job.programs.first()->program;
    sim::LockstepProgram priced =
        job.pricer.price(program, program.forward(), job.programs.shapes(), job.programs.first()->loads);
    const PricedPass pass{&program, &program.forward(), &priced};
    std::vector<std::vector<std::int32_t>> groups = job.placement.dispatch_groups(0);
    sim::RunOptions options;
    options.timing = sim::Timing::flow;
    options.fabric = &job.fabric;
    const sim::Timeline whole = sim::run(layer_graph(std::span(&pass, 1), job.pricer.launch_ps(), groups),
                                         ClusterCosts(*job.scenario.cluster), options);
    job.contention.slow(program, true, priced);
    sim::Lockstep clocks(32, {job.pricer.launch_ps(), {}});
    clocks.run({&priced});
    EXPECT_NEAR(static_cast<double>(clocks.end()) / static_cast<double>(whole.iteration().ps()), 1, 0.03)
        << dispatcher;
  }
}

TEST(Contention, FaultsAreRefused) {
  Scenario s = step_on(tree(8, 2), "alltoall", 8);
  s.faults.slow_gpus.push_back({0, 2});
  EXPECT_THROW(asked(s, true), InputError);
}

}  // namespace
}  // namespace moesim::models
