// Memory of a step: parameters against the model's own count, and every part of the plan by hand.
#include "models/step/step_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/answers/answer.h"
#include "models/step/kept_activations.h"
#include "models/step/step_forecast.h"
#include "models/workload/architecture.h"
#include "tests/models/layers.h"
#include "tests/models/small_job.h"

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
  TrainingSettings plan;
  Routing routing = example_1();
  Program program = build("alltoall", example_layer(routing));
  double gpu_bytes = 1e15;
  bool train = true, independent = true, overlapped = false;

  Job() {
    parallel.pp = 4;
    parallel.dp = 8;
    parallel.ep = 4;
    parallel.microbatches = 16;
  }
  StepMemory memory() const {
    const std::vector<Chunk> chunks = chunks_of(model, parallel);
    PipelineShape shape;
    shape.stages = static_cast<int>(parallel.pp);
    shape.virtual_stages = static_cast<int>(parallel.vpp);
    shape.microbatches = static_cast<int>(parallel.microbatches);
    shape.kind = plan.pipeline;
    shape.overlapped = overlapped;
    const auto schedule = pipeline_schedule(shape);
    return step_memory(
        {&model, parallel, &plan, &program, independent, &chunks, &schedule, gpu_bytes, train, 1});
  }
};

TEST(StepMemory, EveryPartOfThePlan) {
  Job job;
  const StageParameters n =
      chunk_parameters(job.model, job.parallel, chunks_of(job.model, job.parallel).front());
  const StepMemory zero1 = job.memory();
  ASSERT_EQ(zero1.stage, 0);  // keeps the most microbatches
  EXPECT_DOUBLE_EQ(zero1.worst.parameters, 2 * (n.dense + n.experts));
  EXPECT_DOUBLE_EQ(zero1.worst.gradients, 4 * (n.dense + n.experts));
  EXPECT_DOUBLE_EQ(zero1.worst.optimizer, 12 * (n.dense / 8 + n.experts / 2));  // DP 8, EDP 2
  EXPECT_DOUBLE_EQ(zero1.max_bytes, zero1.worst.total());
  EXPECT_TRUE(zero1.fits);
  EXPECT_EQ(zero1.fits_probability, 1);
  job.plan.sharding = ShardingScheme::kDdp;
  EXPECT_DOUBLE_EQ(job.memory().worst.optimizer, 12 * (n.dense + n.experts));

  // Moments in bf16, gradients reduced in bf16.
  job.plan = {};
  job.plan.optimizer = OptimizerTypes::parse("fp32,bf16,bf16");
  job.plan.gradient_bytes = 2;
  const RankMemory narrow = job.memory().worst;
  EXPECT_DOUBLE_EQ(narrow.gradients, 2 * (n.dense + n.experts));
  EXPECT_DOUBLE_EQ(narrow.optimizer, 8 * (n.dense / 8 + n.experts / 2));

  // FSDP2 shards fp32 weights, gradients and moments: 16 bytes of an element, and what is gathered.
  job.parallel.pp = 1;
  job.parallel.dp = 32;
  job.plan = {};
  job.plan.set_sharding("fsdp");
  const StepMemory sharded = job.memory();
  const StageParameters all =
      chunk_parameters(job.model, job.parallel, chunks_of(job.model, job.parallel).front());
  double state = 0;
  for (const MemoryCause& c : sharded.stages.front().causes)
    if (c.what.starts_with("dense part/") ||
        (c.what.starts_with("experts/") && c.kind != MemoryKind::kActivations))
      state += c.bytes;
  EXPECT_NEAR(state, 16 * (all.dense / 32 + all.experts / 8), 1);

  // Two units in a row are gathered, the larger one's gradients wait: a layer beside the table of embeddings
  // or the head, which half the layers do not change.
  const auto bytes_of_cause = [&](const char* what) {
    const StepMemory memory = job.memory();
    double bytes = 0;
    for (const MemoryCause& c : memory.stages.front().causes) bytes += c.what == what ? c.bytes : 0;
    return bytes;
  };
  const double table = static_cast<double>(job.model.vocabulary * job.model.hidden),
               norm = static_cast<double>(job.model.hidden),
               layer = (all.dense + all.experts - 2 * table - norm) / static_cast<double>(job.model.layers);
  ASSERT_GT(layer, table + norm);
  for (const std::int64_t layers : {job.model.layers, std::int64_t{2}, std::int64_t{1}}) {
    job.model.layers = layers;
    const double next = layers > 1 ? layer : table + norm;
    EXPECT_NEAR(bytes_of_cause("gathered units/bf16, two"), 2 * (layer + next), 1) << layers;
    EXPECT_NEAR(bytes_of_cause("unit before its reduction/fp32"), 4 * layer, 1) << layers;
  }

  // The excess is missing.
  job = Job();
  job.gpu_bytes = 20e9;
  const StepMemory tight = job.memory();
  EXPECT_FALSE(tight.fits);
  EXPECT_EQ(tight.fits_probability, 0);
  EXPECT_DOUBLE_EQ(tight.missing_bytes, tight.max_bytes - tight.limit_bytes);
  EXPECT_EQ(tight.first_stage, 0);

  // Without training: weights and what one microbatch needs.
  job.train = false;
  const RankMemory serving = job.memory().worst;
  EXPECT_EQ(serving.gradients + serving.optimizer + serving.activations, 0);
}

