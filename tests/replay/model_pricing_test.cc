// Transfers of a forecast priced with a cluster's profile, and what launching a call adds.
#include "replay/run/model_pricing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/input_error.h"
#include "made_job.h"
#include "models/costs/cluster_costs.h"
#include "models/hardware/cluster_fabric.h"
#include "tests/message_of.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;

Instance gather_of_four() {
  Instance call;
  call.op = sim::CollectiveOp::all_gather;
  call.members = {0, 1, 2, 3};
  call.rows = {64, 64, 64, 64};
  call.row_bytes = 1024;
  return call;
}

class Priced : public ::testing::Test {
 protected:
  std::vector<double> us_of(ModelPricing& pricing, const Instance& instance) {
    sim::CollectiveShape shape{instance.op, ranks_, {}};
    shape.traffic.price = pricing.traffic(instance, 0, builder_).price;
    std::array<sim::Time, 4> times;
    pricing.costs().price_collective(shape, times);
    std::vector<double> us;
    for (const sim::Time time : times) us.push_back(time.us());
    return us;
  }
  Priced() { builder_.add_ranks(16); }

  testing::MadeJob made_;
  Effects effects_;
  sim::TaskGraphBuilder builder_;
  std::array<sim::RankId, 4> ranks_{sim::RankId(0), sim::RankId(1), sim::RankId(2), sim::RankId(3)};
};

// 64 KiB of each of four ranks, as the profile prices it, and what the host takes to launch it in forward.
TEST_F(Priced, ATransferIsTheProfilesAndItsLaunch) {
  ModelPricing pricing(made_.spec.cluster, made_.clean, effects_);
  const models::ClusterCosts costs(made_.spec.cluster);
  sim::CollectiveShape shape{sim::CollectiveOp::all_gather, ranks_, {}};
  shape.traffic.bytes = 64 * 1024;
  std::array<sim::Time, 4> expected;
  costs.price_collective(shape, expected);
  const Instance forward = gather_of_four();
  Instance backward = forward;
  backward.step = StepKind::backward;
  for (std::size_t m = 0; m < 4; ++m) {
    EXPECT_NEAR(us_of(pricing, forward)[m], expected[m].us() + effects_[EffectKind::exposed_gather], 1e-6);
    EXPECT_NEAR(us_of(pricing, backward)[m], expected[m].us(), 1e-6);
  }
}

TEST_F(Priced, EqualTransfersArePricedOnce) {
  ModelPricing pricing(made_.spec.cluster, made_.clean, effects_);
  Instance other = gather_of_four();
  other.row_bytes = 2048;
  const auto number = [&](const Instance& instance) { return pricing.traffic(instance, 0, builder_).price; };
  EXPECT_EQ(number(gather_of_four()), number(gather_of_four()));
  EXPECT_NE(number(gather_of_four()), number(other));
}

// A call that a model priced takes its own time, for every member.
TEST_F(Priced, ModelledCallsKeepTheirPrices) {
  ModelPricing pricing(made_.spec.cluster, made_.clean, effects_);
  Instance call = gather_of_four();
  call.step = StepKind::backward;
  call.modelled_us = {1, 2, 3, 4};
  EXPECT_EQ(us_of(pricing, call), call.modelled_us);
}

TEST_F(Priced, OnANetworkCallsThatAModelHasPricedAreRefused) {
  const sim::Fabric fabric = models::cluster_fabric(made_.spec.cluster);
  ModelPricing pricing(made_.spec.cluster, made_.clean, effects_, &fabric);
  Instance call;
  call.members = {0, 1};
  call.rows = {1, 1};
  call.row_bytes = 8;
  call.modelled_us = {3.0, 4.0};
  sim::TaskGraphBuilder builder;
  builder.add_ranks(2);
  EXPECT_THAT(message_of([&] { pricing.traffic(call, 0, builder); }),
              ::testing::HasSubstr("expected the recorded ones"))
      << "accepted";
}

// In forward the host launches onto an idle GPU, except behind the experts; halves of a fused pair cost
// theirs.
TEST(AddedCall, IsOfExposedLaunches) {
  const Effects effects;
  Instance call;
  call.step = StepKind::forward;
  call.op = sim::CollectiveOp::all_gather;
  EXPECT_EQ(added_call_us(effects, call), effects[EffectKind::exposed_gather]);
  call.op = sim::CollectiveOp::all_to_all;
  EXPECT_EQ(added_call_us(effects, call), effects[EffectKind::exposed_exchange]);
  call.after_experts = true;
  EXPECT_EQ(added_call_us(effects, call), 0);
  call.after_experts = false;
  call.step = StepKind::backward;
  EXPECT_EQ(added_call_us(effects, call), 0);
  call.step = StepKind::forward;
  call.inside_step = false;
  EXPECT_EQ(added_call_us(effects, call), 0);
  call.fused = true;
  EXPECT_EQ(added_call_us(effects, call), effects[EffectKind::fused_p2p]);
}

}  // namespace
}  // namespace moesim::replay
