// Transfers around the passes of a step: each is the collective that the plan says, priced once.
#include "models/step/transfers.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <utility>

#include "models/answers/answer.h"
#include "models/step/parameter_collectives.h"
#include "models/step/pipeline_layout.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using sim::CollectiveOp;

// Eight GPUs of one DGX: dense weights on all eight, experts on four ranks twice.
struct Job {
  explicit Job(Scenario given) : scenario(testing::resolved(std::move(given))) {}
  Scenario scenario;
  Placement placement{scenario};
  ProgramPricer pricer{*scenario.cluster};
  PipelineLayout plan{scenario, false};

  PipelineTransfers transfers(const LinkFaults& faults = {}, bool waits_before_experts = false) const {
    return transfers_of(scenario.model.experts, faults, waits_before_experts);
  }
  PipelineTransfers transfers_of(std::int64_t slots, const LinkFaults& faults = {},
                                 bool waits_before_experts = false) const {
    return step_transfers({.scenario = scenario,
                           .chunks = plan.chunks,
                           .slots = slots,
                           .placement = placement,
                           .pricer = pricer,
                           .network_of = [](std::size_t, bool) { return 0; },
                           .kept_of_pass = [] { return std::vector<double>{1e9}; },
                           .faults = faults,
                           .waits_before_experts = waits_before_experts});
  }
  StageParameters parameters(std::size_t chunk = 0) const {
    return chunk_parameters(scenario.model, scenario.parallel, plan.chunks[chunk]);
  }
  double seconds(CollectiveOp op, const Placement::Replicas& replicas, double bytes) const {
    return pricer.collectives().seconds(op, replicas.all.front(), bytes);
  }
};

Scenario sharded(const std::string& sharding) {
  Scenario s = testing::small_job();
  s.training.set_sharding(sharding);
  return s;
}

// Transfers that must not overlap find no room beside a pass, so that all of them extend it.
TEST(StepTransfers, WithoutOverlapGathersOfEveryPassHideBehindNothing) {
  const auto links = [](bool parameters, bool gradients) {
    Scenario s = sharded("fsdp");
    s.training.overlap.parameters = parameters;
    s.training.overlap.gradients = gradients;
    const PipelineTransfers t = Job(s).transfers();
    constexpr std::int64_t kNoPass = std::int64_t{1} << 60;
    return std::pair(t.sharded[0].forward_link > kNoPass, t.sharded[0].backward_link > kNoPass);
  };
  EXPECT_EQ(links(true, true), std::pair(false, false));
  EXPECT_EQ(links(true, false), std::pair(false, true));
  EXPECT_EQ(links(false, true), std::pair(true, true));  // backward gathers again
}

// A rank with two copies of every expert has twice their gradients and state.
TEST(StepTransfers, CopiesOfExpertsTravelAndAreUpdated) {
  const Job job(sharded("zero1"));
  const std::int64_t experts = job.scenario.model.experts;
  const PipelineTransfers once = job.transfers_of(experts), twice = job.transfers_of(2 * experts);
  EXPECT_GT(twice.gradients[0], once.gradients[0]);
  EXPECT_GT(twice.parameters[0], once.parameters[0]);
  EXPECT_GE(twice.optimizer[0], once.optimizer[0]);
}

TEST(StepTransfers, Zero1GathersWeightsAndScattersGradients) {
  const Job job(sharded("zero1"));
  const PipelineTransfers t = job.transfers();
  const StageParameters n = job.parameters();
  ASSERT_EQ(t.parameters.size(), 1u);
  // bf16 weights and fp32 gradients, a piece per rank.
  EXPECT_EQ(t.parameters[0],
            to_ps(job.seconds(CollectiveOp::all_gather, job.placement.dense_replicas(), n.dense * 2 / 8) +
                  job.seconds(CollectiveOp::all_gather, job.placement.expert_replicas(), n.experts * 2 / 2)));
  EXPECT_EQ(
      t.gradients[0],
      to_ps(job.seconds(CollectiveOp::reduce_scatter, job.placement.dense_replicas(), n.dense * 4 / 8) +
            job.seconds(CollectiveOp::reduce_scatter, job.placement.expert_replicas(), n.experts * 4 / 2)));
  EXPECT_EQ(t.pieces[0], 4);  // a layer each
  EXPECT_TRUE(t.sharded.empty());
}