// Offloaded bytes move to the host's memory, and nothing else changes.
TEST(StepMemory, OffloadMovesBytesToTheHost) {
  Job job;
  const StageParameters n =
      chunk_parameters(job.model, job.parallel, chunks_of(job.model, job.parallel).front());
  const auto first_stage = [&](Offload offload) {
    job.plan.offload = offload;
    return job.memory().stages.front();
  };
  const StageMemory here = first_stage(Offload::kNone), optimizer = first_stage(Offload::kOptimizer),
                    activations = first_stage(Offload::kActivations), both = first_stage(Offload::kBoth);
  EXPECT_EQ(here.host_bytes, 0);

  EXPECT_EQ(optimizer.bytes.optimizer, 0);
  EXPECT_DOUBLE_EQ(optimizer.bytes.activations, here.bytes.activations);
  EXPECT_DOUBLE_EQ(optimizer.bytes.total(), here.bytes.total() - here.bytes.optimizer);
  // Twelve bytes of an element of the shard, and its fp32 gradient.
  EXPECT_DOUBLE_EQ(optimizer.host_bytes, 16 * (n.dense / 8 + n.experts / 2));

  EXPECT_DOUBLE_EQ(activations.bytes.optimizer, here.bytes.optimizer);
  EXPECT_LT(activations.bytes.activations, here.bytes.activations);
  EXPECT_GE(activations.host_bytes, here.bytes.activations);  // of the busiest rank

  EXPECT_DOUBLE_EQ(both.bytes.total(), activations.bytes.total() - here.bytes.optimizer);
  EXPECT_DOUBLE_EQ(both.host_bytes, optimizer.host_bytes + activations.host_bytes);
}

TEST(StepMemory, CausesAddUpToTheirKind) {
  for (const char* recompute : {"none", "moe_act", "full"})
    for (const char* sharding : {"ddp", "zero1", "fsdp"})
      for (const PipelineKind pipeline :
           {PipelineKind::k1F1B, PipelineKind::kZeroBubble, PipelineKind::kDualPipe}) {
        Job job;
        job.plan.recompute = StepRecompute::parse(recompute);
        job.plan.set_sharding(sharding);
        job.plan.pipeline = pipeline;
        const StepMemory memory = job.memory();
        ASSERT_EQ(memory.stages.size(), 4u);
        for (const StageMemory& stage : memory.stages) {
          double sum = 0, activations = 0;
          for (const MemoryCause& c : stage.causes) {
            EXPECT_GT(c.bytes, 0) << c.what;
            sum += c.bytes;
            activations += c.kind == MemoryKind::kActivations ? c.bytes : 0;
          }
          EXPECT_NEAR(sum / stage.bytes.total(), 1, 1e-12);
          EXPECT_NEAR(activations, stage.bytes.activations, 1e-6 * activations);
          EXPECT_LE(stage.bytes.total(), memory.max_bytes);
          EXPECT_LE(stage.low_bytes, stage.bytes.total() * (1 + 1e-12));
          EXPECT_GE(stage.high_bytes, stage.bytes.total() * (1 - 1e-12));
        }
      }
}

