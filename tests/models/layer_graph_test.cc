// Programs as a task graph: the same times as the recursion, what waits for what, which bytes travel.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/answers/answer.h"
#include "models/costs/cluster_costs.h"
#include "models/costs/program_prices.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/hardware/cluster_fabric.h"
#include "models/programs/program_builder.h"
#include "models/step/contention.h"
#include "models/step/layer_forecast.h"
#include "models/step/layer_programs.h"
#include "models/workload/placement.h"
#include "sim/run/simulator.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

// A resolved scenario with the programs and prices of its first dispatcher, all of which refer to it.
struct JobWithPrograms {
  explicit JobWithPrograms(Scenario given) : scenario(testing::resolved(std::move(given))) {}
  JobWithPrograms(const JobWithPrograms&) = delete;
  JobWithPrograms& operator=(const JobWithPrograms&) = delete;

  Scenario scenario;
  JobRouting routing{scenario};
  Placement placement{scenario};
  LayerPrograms programs{scenario, scenario.dispatchers.front(), routing, placement,
                         placement.dispatch_classes().front()};
  ProgramPricer pricer{*scenario.cluster};
};

std::vector<std::vector<std::int32_t>> consecutive(int groups, int ranks) {
  std::vector<std::vector<std::int32_t>> all(static_cast<std::size_t>(groups));
  std::int32_t next = 0;
  for (auto& gpus : all)
    for (int r = 0; r < ranks; ++r) gpus.push_back(next++);
  return all;
}

// The graph of a layer under calibrated prices against the recursion of time_layer().
TEST(LayerGraph, TakesAsLongAsTheRecursionUnderCalibratedPrices) {
  const Cluster cluster = Cluster::load("dgx-h100x2");
  const ProgramPricer prices(cluster);
  const ClusterCosts costs(cluster);
  int compared = 0;
  for (const DispatcherEntry& entry : dispatcher_registry())
    for (const int ep : {4, 16})
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        RoutingSpec spec;
        spec.kind = RoutingSpec::Kind::kUniform;
        const Routing routing = make_routing(spec, ep, 512, 16, 2, seed);
        MoeLayer layer;
        layer.hidden = 1024;
        layer.expert_ffn = 512;
        layer.ep = ep;
        layer.ranks_per_node = 8;
        layer.routing = &routing;
        const auto dispatcher = make_dispatcher(DispatcherSpec::parse(std::string(entry.name)));
        if (rule_against(*dispatcher, layer)) continue;
        const Program program = dispatcher->build(layer);
        const auto own_kernels = [](const std::vector<Op>& pass) {
          return std::any_of(pass.begin(), pass.end(), [](const Op& op) { return op.one_kernel; });
        };
        if (own_kernels(program.forward())) continue;  // their prices are not those of NCCL's collectives
        const GroupShapes shapes(cluster, program);
        const UnevenLoads loads(program, shapes);
        const auto forward = prices.price(program, program.forward(), shapes, loads);
        const auto backward = prices.price(program, program.backward(), shapes, loads);
        for (const bool there : {true, false}) {
          const sim::LockstepProgram& priced = there ? forward : backward;
          const auto seconds = [&](int groups) {
            const sim::TaskGraph graph = layer_graph(program, there ? program.forward() : program.backward(),
                                                     priced, prices.launch_ps(), consecutive(groups, ep));
            return sim::run(graph, costs).iteration().seconds();
          };
          sim::Lockstep clocks(static_cast<std::size_t>(program.ranks()),
                               {prices.launch_ps(), prices.overlap(program)});
          clocks.run({&priced});
          const double one = seconds(1);
          EXPECT_NEAR(one / (static_cast<double>(clocks.end()) * 1e-12), 1.0, 1e-6)
              << entry.name << " ep " << ep;
          if (ep == 4) {
            // Groups on the same node shape do the same.
            EXPECT_EQ(seconds(4), one) << entry.name;
          }
          ++compared;
        }
      }
  EXPECT_GT(compared, 20);
}