TEST(StepTransfers, DdpReducesWholeGradientsAndGathersNothing) {
  const Job job(sharded("ddp"));
  const PipelineTransfers t = job.transfers();
  const StageParameters n = job.parameters();
  EXPECT_EQ(t.parameters[0], 0);
  EXPECT_EQ(t.gradients[0],
            to_ps(job.seconds(CollectiveOp::all_reduce, job.placement.dense_replicas(), n.dense * 4) +
                  job.seconds(CollectiveOp::all_reduce, job.placement.expert_replicas(), n.experts * 4)));
}

// Gradients are scattered in every pass, as FSDP's, and the weights that the optimizer changed are gathered once.
TEST(StepTransfers, Zero2ScattersInEveryPassAndGathersOnce) {
  Scenario s = sharded("zero2");
  s.training.overlap.parameters = false, s.training.overlap.gradients = true;
  const PipelineTransfers two = Job(s).transfers(), one = Job(sharded("zero1")).transfers();
  Scenario kept = sharded("fsdp");
  kept.training.reshard_after_forward = false;
  ASSERT_EQ(two.sharded.size(), 1u);
  EXPECT_EQ(two.sharded[0].forward, 0);
  EXPECT_EQ(two.sharded[0].backward, Job(kept).transfers().sharded[0].backward);
  EXPECT_EQ(two.sharded[0].backward_link, 0);  // the next layer's pass hides them
  EXPECT_EQ(two.parameters, one.parameters);
  EXPECT_EQ(two.gradients, std::vector<std::int64_t>{0});
}

// A call for every unit: four layers, embedding and head on eight ranks, the experts of three layers on two.
TEST(StepTransfers, FsdpGathersUnitByUnit) {
  const Job job(sharded("fsdp"));
  const StageParameters n = job.parameters();
  const auto gathers = [&](double layers) {
    return layers *
           job.seconds(CollectiveOp::all_gather, job.placement.dense_replicas(), n.dense * 2 / 8 / layers);
  };
  const auto experts = [&](double layers) {
    return layers *
           job.seconds(CollectiveOp::all_gather, job.placement.expert_replicas(), n.experts * 2 / 2 / layers);
  };
  EXPECT_NEAR(static_cast<double>(job.transfers().sharded[0].forward), (gathers(6) + experts(3)) * 1e12, 1);
  const auto forward_of = [](const char* unit) {
    Scenario s = sharded("fsdp");
    s.training.fsdp_unit = named<FsdpUnit>("fsdp unit", unit);
    return static_cast<double>(Job(s).transfers().sharded[0].forward);
  };
  // Attention and FFN of a layer apart; everything at once.
  EXPECT_NEAR(forward_of("module"), (gathers(10) + experts(3)) * 1e12, 1);
  EXPECT_NEAR(forward_of("root"), (gathers(1) + experts(1)) * 1e12, 1);
}

// HSDP: two halves of the node hold the same shards and sum them once a step, unit by unit, however many
// microbatches gather and reduce inside of a half.
TEST(StepTransfers, ReplicasOfHsdpSumOnceAStep) {
  const auto with_microbatches = [](std::int64_t count) {
    Scenario s = sharded("hsdp:shard=4");
    s.parallel.microbatches = count;
    return Job(s);
  };
  const Job job = with_microbatches(1);
  const StageParameters n = job.parameters();
  const auto sums = [&](double bytes, double calls) {
    return calls * job.pricer.collectives().seconds(CollectiveOp::all_reduce, GroupShape::uniform(1, 2),
                                                    bytes / calls);
  };
  const PipelineTransfers one = job.transfers(), four = with_microbatches(4).transfers();
  ASSERT_EQ(one.gradients.size(), 1u);
  EXPECT_NEAR(static_cast<double>(one.gradients[0]),
              1e12 * (sums(n.dense * 4 / 4, 6) + sums(n.experts * 4, 3)), 1);
  EXPECT_EQ(four.gradients, one.gradients);
  EXPECT_EQ(one.parameters[0], 0);
  ASSERT_EQ(four.sharded.size(), 1u);
  EXPECT_EQ(four.sharded[0].backward, one.sharded[0].backward);
  EXPECT_EQ(four.sharded[0].forward, one.sharded[0].forward);
}

