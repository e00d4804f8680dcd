// Cut and order of a job: chunks, schedules of training and of inference.
#include "models/step/pipeline_layout.h"

#include <gtest/gtest.h>

#include "models/step/order_of_waits.h"
#include "tests/message_of.h"
#include "tests/models/layers.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using testing::small_job;

TEST(PipelineLayout, ChunksHoldEveryLayerOnceFromEmbeddingToHead) {
  for (const std::int64_t pp : {1, 2, 4}) {
    Scenario s = small_job();
    s.parallel.ep = 2;
    s.parallel.pp = pp;
    s.resolve();
    const PipelineLayout plan(s, false);
    ASSERT_EQ(plan.chunks.size(), static_cast<std::size_t>(pp));
    std::size_t next = 0;
    for (const Chunk& chunk : plan.chunks) {
      EXPECT_EQ(chunk.first, next);
      next += chunk.layers.size();
      EXPECT_EQ(chunk.embedding, &chunk == &plan.chunks.front());
      EXPECT_EQ(chunk.head, &chunk == &plan.chunks.back());
    }
    EXPECT_EQ(next, 4u);
    EXPECT_EQ(plan.schedule.size(), static_cast<std::size_t>(pp));
  }
}

// The host bounds this job: its dense layer has most of the FLOPs and takes less time than one with experts.
TEST(PipelineLayout, CutsByTime) {
  Scenario s = small_job();
  s.model.layers = 7;
  s.model.dense_ffn = 1 << 14;
  s.parallel.ep = 2;
  s.parallel.pp = 4;
  s.resolve();
  const Placement placement(s);
  const JobRouting routing(s);
  const auto programs = programs_of_classes(s, s.dispatchers.front(), routing, placement);
  const PipelineLayout by_flops(s, false), by_time(s, *programs.front(), routing);
  EXPECT_EQ(by_flops.chunks.front().layers.size(), 1u);
  EXPECT_EQ(by_time.chunks.front().layers.size(), 2u);
}

TEST(PipelineLayout, InferenceRunsForwardPassesOnly) {
  Scenario s = small_job();
  s.parallel.ep = 2;
  s.parallel.pp = 2;
  s.parallel.microbatches = 8;
  s.training.pipeline = named<PipelineKind>("schedule", "dualpipe");
  s.resolve();
  s.train = false;
  const PipelineLayout plan(s, true);
  EXPECT_EQ(plan.shape.kind, PipelineKind::k1F1B);
  EXPECT_FALSE(plan.shape.overlapped);
  for (const auto& stage : plan.schedule) {
    EXPECT_EQ(stage.size(), 8u);
    for (const PipelineSlot& slot : stage) EXPECT_EQ(slot.kind, PipelineSlot::Kind::kForward);
  }
}

// Asked for by the plan or by the dispatcher; one rank has nothing to overlap.
TEST(PipelineLayout, OverlapsWhereSomebodyAsksAndSomethingTravels) {
  Scenario s = small_job();
  s.parallel.microbatches = 4;
  s.resolve();
  EXPECT_FALSE(PipelineLayout(s, false).shape.overlapped);
  EXPECT_TRUE(PipelineLayout(s, true).shape.overlapped);
  s.training.overlap.expert_communication = true;
  EXPECT_TRUE(PipelineLayout(s, false).shape.overlapped);
  s.parallel.ep = 1;
  EXPECT_FALSE(PipelineLayout(s, false).shape.overlapped);
}

TEST(PipelineLayout, RefusesSchedulesOfMoreThanTwoToThe24Passes) {
  Scenario s = small_job();
  s.resolve();
  s.parallel.pp = 4096;
  s.parallel.vpp = 4096;
  EXPECT_EQ(message_of([&] { PipelineLayout(s, false); }),
            "parallel: found pp 4096 x vpp 4096 x 2 microbatches, expected at most 2^24 passes");
  s.parallel.pp = 8;
  s.parallel.vpp = 1;
  EXPECT_EQ(message_of([&] { PipelineLayout(s, false); }),
            "parallel: found 8 pipeline chunks (pp 8 x vpp 1), expected at most the 4 layers of small");
}

// HSDP shards over the ranks of one node by default.
TEST(MemoryOf, HybridShardingIsOfANodeUnlessSaid) {
  const auto bytes = [](std::int64_t shard) {
    Scenario s = small_job("dgx-h100x2");
    s.training.set_sharding("hsdp");
    s.training.shard_group = shard;
    s.resolve();
    const Placement placement(s);
    const JobRouting routing(s);
    const auto programs = programs_of_classes(s, s.dispatchers.front(), routing, placement);
    return memory_of(s, PipelineLayout(s, false), *programs.front(), routing).max_bytes;
  };
  EXPECT_EQ(bytes(0), bytes(8));
  EXPECT_LT(bytes(16), bytes(8));
  EXPECT_GT(bytes(4), bytes(8));
}

// One stage holds one microbatch at a time: what a pass keeps is what the stage's activations are.
TEST(KeptByPass, IsWhatAStageOfOneMicrobatchHolds) {
  Scenario s = small_job();
  s.resolve();
  const Placement placement(s);
  const JobRouting routing(s);
  const auto programs = programs_of_classes(s, s.dispatchers.front(), routing, placement);
  const PipelineLayout plan(s, false);
  const std::vector<double> kept = kept_by_pass(s, plan, *programs.front());
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_DOUBLE_EQ(kept[0], memory_of(s, plan, *programs.front(), routing).worst.activations);
}

// Rule F (docs/spec.md 2.11): which units of sharded weights can hang with the exchanges of experts.

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
