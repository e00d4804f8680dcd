// Memory of a rank: parameters against the model's own count, and every part of the plan by hand.
#include "models/programs/memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/workload/architecture.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

StageParameters all_stages(const Architecture& model, const Parallel& parallel) {
  StageParameters sum;
  for (int stage = 0; stage < parallel.pp; ++stage) {
    const StageParameters one = stage_parameters(model, parallel, stage);
    sum.dense += one.dense;
    sum.experts += one.experts;
  }
  return sum;
}

TEST(Memory, StagesHoldTheModelOnce) {
  for (const char* name : {"mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"}) {
    SCOPED_TRACE(name);
    const Architecture model = Architecture::load(name);
    Parallel parallel;
    for (const std::int64_t pp : {1, 2, 4}) {
      parallel.pp = pp;
      const StageParameters whole = all_stages(model, parallel);
      // Norms inside attention and biases of routers are not counted apart.
      EXPECT_NEAR((whole.dense + whole.experts) / static_cast<double>(model.parameters()), 1, 0.02);
    }
    // Expert ranks hold their part of the experts; tensor ranks theirs of all matrices but the routers.
    const StageParameters whole = all_stages(model, parallel);
    parallel.ep = 8;
    EXPECT_DOUBLE_EQ(8 * all_stages(model, parallel).experts, whole.experts);
    parallel.tp = 2;
    double copied = static_cast<double>(model.hidden) * (2.0 * static_cast<double>(model.layers) + 1);
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
      if (model.is_moe_layer(layer)) copied += static_cast<double>(model.hidden * model.experts);
    EXPECT_NEAR(2 * all_stages(model, parallel).dense - copied, whole.dense, 1e-6 * whole.dense);
  }
}

TEST(Memory, EveryPartOfThePlan) {
  const Architecture model = Architecture::load("mixtral-8x7b");
  Parallel parallel;
  parallel.pp = 4;
  parallel.dp = 8;
  parallel.ep = 4;
  parallel.microbatches = 16;
  const Routing routing = example_1();
  const Program program = build("alltoall", example_layer(routing));
  constexpr std::int64_t kDenseSaved = 1 << 27;
  const StageParameters n = stage_parameters(model, parallel, 0);

  const MemoryForecast zero1 = forecast_memory(model, parallel, program, kDenseSaved, 1e15);
  ASSERT_EQ(zero1.stage, 0);  // keeps the most microbatches
  EXPECT_DOUBLE_EQ(zero1.worst.parameters, 2 * (n.dense + n.experts));
  EXPECT_DOUBLE_EQ(zero1.worst.gradients, 4 * (n.dense + n.experts));
  EXPECT_DOUBLE_EQ(zero1.worst.optimizer, 12 * (n.dense / 8 + n.experts / 2));  // DP 8, EDP 2
  // Four microbatches in flight, eight layers of this stage.
  const auto saved = static_cast<double>(program.saved_bytes[static_cast<std::size_t>(zero1.rank)]);
  EXPECT_DOUBLE_EQ(zero1.worst.activations, 4 * 8 * (kDenseSaved + saved));
  const auto kept = program.saved_bytes[static_cast<std::size_t>(zero1.rank)];
  EXPECT_DOUBLE_EQ(zero1.worst.transient,
                   static_cast<double>(
                       std::max(program.peak_forward_bytes[static_cast<std::size_t>(zero1.rank)] - kept,
                                program.peak_backward_bytes[static_cast<std::size_t>(zero1.rank)] - kept)));
  EXPECT_DOUBLE_EQ(zero1.max_bytes, zero1.worst.total());
  EXPECT_TRUE(zero1.fits);

  MemoryPlan plan;
  plan.sharding = ShardingScheme::kDdp;
  EXPECT_DOUBLE_EQ(forecast_memory(model, parallel, program, kDenseSaved, 1e15, plan).worst.optimizer,
                   12 * (n.dense + n.experts));
  plan.sharding = ShardingScheme::kFsdp;
  const MemoryForecast fsdp = forecast_memory(model, parallel, program, kDenseSaved, 1e15, plan);
  const StageParameters m = stage_parameters(model, parallel, fsdp.stage);
  EXPECT_DOUBLE_EQ(fsdp.worst.parameters, 2 * (m.dense / 8 + m.experts / 2));
  EXPECT_GE(fsdp.worst.transient, (m.dense * 7 / 8 + m.experts / 2) / 8 * 2);  // a layer's weights, gathered

  // What does not fit is missing.
  const MemoryForecast tight = forecast_memory(model, parallel, program, kDenseSaved, 1e9);
  EXPECT_FALSE(tight.fits);
  EXPECT_DOUBLE_EQ(tight.missing_bytes, tight.max_bytes - 1e9);
  EXPECT_EQ(tight.first_stage, 0);
  EXPECT_EQ(tight.first_rank, 0);

  // Without training: weights and what one microbatch needs.
  plan = {};
  plan.train = false;
  const MemoryForecast serving = forecast_memory(model, parallel, program, kDenseSaved, 1e15, plan);
  EXPECT_EQ(serving.worst.gradients + serving.worst.optimizer + serving.worst.activations, 0);
}

}  // namespace
}  // namespace moesim::models::testing
