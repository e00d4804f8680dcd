// Collectives of parameters and gradients (docs/spec.md 5.3): bytes of every scheme by hand.
#include "models/step/parameter_collectives.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace moesim::models {
namespace {

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
