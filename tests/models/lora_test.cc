// Low-rank adapters beside frozen weights: elements, FLOPs, products, memory and collectives by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "models/answers/answer.h"
#include "models/programs/layer_program.h"
#include "models/programs/projections.h"
#include "models/step/pipeline_layout.h"
#include "models/step/step_forecast.h"
#include "models/step/step_memory.h"
#include "models/step/training_flops.h"
#include "models/step/transfers.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

constexpr Lora kAttention{8, Lora::Modules::kAttention}, kDense{8, Lora::Modules::kDense},
    kExperts{8, Lora::Modules::kExperts};

// The small model's attention reads 64 columns, writes 64 + 2 x 32, and projects 64 back to 64: adapters of
// rank 8 have 8 x (128 + 64) + 8 x (64 + 64) elements. Those of the dense FFN: 8 x (192 + 64 + 64 + 96).
// Adapters of an expert of 32 inner columns: 8 x (64 + 64 + 32 + 64).
constexpr double kOfAttention = 8 * (192 + 128), kOfFfn = 8 * (256 + 160), kOfExpert = 8 * (128 + 96);

TEST(Lora, ElementsOfAdaptersByHand) {
  const Architecture a = testing::small_model();
  const Chunk all = cut_into_chunks(a, Parallel{}, std::vector<double>(4, 1.0), 0, 0).front();
  const StageParameters attention = trained_parameters(a, Parallel{}, kAttention, all);
  EXPECT_EQ(attention.dense, 4 * kOfAttention);
  EXPECT_EQ(attention.dense_tensors, 4 * 2 * 2);
  EXPECT_EQ(attention.experts, 0);
  EXPECT_EQ(trained_parameters(a, Parallel{}, kDense, all).dense, 4 * kOfAttention + kOfFfn);
  const StageParameters experts = trained_parameters(a, Parallel{}, kExperts, all);
  EXPECT_EQ(experts.dense, 4 * kOfAttention + kOfFfn);
  EXPECT_EQ(experts.experts, 3 * 8 * kOfExpert);
  EXPECT_EQ(experts.expert_tensors, 3 * 4);
  EXPECT_EQ(trained_parameters(a, Parallel{}, {}, all).dense, chunk_parameters(a, Parallel{}, all).dense);
}

// GLM-5.2's published adapters (Megatron-Bridge's verification card): 790 tensors of rank 8 in 79 layers, the
// one of prediction among them: five products of latent attention, two tensors each.
TEST(Lora, Glm52HasItsPublishedNumberOfTensors) {
  Architecture a = Architecture::load("GLM-5.2");
  a.mtp_layers = 1;
  Chunk all;
  all.layers = layer_stack(a);
  EXPECT_EQ(trained_parameters(a, Parallel{}, kAttention, all).dense_tensors, 790);
}

// 4 FLOPs of a frozen weight, 6 of an adapter's.
TEST(Lora, FlopsByHand) {
  const Architecture a = testing::small_model();
  const double weights = 4 * (64 * 128 + 64 * 64) + 3 * 64 * 96 + 3 * (64 * 8 + 2 * 3 * 64 * 32) + 64 * 128;
  const double core = 4 * 2 * 128 * 4 * (16 + 16);
  EXPECT_DOUBLE_EQ(training_flops_per_token(a, 256, 2, kAttention),
                   4 * weights + 6 * 4 * kOfAttention + 3 * core);
  EXPECT_DOUBLE_EQ(expert_flops_per_token(a, 2, kAttention), 4 * 2 * 3 * 64 * 32);
  EXPECT_DOUBLE_EQ(training_flops_per_token(a, 256, 2, kExperts),
                   training_flops_per_token(a, 256, 2, kDense) + 6 * 3 * 2 * kOfExpert);
  EXPECT_DOUBLE_EQ(expert_flops_per_token(a, 2, kExperts), 2 * (4 * 3 * 64 * 32 + 6 * kOfExpert));
}

double flops_of(const Program& p, const std::vector<Op>& pass, GemmPass kind) {
  double flops = 0;
  for (const Op& op : pass)
    if (op.kind == OpKind::kGemm && op.pass == kind)
      flops += 2.0 * static_cast<double>(p.expert_rows(op.table, 0)[0] * op.n * op.k * op.repeat);
  return flops;
}

