// Rule F (docs/spec.md 2.11): which units of sharded weights can hang with the exchanges of experts.
#include "models/step/order_of_waits.h"

#include <gtest/gtest.h>

#include "tests/models/layers.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

Scenario blocks() {
  Scenario s = testing::small_job();
  s.training.set_sharding("fsdp");
  s.training.fsdp_unit = named<FsdpUnit>("fsdp unit", "block");
  s.resolve();
  return s;
}

TEST(HangOfUnit, AWholeBlockIsNotOrderedWithTheLayerBelow) {
  const testing::Example example;
  EXPECT_EQ(
      hang_of_unit(blocks(), testing::build("kempnerforge", example.layer)),
      "fsdp_unit block can hang: ranks come to the reduce-scatter of a block's parameters and the backward "
      "exchange \"hidden gradient\" in different orders, and each holds the GPU while it waits for the "
      "other; fsdp_unit module orders them");
}

TEST(HangOfUnit, OtherPlansAreOrdered) {
  const testing::Example example;
  const Program program = testing::build("kempnerforge", example.layer);
  Scenario s = blocks();
  s.train = false;
  EXPECT_EQ(hang_of_unit(s, program), "");
  for (const char* unit : {"auto", "module", "root", "experts"}) {
    s = blocks();
    s.training.fsdp_unit = named<FsdpUnit>("fsdp unit", unit);
    EXPECT_EQ(hang_of_unit(s, program), "") << unit;
  }
  for (const char* sharding : {"ddp", "zero1"}) {
    s = blocks();
    s.training.set_sharding(sharding);
    EXPECT_EQ(hang_of_unit(s, program), "") << sharding;
  }
  // One data-parallel rank reduces nothing; without an exchange nothing is in the way.
  s = blocks();
  s.parallel.dp = 1;
  EXPECT_EQ(hang_of_unit(s, program), "");
  const testing::Example alone(make_routing(RoutingSpec(), 1, 8, 8, 2, 1), 1);
  EXPECT_EQ(hang_of_unit(blocks(), testing::build("torchtitan-local", alone.layer)), "");
}

TEST(HangOfUnit, TheExpertsOwnSchemeCounts) {
  const testing::Example example;
  const Program program = testing::build("alltoall", example.layer);
  Scenario s = blocks();
  s.training.expert_sharding = ShardingScheme::kDdp;
  EXPECT_EQ(hang_of_unit(s, program), "");
  s.training.set_sharding("ddp");
  s.training.expert_sharding = ShardingScheme::kHsdp;
  EXPECT_NE(hang_of_unit(s, program), "");
}

}  // namespace
}  // namespace moesim::models