// Forward of one microbatch beside the backward of another, layer by layer: one microbatch and a layer are
// alive, not two microbatches.
TEST(StepMemory, OverlappedBatchesHoldOneAndALayer) {
  Job job;
  job.parallel.pp = 1;
  job.model.layers = 8;
  job.model.vocabulary = 8;  // the peak is not in the loss
  const RankMemory apart = job.memory().worst;
  job.overlapped = true;
  const RankMemory together = job.memory().worst;
  EXPECT_GT(together.activations, apart.activations);
  EXPECT_LT(together.activations, apart.activations * (1 + 1.5 / 8));
}

// Layers that route alike overload the same rank; layers that route independently share the burden.
TEST(StepMemory, TheBusiestRankIsAnotherOneInEveryLayer) {
  Job job;
  const StepMemory apart = job.memory();
  job.independent = false;
  const StepMemory alike = job.memory();
  std::vector<double> loads;
  for (int r = 0; r < job.program.ranks(); ++r)
    loads.push_back(bytes_of(kept_by_program(job.program, r, job.model, job.plan)));
  const double most = *std::max_element(loads.begin(), loads.end());
  const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(loads.size());
  ASSERT_GT(most, mean);
  // Stage 0 holds four microbatches of eight layers.
  const double others = alike.worst.activations - 32 * most;
  EXPECT_GT(apart.worst.activations, others + 32 * mean);
  EXPECT_LT(apart.worst.activations, alike.worst.activations);
  const StageMemory& stage = apart.stages.front();
  EXPECT_LT(stage.low_bytes, stage.high_bytes);
  EXPECT_LE(stage.high_bytes - stage.low_bytes, 32 * (most - mean));
  EXPECT_DOUBLE_EQ(alike.stages.front().low_bytes, alike.stages.front().high_bytes);
}

// The probability falls with the memory of the GPU, from certain to impossible, and is between where the
// allocator decides.
TEST(StepMemory, ProbabilityOfFitting) {
  Job job;
  const double need = job.memory().max_bytes;
  double before = 1;
  int between = 0;
  for (const double share : {1.5, 1.25, 1.2, 1.16, 1.12, 1.1, 1.08, 1.05, 1.02, 1.0}) {
    job.gpu_bytes = need * share;
    const StepMemory memory = job.memory();
    EXPECT_LE(memory.fits_probability, before);
    before = memory.fits_probability;
    between += before > 0 && before < 1;
    EXPECT_EQ(memory.fits, memory.max_bytes <= memory.limit_bytes);
  }
  EXPECT_EQ(before, 0);
  EXPECT_GT(between, 1);
}

Answer forecast(const Scenario& s) { return answer(s, {.draws = 0}).answers.front(); }

TEST(StepMemory, SaysWhatIsMissingAndWhatWouldHelp) {
  Scenario s = published_job("qwen3-30b-a3b", "dgx-h100x1");
  s.parallel.ep = 8;
  s.parallel.micro_batch = 4;
  const Answer f = forecast(s);
  ASSERT_FALSE(f.memory.fits);
  EXPECT_NEAR(f.memory.missing_bytes, f.memory.max_bytes - f.memory.limit_bytes, 1);
  if (!f.memory.recompute_that_fits.empty()) {
    s.training.recompute = StepRecompute::parse(f.memory.recompute_that_fits);
    EXPECT_TRUE(forecast(s).memory.fits);
  }
  // The search's quick test is the forecast's own.
  s.resolve();
  EXPECT_EQ(StepForecaster(s, s.dispatchers.front()).memory().fits, forecast(s).memory.fits);
}

}  // namespace
}  // namespace moesim::models::testing
