// Memory of a rank: parameters against the model's own count, and every part of the plan by hand.
#include "models/step/step_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/workload/architecture.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

std::vector<Chunk> chunks_of(const Architecture& model, const Parallel& parallel) {
  return cut_into_chunks(model, parallel, std::vector<double>(layer_stack(model).size(), 1.0), 0, 0);
}

StageParameters all_stages(Architecture model, const Parallel& parallel) {
  model.mtp_layers = 0;
  StageParameters sum;
  for (const Chunk& chunk : chunks_of(model, parallel)) {
    const StageParameters one = chunk_parameters(model, parallel, chunk);
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

struct Job {
  Architecture model = Architecture::load("mixtral-8x7b");
  Parallel parallel;
  TrainingPlan plan;
  Routing routing = example_1();
  Program program = build("alltoall", example_layer(routing));
  double gpu_bytes = 1e15;
  bool train = true, independent = true;

  Job() {
    parallel.pp = 4;
    parallel.dp = 8;
    parallel.ep = 4;
    parallel.microbatches = 16;
  }
  StepMemory memory() const {
    const std::vector<Chunk> chunks = chunks_of(model, parallel);
    return step_memory(
        {&model, parallel, &plan, &program, independent, &chunks, {4, 3, 2, 1}, gpu_bytes, train});
  }
};

TEST(StepMemory, EveryPartOfThePlan) {
  Job job;
  const StageParameters n = chunk_parameters(job.model, job.parallel, chunks_of(job.model, job.parallel).front());
  const StepMemory zero1 = job.memory();
  ASSERT_EQ(zero1.stage, 0);  // keeps the most microbatches
  EXPECT_DOUBLE_EQ(zero1.worst.parameters, 2 * (n.dense + n.experts));
  EXPECT_DOUBLE_EQ(zero1.worst.gradients, 4 * (n.dense + n.experts));
  EXPECT_DOUBLE_EQ(zero1.worst.optimizer, 12 * (n.dense / 8 + n.experts / 2));  // DP 8, EDP 2
  EXPECT_DOUBLE_EQ(zero1.max_bytes, zero1.worst.total());
  EXPECT_TRUE(zero1.fits);
  job.plan.sharding = ShardingScheme::kDdp;
  EXPECT_DOUBLE_EQ(job.memory().worst.optimizer, 12 * (n.dense + n.experts));

  // What does not fit is missing.
  job.plan = {};
  job.gpu_bytes = 20e9;
  const StepMemory tight = job.memory();
  EXPECT_FALSE(tight.fits);
  EXPECT_DOUBLE_EQ(tight.missing_bytes, tight.max_bytes - tight.limit_bytes);
  EXPECT_EQ(tight.first_stage, 0);

  // Without training: weights and what one microbatch needs.
  job.train = false;
  const RankMemory serving = job.memory().worst;
  EXPECT_EQ(serving.gradients + serving.optimizer + serving.activations, 0);
}

// Layers that route alike overload the same rank; layers that route independently share the burden: of eight
// layers, what the busiest rank has above the mean grows with the root of eight.
TEST(StepMemory, TheBusiestRankIsAnotherOneInEveryLayer) {
  Job job;
  const double apart = job.memory().worst.activations;
  job.independent = false;
  const double alike = job.memory().worst.activations;
  const auto& saved = job.program.saved_bytes;
  const double mean = static_cast<double>(std::accumulate(saved.begin(), saved.end(), std::int64_t{0})) /
                      static_cast<double>(saved.size());
  const double above = static_cast<double>(*std::max_element(saved.begin(), saved.end())) - mean;
  ASSERT_GT(above, 0);
  EXPECT_NEAR(alike - apart, 4 * (8 - std::sqrt(8.0)) * above, 1e-3 * above);  // four microbatches in flight
}

}  // namespace
}  // namespace moesim::models::testing