// 64 tokens: forward and the gradient of the input meet weights and adapters, gradients of weights adapters.
TEST(Lora, ProductsOfADenseLayer) {
  const Architecture a = testing::small_model();
  LayerContext context;
  context.model = &a;
  context.parallel.seq = context.tokens = 64;
  context.topk = 2;
  const double weights = 64 * 128 + 64 * 64 + 3 * 64 * 96;
  for (const Lora& lora : {kAttention, kDense}) {
    context.lora = lora;
    const double adapters = kOfAttention + (lora == kDense ? kOfFfn : 0);
    const Program p = before_experts(context, {});
    EXPECT_EQ(flops_of(p, p.forward(), GemmPass::kForward), 2 * 64 * (weights + adapters));
    EXPECT_EQ(flops_of(p, p.backward(), GemmPass::kDgrad), 2 * 64 * (weights + adapters));
    EXPECT_EQ(flops_of(p, p.backward(), GemmPass::kWgrad), 2 * 64 * adapters);
  }
  const Program head = head_program(context), embedding = embedding_program(context);
  EXPECT_EQ(flops_of(head, head.backward(), GemmPass::kWgrad), 0);
  EXPECT_GT(flops_of(head, head.backward(), GemmPass::kDgrad), 0);
  EXPECT_TRUE(embedding.backward().empty());
}

StepMemory memory_of(const std::string& sharding, const Lora& lora) {
  Scenario s = testing::small_job();
  s.training.set_sharding(sharding);
  s.training.lora = lora;
  const Scenario r = testing::resolved(std::move(s));
  return StepForecaster(r, r.dispatchers.front()).forecast(ProgramPricer(*r.cluster)).memory;
}

double bytes_of(const StepMemory& m, const char* end) {
  double sum = 0;
  for (const MemoryCause& c : m.stages.front().causes)
    if (c.what.ends_with(end)) sum += c.bytes;
  return sum;
}

// Frozen weights in bf16 and nothing else; adapters have 2 + 4 bytes, and 12 over the eight replicas.
TEST(Lora, MemoryByHand) {
  const Scenario s = testing::resolved(testing::small_job());
  const StageParameters n = chunk_parameters(s.model, s.parallel, PipelineLayout(s, false).chunks.front());
  const double adapters = 4 * kOfAttention;
  const StepMemory lora = memory_of("zero1", kAttention), full = memory_of("zero1", {});
  EXPECT_DOUBLE_EQ(lora.worst.parameters, 2 * (n.dense + n.experts + adapters));
  EXPECT_DOUBLE_EQ(lora.worst.gradients, 4 * adapters);
  EXPECT_DOUBLE_EQ(lora.worst.optimizer, 12 * adapters / 8);
  EXPECT_DOUBLE_EQ(memory_of("ddp", kAttention).worst.optimizer, 12 * adapters);
  EXPECT_LT(lora.max_bytes, full.max_bytes);
  // Rows of experts and FFNs are kept for activations alone; 64 tokens of rank 8 for each of eight adapters.
  EXPECT_EQ(bytes_of(lora, "fc2 input"), 0);
  EXPECT_GT(bytes_of(full, "fc2 input"), 0);
  EXPECT_GT(bytes_of(lora, "fc1 output"), 0);
  EXPECT_EQ(bytes_of(lora, "sorted rows"), 0);
  EXPECT_GT(bytes_of(memory_of("zero1", kExperts), "sorted rows"), 0);
  EXPECT_EQ(bytes_of(lora, "adapters/rows between their products") / (64 * 8 * 8 * 2),
            static_cast<double>(lora.stages.front().in_flight));
  EXPECT_GT(bytes_of(memory_of("zero1", kDense), "dense FFN/activation"), 0);
  EXPECT_EQ(bytes_of(lora, "dense FFN/activation"), 0);
}

// Adapters of two local experts in three layers lie on two replicas; what they multiply is kept.
TEST(Lora, MemoryOfExpertsAdaptersByHand) {
  const StepMemory experts = memory_of("zero1", kExperts), dense = memory_of("zero1", kDense);
  const double adapters = 3 * 2 * kOfExpert;
  EXPECT_DOUBLE_EQ(experts.worst.parameters - dense.worst.parameters, 2 * adapters);
  EXPECT_DOUBLE_EQ(experts.worst.gradients - dense.worst.gradients, 4 * adapters);
  EXPECT_DOUBLE_EQ(experts.worst.optimizer - dense.worst.optimizer, 12 * adapters / 2);
  EXPECT_GT(bytes_of(experts, "fc2 input"), 0);
  // Rows of rank 8 after both down projections of an adapter, a quarter of the fc2 input's 32 columns each.
  EXPECT_DOUBLE_EQ(bytes_of(experts, "rows between adapters"), bytes_of(experts, "fc2 input") / 2);
}