// Experts as a unit of their own are asked for behind the wait for the exchange's counts: nothing hides them.
TEST(StepTransfers, ExpertsOfTheirOwnAreExposedBehindAWait) {
  Scenario s = sharded("fsdp");
  const Job together(s);
  s.training.fsdp_unit = named<FsdpUnit>("fsdp unit", "experts");
  const Job apart(s);
  const StageParameters n = apart.parameters();
  EXPECT_EQ(together.transfers({}, true).sharded[0].exposed, 0);
  EXPECT_EQ(apart.transfers({}, false).sharded[0].exposed, 0);
  EXPECT_NEAR(static_cast<double>(apart.transfers({}, true).sharded[0].exposed),
              3e12 * apart.seconds(CollectiveOp::all_gather, apart.placement.expert_replicas(),
                                   n.experts * 2 / 2 / 3),
              1);
}

// In every pass, beside its computing; again in backward unless what was gathered stays.
TEST(StepTransfers, FsdpGathersInEveryPass) {
  const Job job(sharded("fsdp")), kept(sharded("fsdp:reshard=false"));
  const PipelineTransfers t = job.transfers(), once = kept.transfers();
  ASSERT_EQ(t.sharded.size(), 1u);
  EXPECT_TRUE(t.parameters.empty());
  EXPECT_EQ(t.sharded[0].forward, once.sharded[0].forward);
  EXPECT_NEAR(static_cast<double>(t.sharded[0].backward - once.sharded[0].backward),
              static_cast<double>(t.sharded[0].forward), 1);
  // A root unit hides nothing: the links count as busy for the whole pass.
  Scenario root = sharded("fsdp");
  root.training.fsdp_unit = named<FsdpUnit>("fsdp unit", "root");
  EXPECT_EQ(Job(root).transfers().sharded[0].forward_link, std::numeric_limits<std::int64_t>::max() / 4);
  EXPECT_EQ(t.sharded[0].forward_link, 0);
}

// In a pipeline once a step, whatever the number of microbatches; a layer's answer says the same.
TEST(StepTransfers, APipelineGathersOnceAStepInBothScopes) {
  Scenario s = testing::small_job("dgx-h100x2");
  s.training.set_sharding("fsdp");
  s.training.fsdp_unit = named<FsdpUnit>("fsdp unit", "root");
  s.parallel.pp = 2;
  s.parallel.microbatches = 4;
  const PipelineTransfers t = Job(s).transfers();
  EXPECT_TRUE(t.sharded.empty());
  ASSERT_EQ(t.parameters.size(), 2u);
  s.scope = Scenario::Scope::kLayer;
  AnswerOptions options;
  options.draws = 0;
  double gathers = 0, reductions = 0;
  for (const TimedCollective& one : answer(s, options).step_collectives) {
    EXPECT_EQ(one.what.calls_per_step(), 1) << one.what.what;
    (one.what.kind == CommKind::kAllGather ? gathers : reductions) += one.us_per_step();
  }
  EXPECT_NEAR(static_cast<double>(t.parameters[0]) * 1e-6, gathers, 1e-3);
  EXPECT_NEAR(static_cast<double>(t.gradients[0]) * 1e-6, reductions, 1e-3);
  // Without one in every pass.
  s.parallel.pp = 1;
  for (const TimedCollective& one : answer(s, options).step_collectives)
    EXPECT_EQ(one.what.calls_per_step(), 4) << one.what.what;
}

// Answers of both scopes list what a step pays, with the launch of a call for every layer.
TEST(StepTransfers, AnswersListTheCallsOfAStep) {
  Scenario s = sharded("fsdp");
  const PipelineTransfers t = Job(s).transfers();
  AnswerOptions options;
  options.draws = 0;
  for (const Scenario::Scope scope : {Scenario::Scope::kLayer, Scenario::Scope::kStep}) {
    s.scope = scope;
    double us = 0;
    for (const TimedCollective& one : answer(s, options).step_collectives) {
      EXPECT_GE(one.what.calls_per_step(), s.model.moe_layers() * s.parallel.microbatches) << one.what.what;
      us += one.us_per_step();
    }
    EXPECT_NEAR(
        us,
        static_cast<double>(s.parallel.microbatches * (t.sharded[0].forward + t.sharded[0].backward)) * 1e-6,
        1e-3);
  }
}

