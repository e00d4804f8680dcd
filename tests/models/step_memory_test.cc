// Memory of a step: parameters against the model's own count, and every part of the plan by hand.
#include "models/step/step_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/input_error.h"
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

// 32 layers with experts in four stages: three experts of 64 x 64 in three matrices of bf16 take 73,728 bytes a layer.
TEST(StepMemory, EachMoeLayerKeepsItsBuffers) {
  Job job;
  const double before = job.memory().worst.persistent;
  job.program.persistent_bytes += 1000;  // once for all layers
  job.program.layer_bytes = std::int64_t{3} * 3 * 64 * 64 * 2;
  EXPECT_DOUBLE_EQ(job.memory().worst.persistent - before, 1000 + 8 * 73728.0);
}

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

// ZeRO-2 holds what ZeRO-1 holds, but of the gradients only the share of the rank and one layer before its reduction.
TEST(StepMemory, Zero2DividesGradientsAlone) {
  Job one, two;
  one.parallel.pp = two.parallel.pp = 1;
  one.plan.set_sharding("zero1");
  two.plan.set_sharding("zero2");
  const StageMemory whole = one.memory().stages[0], part = two.memory().stages[0];
  EXPECT_EQ(part.bytes.parameters, whole.bytes.parameters);
  EXPECT_EQ(part.bytes.optimizer, whole.bytes.optimizer);
  const StageParameters n =
      chunk_parameters(one.model, one.parallel, chunks_of(one.model, one.parallel).front());
  // DP 8, EDP 2; a layer of 32 beside them.
  const double layer = part.bytes.gradients - 4 * (n.dense / 8 + n.experts / 2);
  EXPECT_NEAR(layer, 4 * (n.dense + n.experts) / 32, 0.05 * layer);
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
  loads.reserve(static_cast<std::size_t>(job.program.ranks()));
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

// Tensors that a layer keeps until backward, and the further needs of backward; all by hand.

// A layer of Mixtral on one GPU, from the shapes that Megatron-Core saves.
TEST(KeptByLayer, AttentionOfMixtralByHand) {
  const Architecture model = Architecture::load("mixtral-8x7b");
  Parallel p;
  p.seq = 1024;
  TrainingSettings plan;
  const double T = 1024, H = 4096, heads = 32, kv = 8, d = 128;
  const auto kept = [&] { return bytes_of(kept_by_layer(model, p, plan, LayerKind{})); };
  LayerKind dense{LayerKind::Mixer::kAttention, LayerKind::Ffn::kNone, false};
  const auto attention = [&] { return bytes_of(kept_by_layer(model, p, plan, dense)); };
  // Both sides of the norm; queries, keys, values; the projection's input; a log-sum per head.
  EXPECT_DOUBLE_EQ(attention(), T * (4 * H + 2 * (heads + 2 * kv) * d + 2 * heads * d + 4 * heads));
  // Recomputing the core frees the log-sums only: its output stays as the projection's input.
  plan.recompute = StepRecompute::parse("core_attn");
  EXPECT_DOUBLE_EQ(attention(), T * (4 * H + 2 * (heads + 2 * kv) * d + 2 * heads * d));
  plan.recompute = StepRecompute::parse("layernorm");
  EXPECT_DOUBLE_EQ(attention(), T * (2 * H + 2 * (heads + 2 * kv) * d + 2 * heads * d + 4 * heads));
  // Products in fp8 keep their inputs in a byte; attention keeps its own output besides.
  plan.recompute = {};
  plan.set_precision("fp8");
  EXPECT_DOUBLE_EQ(attention(), T * (3 * H + 2 * (heads + 2 * kv) * d + 3 * heads * d + 4 * heads));
  // In DeepSeek-V3's formats (arXiv 2412.19437, 3.3.3) both are one tensor of 12 bits.
  plan.activations = ActivationFormat::kFp8;
  EXPECT_DOUBLE_EQ(attention(), T * (3 * H + 2 * (heads + 2 * kv) * d + 1.5 * heads * d + 4 * heads));
  plan = {};
  plan.recompute = StepRecompute::parse("full");
  EXPECT_DOUBLE_EQ(kept(), T * H * 2);
  // Tensor and context parallelism share everything.
  plan = {};
  const double alone = attention();
  p.tp = 2;
  EXPECT_DOUBLE_EQ(attention(), alone / 2);
  p.cp = 2;
  EXPECT_DOUBLE_EQ(attention(), alone / 4);
}

// Korthikanti et al. (arXiv 2205.05198), 4.1: 5 a s^2 b bytes of a layer's scores: probabilities in 2 bytes,
// dropout's mask in one and its output in 2; without dropout 2 a s^2 b.
TEST(KeptByLayer, UnfusedAttentionKeepsScores) {
  Architecture model = Architecture::load("mixtral-8x7b");
  Parallel p;
  p.seq = 1024;
  p.micro_batch = 3;
  TrainingSettings plan;
  const LayerKind kind{LayerKind::Mixer::kAttention, LayerKind::Ffn::kNone, false};
  const auto kept = [&](const char* attention) {
    plan.attention = models::named<AttentionKernel>("attention", attention);
    return bytes_of(kept_by_layer(model, p, plan, kind));
  };
  const double T = 3 * 1024, heads = 32, kv = 8, d = 128, scores = heads * 1024 * 1024 * 3;
  // Keys and values of every head, no log-sums.
  const double others = 2 * 2 * (heads - kv) * d * T - 4 * heads * T;
  EXPECT_DOUBLE_EQ(kept("unfused") - kept("flash"), 2 * scores + others);
  EXPECT_DOUBLE_EQ(kept("unfused-dropout") - kept("flash"), 5 * scores + others);
  const double transient = backward_transient(model, p, plan, kind);
  plan.recompute = StepRecompute::parse("core_attn");
  EXPECT_DOUBLE_EQ(kept("unfused-dropout"), kept("flash"));
  // Computed again, they are held while the layer's backward runs.
  plan.attention = models::named<AttentionKernel>("attention", "unfused");
  EXPECT_GT(backward_transient(model, p, plan, kind), transient);
  // Tensor parallelism shares heads.
  plan.recompute = {};
  const double alone = kept("unfused");
  p.tp = 2;
  EXPECT_DOUBLE_EQ(kept("unfused"), alone / 2);
}

// Without sequence parallelism every rank keeps all rows of what stands between the products.
TEST(KeptByLayer, WithoutSequenceParallelismRowsAreWhole) {
  Parallel p;
  p.seq = 1024;
  p.tp = 4;
  TrainingSettings plan;
  const LayerKind kind{LayerKind::Mixer::kNone, LayerKind::Ffn::kDense, false};
  const auto norms = [&] {
    double bytes = 0;
    for (const KeptTensor& t : kept_by_layer(small_model(), p, plan, kind))
      if (t.name.starts_with("norm/")) bytes += t.bytes;
    return bytes;
  };
  EXPECT_EQ(norms(), 2 * 256 * 64 * 2);
  plan.sequence_parallel = false;
  EXPECT_EQ(norms(), 2 * 1024 * 64 * 2);
}

Parallel tokens(std::int64_t count) {
  Parallel p;
  p.seq = count;
  return p;
}

// 64 tokens, hidden 64, dense FFN 96: both sides of the norm, gate and up, their product.
TEST(KeptByLayer, TensorsOfADenseFfnHaveNames) {
  LayerKind kind{LayerKind::Mixer::kNone, LayerKind::Ffn::kDense, false};
  TrainingSettings plan;
  const auto kept = [&] { return kept_by_layer(small_model(), tokens(64), plan, kind); };
  std::vector<std::pair<std::string, double>> found;
  for (const KeptTensor& t : kept()) found.emplace_back(t.name, t.bytes);
  EXPECT_THAT(found,
              ::testing::ElementsAre(::testing::Pair("norm/input of the FFN's norm", 64 * 64 * 2),
                                     ::testing::Pair("norm/output of the FFN's norm", 64 * 64 * 2),
                                     ::testing::Pair("dense FFN/up projection's output", 64 * 2 * 96 * 2),
                                     ::testing::Pair("dense FFN/activation", 64 * 96 * 2)));
  plan.recompute = StepRecompute::parse("mlp");
  EXPECT_EQ(bytes_of(kept()), 2 * 64 * 64 * 2);
  plan.recompute = StepRecompute::parse("mlp+layernorm");
  EXPECT_EQ(bytes_of(kept()), 64 * 64 * 2);
  // DeepSeek-V3's formats: gate and up in a byte, their product is computed again.
  plan.set_precision("fp8");
  plan.activations = ActivationFormat::kFp8;
  plan.recompute = StepRecompute::parse("layernorm+moe_act");
  EXPECT_EQ(bytes_of(kept()), 64 * 64 * 2 + 64 * 2 * 96);
}

// A MoE layer's router keeps fp32 scores; the rest is the dispatcher's program's.
TEST(KeptByLayer, OfExpertsOnlyScoresAndTheSharedExpert) {
  LayerKind kind{LayerKind::Mixer::kNone, LayerKind::Ffn::kMoe, false};
  Architecture model = small_model();
  TrainingSettings plan;
  const double scores = 64 * 8 * 4, norm = 64 * 64 * 2;
  EXPECT_EQ(bytes_of(kept_by_layer(model, tokens(64), plan, kind)), norm + scores);
  model.shared_ffn = 32;
  EXPECT_EQ(bytes_of(kept_by_layer(model, tokens(64), plan, kind)), norm + scores + 64 * 3 * 32 * 2);
  plan.recompute = StepRecompute::parse("shared_experts");
  EXPECT_EQ(bytes_of(kept_by_layer(model, tokens(64), plan, kind)), norm + scores);
}

// torchtitan's checkpointing by operation: of q, k, v, o and gate, up, down every second output, the core's
// and its log-sums, and the layer's input; of experts what the collectives brought.
TEST(KeptByLayer, EverySecondProductOfTorchtitan) {
  LayerKind kind;
  TrainingSettings plan;
  plan.recompute = StepRecompute::parse("op");
  EXPECT_EQ(plan.recompute.text(), "op");
  EXPECT_THROW(StepRecompute::parse("op+moe_act"), InputError);
  const double input = 64 * 64 * 2, core = 64 * (64 * 2 + 4 * 4), qv = 64 * (64 + 32) * 2;
  EXPECT_EQ(bytes_of(kept_by_layer(small_model(), tokens(64), plan, kind)),
            input + core + qv + 64 * (96 + 64) * 2);
  kind.ffn = LayerKind::Ffn::kMoe;
  EXPECT_EQ(bytes_of(kept_by_layer(small_model(), tokens(64), plan, kind)), input + core + qv);
  Parallel spread = tokens(64);
  spread.ep = 4;
  EXPECT_EQ(bytes_of(kept_by_layer(small_model(), spread, plan, kind)), input + core + qv + 64 * 2 * 64 * 2);
}

StepMemory memory_of(const Scenario& s) { return answer(resolved(s)).answers.front().memory; }

// Sharded gradients do not exist when the first loss is computed; of several microbatches they stay.
TEST(StepMemory, FsdpHasNoGradientsBeforeBackward) {
  Scenario s = published_job("qwen3-30b-a3b");
  s.training.set_sharding("fsdp");
  s.training.recompute = StepRecompute::parse("full");
  s.parallel.seq = 65536;
  std::vector<double> bytes, gradients;
  for (const LossKernel loss :
       {LossKernel::kChunked, LossKernel::kFused, LossKernel::kFp32, LossKernel::kEager}) {
    s.training.loss = loss;
    s.parallel.microbatches = 1;
    const StepMemory one = memory_of(s);
    gradients.push_back(one.worst.gradients);
    bytes.push_back(one.max_bytes);
    s.parallel.microbatches = 8;
    EXPECT_GE(memory_of(s).max_bytes, one.max_bytes);
  }
  EXPECT_LT(bytes[0], bytes[1]);
  EXPECT_NEAR(bytes[2] - bytes[1], 65536.0 * 151936 * 2, 1e6);  // a copy more of the logits
  EXPECT_NEAR(bytes[3] - bytes[2], 65536.0 * 151936 * 6, 1e6);  // 12 bytes a logit
  EXPECT_EQ(gradients[2], 0);
}

// The first backward makes gradients while activations go: it holds all gradients and a layer, or all layers.
TEST(StepMemory, FirstBackwardOfFsdpHoldsActivationsOrGradients) {
  Scenario s = published_job("qwen3-30b-a3b");
  s.training.set_sharding("fsdp");
  s.training.recompute = StepRecompute::parse("full");
  s.training.loss = LossKernel::kChunked;
  for (const int seq : {1024, 65536}) {
    s.parallel.seq = seq;
    s.parallel.microbatches = 8;
    const StepMemory later = memory_of(s);
    double shards = 0;
    for (const MemoryCause& c : later.stages.front().causes)
      if (c.kind == MemoryKind::kGradients && !c.what.starts_with("unit")) shards += c.bytes;
    ASSERT_GT(shards, 0);
    s.parallel.microbatches = 1;
    const double layer = later.worst.activations / static_cast<double>(s.model.layers);
    EXPECT_NEAR(later.max_bytes - memory_of(s).max_bytes, std::min(shards, later.worst.activations - layer),
                1e-6 * shards);
  }
}

// The kept tensors of the dispatcher's program have the names and the sum of its own operations.
TEST(KeptByProgram, IsWhatTheProgramSaves) {
  const Example example;
  const Architecture model = Architecture::load("mixtral-8x7b");
  for (const char* dispatcher : {"alltoall", "allgather", "flex-deepep", "flex-hybridep", "expert-tp"}) {
    SCOPED_TRACE(dispatcher);
    const Program program = build(dispatcher, example.layer);
    for (int r = 0; r < program.ranks(); ++r) {
      const auto kept = kept_by_program(program, r, model, TrainingSettings());
      EXPECT_GT(kept.size(), 2u);
      EXPECT_NEAR(bytes_of(kept), static_cast<double>(program.saved_bytes[static_cast<std::size_t>(r)]),
                  1e-6);
      for (const char* precision : {"bf16", "mxfp8"})
        for (const char* recompute : {"none", "layernorm", "full", "op"}) {
          TrainingSettings plan;
          plan.set_precision(precision);
          plan.recompute = StepRecompute::parse(recompute);
          EXPECT_NEAR(bytes_of(kept_by_program(program, r, model, plan)), kept_bytes(program, r, model, plan),
                      1e-6);
        }
    }
  }
}

// The gradient of the residual stream, and the larger of the up projection's and of queries, keys and
// values'.
TEST(BackwardTransient, IsTheStreamAndTheLargestGradient) {
  const LayerKind dense, moe{LayerKind::Mixer::kAttention, LayerKind::Ffn::kMoe, false};
  TrainingSettings plan;
  const double stream = 64 * 64 * 2, up = 64 * 2 * 96 * 2, qkv = 64 * (64 + 32 + 32) * 2;
  EXPECT_EQ(backward_transient(small_model(), tokens(64), plan, dense), stream + up);
  EXPECT_EQ(backward_transient(small_model(), tokens(64), plan, moe), stream + qkv);
  // Recomputed, gate, up and their product are there again.
  plan.recompute = StepRecompute::parse("mlp");
  EXPECT_EQ(backward_transient(small_model(), tokens(64), plan, dense), stream + up + 64 * 3 * 96 * 2);
  // The gathered rows of two products with tensor parallelism, and half of every width.
  Parallel half = tokens(64);
  half.tp = 2;
  plan = {};
  EXPECT_EQ(backward_transient(small_model(), half, plan, dense), stream / 2 + 2 * stream + up / 2);
}

// [q+k+v, H] = [128, 64], [H, v] = [64, 64], dense [192, 64] and [64, 96]; an expert's up has the shape of
// the projection and is not counted again, its down [64, 32] is.
TEST(DistinctWeights, CountsEveryShapeOnce) {
  const LayerKind dense, moe{LayerKind::Mixer::kAttention, LayerKind::Ffn::kMoe, false};
  const double attention = 128 * 64 + 64 * 64, ffn = 192 * 64 + 64 * 96;
  EXPECT_EQ(distinct_weights(small_model(), tokens(64), {dense}), attention + ffn);
  EXPECT_EQ(distinct_weights(small_model(), tokens(64), {dense, dense, moe, moe}), attention + ffn + 64 * 32);
  EXPECT_EQ(distinct_weights(small_model(), tokens(64), {}), 0);
}

}  // namespace
}  // namespace moesim::models::testing