// Two kernels and a wait of the host between them, every one launched: launch, first kernel, copy, second
// launch, second kernel. Prices by hand.
TEST(LayerGraph, AHostThatWaitsLaunchesLater) {
  ProgramBuilder b(1, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  b.kernel("first", sim::Category::other, KernelClass::kElementwise, b.uniform(0), b.uniform(0));
  b.host_sync("wait", sim::Category::host_sync, b.uniform(8));
  b.kernel("second", sim::Category::other, KernelClass::kElementwise, b.uniform(0), b.uniform(0));
  const Program program = b.finish();
  ASSERT_EQ(program.forward().size(), 4u);  // kernel, copy, wait, kernel
  using Kind = sim::LockstepOp::Kind;
  sim::LockstepProgram priced;
  const auto add = [&](Kind kind, std::int64_t ps, std::int32_t launches, const Op& op) {
    sim::LockstepOp priced_op;
    priced_op.kind = kind;
    priced_op.launches = launches;
    priced_op.after = op.after;
    priced_op.first = static_cast<std::uint32_t>(priced.ps.size());
    priced.ps.push_back(ps);
    priced.ops.push_back(priced_op);
  };
  const std::vector<Op>& ops = program.forward();
  add(Kind::compute, 1000, 1, ops[0]);
  add(Kind::delay, 300, 0, ops[1]);
  add(Kind::host, 50, 0, ops[2]);
  add(Kind::compute, 2000, 1, ops[3]);
  const sim::TaskGraph graph = layer_graph(program, ops, priced, 100, consecutive(1, 1));
  const ClusterCosts costs(Cluster::load("dgx-h100x1"));
  EXPECT_EQ(sim::run(graph, costs).iteration().ps(), 100 + 1000 + 300 + 50 + 100 + 2000);
}

// Data inside another collective is added to its bytes, without a collective of its own.
TEST(LayerGraph, FusedExchangesAreOne) {
  const auto collectives = [](bool fused) {
    ProgramBuilder b(2, 1);
    b.begin(ProgramBuilder::Pass::kForward);
    const int matrix = b.matrix(GroupKind::kEp, {0, 3, 3, 0});
    b.all_to_all_v("rows", sim::Category::dispatch, DType::kBf16, matrix, false, 100);
    b.all_to_all_v("weights", sim::Category::dispatch, DType::kFp32, matrix, false, 4);
    if (fused) b.mark_kernel(false, true);
    const Program program = b.finish();
    sim::LockstepProgram priced;
    priced.ps = {1};
    priced.groups = std::make_shared<sim::LockstepGroups>(sim::LockstepGroups{{{0, 0}, 1}});
    for (const Op& op : program.forward()) {
      sim::LockstepOp one;
      one.kind = op.fused ? sim::LockstepOp::Kind::nothing : sim::LockstepOp::Kind::transfer;
      one.after = op.after;
      one.group = 0;
      priced.ops.push_back(one);
    }
    return layer_graph(program, program.forward(), priced, 0, consecutive(1, 2)).collective_count();
  };
  EXPECT_EQ(collectives(false), 2u);
  EXPECT_EQ(collectives(true), 1u);
}

// One MoE layer under one dispatcher: what its time is made of, with faults and on a network.

// A resolved scenario of one layer and its answer, which refers to it.
struct Job : JobWithPrograms {
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
    EXPECT_FALSE(f.layer);
  }
}

TEST(LayerForecaster, ServingIsForwardOnly) {
  const Job training(one_layer());
  Scenario s = one_layer();
  s.train = false;
  const Job serving(s);
  EXPECT_LT(serving.forecaster().total_ps(serving.pricer), training.forecaster().total_ps(training.pricer));
  EXPECT_TRUE(std::ranges::all_of(serving.forecaster().trace(serving.pricer)->passes, &ProgramPass::forward));
}

// The first layer is dense: the answer is of the second one, whose dispatcher runs there and back.
TEST(LayerForecaster, TracesAreOfTheFirstMoeLayer) {
  const Job job(one_layer("alltoall", "zipf:1.2"));
  const Forecast f = job.forecaster().forecast(job.pricer, {}, false, true);
  int forward = 0, backward = 0;
  std::int64_t last = 0;
  for (const LayerTrace::Pass& pass : f.layer->passes) {
    ASSERT_EQ(pass.tasks.size(), pass.ops().size() * f.layer->ranks);
    for (std::size_t i = 0; i < pass.tasks.size(); ++i) {
      const LayerTrace::Span span = f.layer->span(pass, i / f.layer->ranks, i % f.layer->ranks);
      EXPECT_LE(span.start, span.begin);
      EXPECT_LE(span.begin, span.end);
      last = std::max(last, span.end);
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
    return std::ranges::count(job.forecaster().trace(job.pricer)->passes, true, &ProgramPass::forward);
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

// Mutual slowdown of all groups of a job on a fabric.

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

struct JobOnFabric : JobWithPrograms {
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
  const JobOnFabric wide(step_on(testing::cluster_named("dgx-h100x8"), "alltoall", 8)),
      tight(step_on(tree(8, 8), "alltoall", 8));
  for (const JobOnFabric* job : {&wide, &tight}) {
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
  const JobOnFabric apart(step_on(testing::cluster_named("dgx-h100x8"), "alltoall", 8, 2)),
      together(step_on(testing::cluster_named("dgx-h100x8"), "alltoall", 32, 2));
  EXPECT_NEAR(apart.contention.of_stages(0, 1, 16e6), 1, 0.01);
  EXPECT_GT(together.contention.of_stages(0, 1, 16e6), 1.05);
  EXPECT_EQ(together.contention.of_stages(1, 0, 16e6), 1) << "no stage sends there";
}

TEST(Contention, OnlyCollectivesAreSlowed) {
  const JobOnFabric job(step_on(tree(8, 8), "alltoall", 32));
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
    const JobOnFabric job(step_on(tree(8, 4), dispatcher, 32));
    const Program& program = job.programs.first()->program;
    sim::LockstepProgram priced =
        job.pricer.price(program, program.forward(), job.programs.shapes(), job.programs.first()->loads);
    const std::vector<std::vector<std::int32_t>> groups = job.placement.dispatch_groups(0);
    sim::RunOptions options;
    options.timing = sim::Timing::flow;
    options.fabric = &job.fabric;
    const sim::Timeline whole =
        sim::run(layer_graph(program, program.forward(), priced, job.pricer.launch_ps(), groups),
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