// A group of one data-parallel rank moves nothing, inference nothing at all.
TEST(StepTransfers, NobodyToShareWithIsNoTransfer) {
  Scenario s = testing::small_job();
  s.parallel.ep = 8;
  const Job experts_once(s);
  EXPECT_EQ(experts_once.transfers().gradients[0],
            to_ps(experts_once.seconds(CollectiveOp::reduce_scatter, experts_once.placement.dense_replicas(),
                                       experts_once.parameters().dense * 4 / 8)));
  Job serving(testing::small_job());
  serving.scenario.train = false;
  const PipelineTransfers t = serving.transfers();
  EXPECT_TRUE(t.gradients.empty());
  EXPECT_TRUE(t.parameters.empty());
  EXPECT_EQ(t.optimizer, std::vector<std::int64_t>{0});
}

TEST(StepTransfers, StagesSendTheirActivations) {
  Scenario s = testing::small_job("dgx-h100x2");
  s.parallel.pp = 2;
  const Job job(s);
  const PipelineTransfers t = job.transfers();
  ASSERT_EQ(t.send.size(), 1u);
  EXPECT_EQ(t.send[0],
            to_ps(job.pricer.collectives().seconds(CollectiveOp::send_recv,
                                                   job.placement.pipeline_pairs(0, 1).front(), 64 * 64 * 2)));
  // The stages stand on two nodes: a slow port somewhere slows them, a slow NVLink does not.
  EXPECT_NEAR(static_cast<double>(job.transfers({3, 1}).send[0]), 3.0 * static_cast<double>(t.send[0]), 2);
  EXPECT_EQ(job.transfers({1, 3}).send[0], t.send[0]);
  EXPECT_EQ(t.optimizer.size(), 2u);
}

// Rings inside one domain are as slow as the slowest NVLink, whatever ports do.
TEST(StepTransfers, FaultsCountOnTheLinksThatAreUsed) {
  const Job job(sharded("zero1"));
  const std::int64_t healthy = job.transfers().gradients[0];
  EXPECT_EQ(job.transfers({5, 1}).gradients[0], healthy);
  EXPECT_NEAR(static_cast<double>(job.transfers({1, 5}).gradients[0]), 5.0 * static_cast<double>(healthy), 3);
}

// fp32 gradient, master weight and two moments in, three out, the bf16 weight: 30 bytes and 4 for the norm of
// the shard, 4 to zero every gradient; never faster than its kernels are launched.
TEST(StepTransfers, AdamMovesItsState) {
  Scenario s = testing::small_job();
  s.model.hidden = 4096;  // large enough to be bound by memory
  s.model.attention.head_dim = 1024;
  s.model.expert_ffn = 4096;
  const Job job(s);
  const StageParameters n = job.parameters();
  const double bytes = (n.dense / 8 + n.experts / 2) * (4 + 2 * 12 + 2 + 4) + (n.dense + n.experts) * 4;
  EXPECT_EQ(job.transfers().optimizer[0], to_ps(bytes * job.pricer.memory_seconds_per_byte()));
  const Job small(testing::small_job());
  EXPECT_EQ(small.transfers().optimizer[0],
            to_ps(static_cast<double>(optimizer_launches(small.scenario, small.parameters())) *
                  static_cast<double>(small.pricer.launch_ps()) * 1e-12));
}

// Adam on the host: fp32 gradients of the shard leave, bf16 weights come back, and the host's memory moves
// the 30 bytes of its state; the GPU keeps the norm and the zeroing. Activations take the same link.
TEST(StepTransfers, OffloadTakesTheLinkToTheHost) {
  Scenario s = testing::small_job();
  const Job here(s);
  s.training.offload = named<Offload>("offload", "optimizer+activations");
  const Job job(s);
  const models::DeviceLimits& device = job.scenario.cluster->profile.device();
  const StageParameters n = job.parameters();
  const double shard = n.dense / 8 + n.experts / 2;
  const double on_the_host =
      shard * (4 + 2) / device.host_link + shard * (4 + 2 * 12 + 2) / device.host_memory;
  EXPECT_TRUE(here.transfers().offloaded.empty());
  EXPECT_EQ(job.transfers().offloaded, std::vector<std::int64_t>{to_ps(1e9 / device.host_link)});
  // A job this small launches its kernels as long on either side.
  EXPECT_NEAR(static_cast<double>(job.transfers().optimizer[0] - here.transfers().optimizer[0]),
              on_the_host * 1e12, 2);
}