// 64 tokens of two experts on each of four ranks: weights in forward and for the input, adapters in all three.
TEST(Lora, ProductsOfTheExperts) {
  const auto flops = [](const Lora& lora, GemmPass kind) {
    Scenario s = testing::small_job();
    s.training.lora = lora;
    const Scenario r = testing::resolved(std::move(s));
    const JobRouting routing(r);
    const Placement placement(r);
    const LayerPrograms programs(r, r.dispatchers.front(), routing, placement,
                                 placement.dispatch_classes().front());
    const Program& p = programs.first()->program;
    double sum = 0;
    for (const auto* pass : {&p.forward(), &p.backward()})
      for (const Op& op : *pass) {
        if (op.kind != OpKind::kGemm || op.pass != kind) continue;
        for (int rank = 0; rank < p.ranks(); ++rank)
          for (const std::int64_t rows : p.expert_rows(op.table, rank))
            sum += static_cast<double>(rows * op.n * op.k * op.repeat);
      }
    return sum / (4 * 64 * 2);
  };
  const double weights = 3 * 64 * 32;
  for (const GemmPass pass : {GemmPass::kForward, GemmPass::kDgrad}) {
    EXPECT_DOUBLE_EQ(flops(kDense, pass), weights);
    EXPECT_DOUBLE_EQ(flops(kExperts, pass), weights + kOfExpert);
  }
  EXPECT_DOUBLE_EQ(flops(kExperts, GemmPass::kWgrad), kOfExpert);
}

// Gradients of adapters alone travel: DDP's all-reduce of them, nothing among the experts' replicas; FSDP
// still gathers all weights.
TEST(Lora, CollectivesAreTheAdapters) {
  const auto transfers = [](const std::string& sharding, const Lora& lora) {
    Scenario s = testing::published_job();
    s.training.set_sharding(sharding);
    s.training.lora = lora;
    const Scenario r = testing::resolved(std::move(s));
    const PipelineLayout plan(r, false);
    return std::pair(step_transfers({.scenario = r,
                                     .chunks = plan.chunks,
                                     .slots = r.model.experts,
                                     .placement = Placement(r),
                                     .pricer = ProgramPricer(*r.cluster),
                                     .network_of = [](std::size_t, bool) { return 0; },
                                     .kept_of_pass = [] { return std::vector<double>{}; }}),
                     trained_parameters(r.model, r.parallel, lora, plan.chunks.front()));
  };
  const auto [ddp, adapters] = transfers("ddp", kAttention);
  const Scenario s = testing::resolved(testing::published_job());
  EXPECT_EQ(ddp.gradients[0],
            to_ps(ProgramPricer(*s.cluster)
                      .collectives()
                      .seconds(sim::CollectiveOp::all_reduce, Placement(s).dense_replicas().all.front(),
                               4 * adapters.dense)));
  const auto fsdp = transfers("fsdp", kAttention).first, full = transfers("fsdp", {}).first;
  EXPECT_EQ(fsdp.sharded[0].forward, full.sharded[0].forward);
  EXPECT_LT(fsdp.sharded[0].backward, full.sharded[0].backward);
  EXPECT_LT(fsdp.optimizer[0], full.optimizer[0]);
}

// Qwen3-30B-A3B: a step without gradients of frozen weights, two thirds of the FLOPs and a little for the
// adapters; the time lies between two thirds and the whole.
TEST(Lora, StepsTakeTwoThirdsOfTheFlops) {
  const auto forecast = [](const Lora& lora) {
    Scenario s = testing::published_job();
    s.training.lora = lora;
    const Scenario r = testing::resolved(std::move(s));
    return StepForecaster(r, r.dispatchers.front()).forecast(ProgramPricer(*r.cluster));
  };
  const Forecast full = forecast({}), lora = forecast(kAttention), wide = forecast({64});
  EXPECT_GT(lora.flops / full.flops, 2.0 / 3);
  EXPECT_LT(lora.flops / full.flops, 0.75);
  EXPECT_LT(lora.time_us.value, full.time_us.value);
  EXPECT_GT(lora.time_us.value, 0.5 * full.time_us.value);
  const Forecast experts = forecast(kExperts);
  EXPECT_GT(experts.flops, lora.flops);
  EXPECT_GT(experts.time_us.value, lora.time_us.value);
  EXPECT_GT(wide.flops, lora.flops);
  EXPECT_GT(wide.time_us.value, lora.time_us.value);
}

}  // namespace
}  // namespace moesim::models