TEST(Optimizer, LaunchesAListForEveryMeshOrATensorAtATime) {
  Job job(testing::small_job());
  const StageParameters n = job.parameters();
  EXPECT_EQ(optimizer_meshes(job.scenario, n), 2);
  EXPECT_EQ(optimizer_launches(job.scenario, n), 2 * 12);
  StageParameters dense = n;
  dense.experts = 0;
  EXPECT_EQ(optimizer_meshes(job.scenario, dense), 1);
  job.scenario.training.foreach = false;
  EXPECT_EQ(optimizer_launches(job.scenario, n),
            12 * static_cast<std::int64_t>(n.dense_tensors + n.expert_tensors));
  EXPECT_GT(n.dense_tensors + n.expert_tensors, 2);
  job.scenario.parallel.ep = 1;  // experts lie on the mesh of the rest
  EXPECT_EQ(optimizer_meshes(job.scenario, n), 1);
}

// Collectives of parameters and gradients (docs/spec.md 5.3): bytes of every scheme by hand.

TEST(ParameterCollectives, BytesOfEveryScheme) {
  ParameterTraffic t;
  t.dense = HeldParameters::all(1000);
  t.experts = HeldParameters::all(600);
  t.dense_group = 4;
  t.expert_group = 2;
  const auto ddp = parameter_collectives(ShardingScheme::kDdp, t);
  ASSERT_EQ(ddp.size(), 2u);
  EXPECT_EQ(ddp[0].tx_per_step(), 2 * 3 * 1000);  // 2(D-1)/D * P * 4 B
  EXPECT_EQ(ddp[1].tx_per_step(), 2 * 600 * 4 / 2);
  const auto zero = parameter_collectives(ShardingScheme::kZero1, t);
  ASSERT_EQ(zero.size(), 4u);
  EXPECT_EQ(zero[0].tx_per_step(), 3000);
  EXPECT_EQ(zero[1].tx_per_step(), 1500);
  t.microbatches = 2;
  const auto fsdp = parameter_collectives(ShardingScheme::kFsdp, t);
  EXPECT_EQ(fsdp[0].tx_per_step(), 4 * 1500);  // forward and backward, twice
  EXPECT_EQ(fsdp[1].tx_per_step(), 2 * 3000);
  t.shard_group = 2;
  const auto hsdp = parameter_collectives(ShardingScheme::kHsdp, t);
  ASSERT_EQ(hsdp.size(), 4u);  // two ranks replicate: of the experts' group of two none is left to shard
  EXPECT_EQ(hsdp[2].kind, CommKind::kAllReduce);
  EXPECT_EQ(hsdp[2].bytes_per_step(), 500 * 4);
  EXPECT_EQ(hsdp[3].kind, CommKind::kAllReduce);
  EXPECT_EQ(hsdp[3].bytes_per_step(), 600 * 4);
  t.expert_group = 1;
  EXPECT_EQ(parameter_collectives(ShardingScheme::kDdp, t).size(),
            1u);  // no collective for experts at EDP = 1
  EXPECT_EQ(ddp_bucket_parameters(8), 40'000'000);
  EXPECT_EQ(ddp_bucket_parameters(64), 64'000'000);
}

// Modules that are wrapped apart follow their own scheme: the router's 100 of the 1000 dense parameters.
TEST(ParameterCollectives, ModulesWrappedApart) {
  ParameterTraffic t;
  t.dense = HeldParameters::all(900);
  t.router = HeldParameters::all(100);
  t.experts = HeldParameters::all(600);
  t.dense_group = t.expert_group = 4;
  t.router_scheme = ShardingScheme::kDdp;
  t.expert_scheme = ShardingScheme::kFsdp;
  const auto all = parameter_collectives(ShardingScheme::kZero1, t);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].what, "dense gradients");
  EXPECT_EQ(all[0].bytes_per_step(), 900 * 4);
  EXPECT_EQ(all[1].bytes_per_step(), 900 * 2);
  EXPECT_EQ(all[2].what, "router gradients");
  EXPECT_EQ(all[2].kind, CommKind::kAllReduce);
  EXPECT_EQ(all[2].tx_per_step(), 2 * 100 * 4 * 3 / 4);
  EXPECT_EQ(all[3].what, "expert parameters");
  EXPECT_EQ(all[3].tx_per_step(), 2 * 600 * 2 * 3 / 4);  // gathered forward and backward
  EXPECT_EQ(all[4].kind, CommKind::kReduceScatter);
}

TEST(ParameterCollectives, BucketsAndUnitsAreCalls) {
  ParameterTraffic t;
  t.dense = HeldParameters::all(100'000'000);
  t.dense_group = 8;
  EXPECT_EQ(parameter_collectives(ShardingScheme::kDdp, t)[0].calls_per_step(), 3);  // of 40 M each
  t.buckets = false;
  EXPECT_EQ(parameter_collectives(ShardingScheme::kDdp, t)[0].calls_per_step(), 1);
  t.microbatches = 4;
  EXPECT_EQ(parameter_collectives(ShardingScheme::kFsdp, t)[0].calls_per_step(), 2 * 4);
  t.reshard_after_forward = false;
  EXPECT_EQ(parameter_collectives(ShardingScheme::kFsdp, t)[0].calls_per_step(), 4);
  t.reshard_after_forward = t.root_unit = true;  // a root stays gathered until its backward
  EXPECT_EQ(parameter_collectives(ShardingScheme::kFsdp, t)[0].calls_per_step(), 4);
}

// The dense mesh is (replicate, shard); as many ranks replicate experts as replicate the rest.
TEST(ExpertShardGroup, LeavesTheReplicasOfTheDensePart) {
  EXPECT_EQ(expert_shard_group(16, 8, 4), 2);  // two replicas: 4 expert replicas, two of which shard
  EXPECT_EQ(expert_shard_group(16, 16, 4), 4);
  EXPECT_EQ(expert_shard_group(16, 2, 4), 1);  // eight replicas of four ranks: at least one shards
}

// Three replicas of seven ranks each; of the experts' seven, two shard, and three groups replicate.
TEST(ExpertShardGroup, NeedNotDivideTheReplicas) {
  ParameterTraffic t;
  t.dense = t.experts = HeldParameters::all(1400);
  t.dense_group = 21;
  t.expert_group = t.shard_group = 7;
  const auto all = parameter_collectives(ShardingScheme::kHsdp, t);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[3].group, 2);
  EXPECT_EQ(all[5].kind, CommKind::kAllReduce);
  EXPECT_EQ(all[5].group, 3);
}

// FSDP's wire bytes are ZeRO-1's and one more gather of the parameters; HSDP's never exceed DDP's in fp32.
RC_GTEST_PROP(ParameterCollectives, FsdpGathersOnceMoreThanZero1, ()) {
  ParameterTraffic t;
  t.dense_group = *rc::gen::inRange(2, 64);
  const std::int64_t shard = *rc::gen::inRange(1, 100000);
  t.dense = HeldParameters::all(static_cast<double>(t.dense_group * shard));
  const auto zero = parameter_collectives(ShardingScheme::kZero1, t),
             fsdp = parameter_collectives(ShardingScheme::kFsdp, t);
  std::int64_t zero_tx = 0, fsdp_tx = 0;
  for (const ParameterCollective& c : zero) zero_tx += c.tx_per_step();
  for (const ParameterCollective& c : fsdp) fsdp_tx += c.tx_per_step();
  RC_ASSERT(fsdp_tx - zero_tx == (t.dense_group - 1) * shard * t.weight_bytes);
}

TEST(ParameterCollectives, ShampooGathersAmongHoldersOfOneShard) {
  using enum ShardingScheme;
  EXPECT_EQ(shampoo_gather(kDdp, false, 1000, 2, 4, 0).tx_per_step(), 1500);
  // Two replicas of two ranks each: a rank's shard is half of the parameters.
  EXPECT_EQ(shampoo_gather(kHsdp, false, 1000, 2, 4, 2).bytes_per_step(), 1000);
  EXPECT_EQ(shampoo_gather(kHsdp, false, 1000, 2, 4, 2).tx_per_step(), 500);
  EXPECT_EQ(shampoo_gather(kFsdp, false, 1000, 2, 4, 0).tx_per_step(), 0);
}

}  // namespace
}  // namespace moesim::models
