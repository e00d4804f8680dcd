// A scenario's rules between values: what follows from others, what contradicts, each in one line.
#include "models/workload/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <functional>

#include "base/json_reader.h"
#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using testing::cluster_named;
using testing::small_job;

std::string refusal(const std::function<void(Scenario&)>& change) {
  Scenario s = small_job();
  return message_of([&] {
    change(s);
    s.resolve();
  });
}

TEST(Resolve, FillsTheCluster) {
  Scenario s = small_job("dgx-h100x4");
  s.parallel.pp = 2;
  s.resolve();
  EXPECT_EQ(s.parallel.dp, 16);
  EXPECT_EQ(s.topk, 2);
  EXPECT_TRUE(s.resolved);
  // Without a cluster the smallest that holds the plan.
  Scenario alone = small_job();
  alone.cluster = nullptr;
  alone.parallel.ep = 4;
  alone.parallel.pp = 4;
  alone.resolve();
  EXPECT_EQ(alone.parallel.dp, 4);
  EXPECT_EQ(alone.cluster->name, "dgx-h100x2");
  // tp 4 x dp must be a multiple of ep 6.
  Scenario odd = small_job();
  odd.cluster = nullptr;
  odd.model.experts = 12;
  odd.parallel.tp = 4;
  odd.parallel.ep = 6;
  odd.resolve();
  EXPECT_EQ(odd.parallel.dp, 3);
}

// Whatever the plan: both grids fit a stage, and as many GPUs are used as a multiple of the plan allows.
RC_GTEST_PROP(Resolve, DataParallelismFillsWhatThePlanLeaves, ()) {
  Scenario s = small_job("dgx-h100x4");
  s.parallel.tp = *rc::gen::element<std::int64_t>(1, 2, 4);
  s.parallel.ep = *rc::gen::element<std::int64_t>(1, 2, 4, 8);
  s.parallel.pp = *rc::gen::element<std::int64_t>(1, 2, 4);
  s.resolve();
  RC_ASSERT(s.parallel.world() == 32);
  RC_ASSERT(s.parallel.tp * s.parallel.dp % s.parallel.ep == 0);
}

TEST(Resolve, RefusesWhatDoesNotFit) {
  EXPECT_EQ(refusal([](Scenario& s) { s.model = {}; }),
            "scenario: found no model, expected \"model\" or --model NAME");
  EXPECT_EQ(refusal([](Scenario& s) { s.topk = 9; }),
            "topk: found 9, expected at most the model's 8 experts");
  EXPECT_EQ(refusal([](Scenario& s) { s.parallel.dp = 16, s.give("parallel.dp"); }),
            "cluster dgx-h100x1: found 8 GPUs, expected at least tp x cp x dp x pp = 16 for this plan");
  EXPECT_EQ(refusal([](Scenario& s) { s.parallel.etp = 3, s.cluster = nullptr; }),
            "parallel.etp: found 3, expected a divisor of the experts' inner size 32");
  EXPECT_EQ(refusal([](Scenario& s) { s.placement = PlacementSpec::parse("balanced:slots=4"); }),
            "placement: found 4 slots, expected at least the model's 8 experts");
}

// The example of deepseek-ai/EPLB: 12 experts in 16 slots of 8 GPUs.
TEST(Resolve, SlotsAndNotExpertsDivideByEp) {
  Scenario s = small_job();
  s.model.experts = 12;
  s.parallel.ep = 8;
  s.placement = PlacementSpec::parse("balanced:slots=16");
  s.resolve();
  EXPECT_EQ(s.parallel.dp, 8);
  const auto with_slots = [](const char* placement) {
    return refusal([&](Scenario& one) {
      one.model.experts = 12;
      one.parallel.ep = 8;
      one.placement = PlacementSpec::parse(placement);
    });
  };
  EXPECT_EQ(with_slots("balanced:slots=18"), "placement: found 18 slots, expected a multiple of ep 8");
  EXPECT_THAT(with_slots("balanced"), ::testing::HasSubstr("of the 12 experts"));
}

TEST(Resolve, RefusesShardingThatSaysNothing) {
  EXPECT_EQ(refusal([](Scenario& s) { s.training.shard_group = 4; }),
            "training.shard_group: found 4 with zero1, expected it with hsdp");
  EXPECT_EQ(refusal([](Scenario& s) { s.training.reshard_after_forward = false; }),
            "training.reshard_after_forward: found false with zero1, expected it with fsdp or hsdp");
  EXPECT_EQ(refusal([](Scenario& s) { s.training.shampoo = true; }),
            "training.shampoo: found true with zero1, expected it with ddp, fsdp or hsdp");
  EXPECT_EQ(refusal([](Scenario& s) { s.training.fsdp_unit = named<FsdpUnit>("fsdp unit", "root"); }),
            "training.fsdp_unit: found root with zero1, expected it with fsdp or hsdp");
  EXPECT_EQ(refusal([](Scenario& s) { s.training.set_sharding("hsdp:shard=3"); }),
            "sharding: found shard=3, expected a divisor of dp x cp = 8");
  EXPECT_EQ(refusal([](Scenario& s) { s.training.preconditioning.frequency = 5; }),
            "training.precondition_frequency: found without training.shampoo, expected both");
}

TEST(Resolve, RefusesOptimizersAndAdaptersOfNoSuchJob) {
  EXPECT_EQ(refusal([](Scenario& s) { s.training.newton_schulz_steps = 6; }),
            "training.newton_schulz_steps: found it without training.muon, expected both");
  EXPECT_EQ(refusal([](Scenario& s) { s.training.set_sharding("ddp:shampoo:muon"); }),
            "training.muon: found true with shampoo, expected one of them");
  EXPECT_EQ(
      refusal([](Scenario& s) {
        s.training.set_sharding("fsdp:muon");
        s.training.router_sharding = ShardingScheme::kDdp;
      }),
      "training.muon: found true with modules that are sharded apart, expected training.sharding alone");
  EXPECT_EQ(refusal([](Scenario& s) {
              s.training.lora.rank = 8;
              s.training.muon = true;
            }),
            "training.lora: found 8 with muon, expected Adam");
  EXPECT_EQ(refusal([](Scenario& s) {
              s.training.lora.rank = 8;
              s.train = false;
            }),
            "training.lora: found 8 without training, expected it with training");
  EXPECT_EQ(refusal([](Scenario& s) {
              s.cluster = nullptr;
              s.scope = Scenario::Scope::kStep;
              s.set_model("mixtral-8x7b");
              s.training.lora = {8, Lora::Modules::kDense};
            }),
            "training.lora_modules: found attention+ffn with model mixtral-8x7b, which has neither dense FFN "
            "nor shared expert, expected attention");
  EXPECT_EQ(refusal([](Scenario& s) { s.give("training.lora_modules"); }),
            "training.lora_modules: found attention without training.lora, expected both");
}

TEST(Resolve, RefusesToComputeAgainWhatTheModelHasNot) {
  const auto again = [](const char* model, const char* parts) {
    return refusal([&](Scenario& s) {
      s.cluster = nullptr;
      s.scope = Scenario::Scope::kStep;
      s.set_model(model);
      s.training.recompute = StepRecompute::parse(parts);
    });
  };
  EXPECT_EQ(again("mixtral-8x7b", "layernorm+mla_up_proj"),
            "training.recompute: found mla_up_proj with model mixtral-8x7b, which has no latent projections; "
            "expected a part of it");
  EXPECT_EQ(again("mixtral-8x7b", "shared_experts"),
            "training.recompute: found shared_experts with model mixtral-8x7b, which has no shared experts; "
            "expected a part of it");
  EXPECT_EQ(again("qwen3-30b-a3b", "mlp+moe"),
            "training.recompute: found mlp with model qwen3-30b-a3b, which has no dense FFN; expected a part "
            "of it");
  EXPECT_EQ(again("deepseek-v3", "mla_up_proj+mlp+shared_experts+moe_act"), "");
  EXPECT_EQ(again("mixtral-8x7b", "full"), "");
  Scenario dense;
  dense.scope = Scenario::Scope::kStep;
  dense.model = small_job().model;
  dense.model.experts = dense.model.topk = dense.model.expert_ffn = 0;
  dense.model.dense_ffn = 64;
  dense.training.recompute = StepRecompute::parse("moe_act");
  EXPECT_THAT(message_of([&] { dense.resolve(); }), ::testing::HasSubstr("which has no experts"));
}

TEST(Resolve, RefusesPrecisionsThatTheGpuHasNot) {
  const auto on = [](const char* cluster, const char* precision) {
    return refusal([&](Scenario& s) {
      s.cluster = cluster_named(cluster);
      s.training.set_precision(precision);
    });
  };
  EXPECT_EQ(on("dgx-h100x1", "mxfp8"),
            "training.precision: found mxfp8 on h100-sxm, expected bf16, fp8, fp8_block: what the GPU has");
  EXPECT_EQ(on("dgx-a100x1", "fp8"),
            "training.precision: found fp8 on a100-sxm, expected bf16: what the GPU has");
  EXPECT_NE(on("dgx-h100x1", "nvfp4"), "");
  for (const char* precision : {"bf16", "fp8", "fp8_block"}) EXPECT_EQ(on("dgx-h100x1", precision), "");
  for (const char* precision : {"fp8_block", "mxfp8", "nvfp4"}) EXPECT_EQ(on("dgx-b200x1", precision), "");
}

TEST(Resolve, RefusesToGatherAgainWhereAPipelineDoesNot) {
  const auto with = [](int pp, const char* sharding, bool again) {
    return refusal([&](Scenario& s) {
      s.parallel.pp = pp;
      s.training.set_sharding(sharding);
      s.training.reshard_after_forward = again;
      s.give("training.reshard_after_forward");
    });
  };
  EXPECT_EQ(
      with(2, "fsdp", true),
      "training.reshard_after_forward: found true with parallel.pp 2, whose stages stay gathered for all "
      "microbatches; expected false, or pp 1");
  EXPECT_EQ(with(2, "fsdp", false), "");
  EXPECT_EQ(with(1, "fsdp", true), "");
}

TEST(Resolve, RefusesFrameworksOptionsWithoutOne) {
  EXPECT_EQ(refusal([](Scenario& s) {
              s.training.framework = named<Framework>("framework", "none");
              s.training.launch = named<LaunchMode>("launch", "graphs");
            }),
            "training.framework: found none with a precision, fused kernels or a launch mode, which are a "
            "framework's; expected one of them");
  EXPECT_EQ(
      refusal([](Scenario& s) { s.activation = DType::kFp32; }),
      "activation_dtype: found fp32 with framework megatron, whose products were measured with bf16 rows; "
      "expected it with framework none");
  EXPECT_EQ(
      refusal([](Scenario& s) { s.give("training.overload.recorder"); }),
      "training.overload.recorder: found deferred-clear with launch eager, expected graphs: without them "
      "every step is recorded");
}

TEST(Resolve, ALayerHasNoDenseFfnAndNoNodeToShardOver) {
  EXPECT_EQ(refusal([](Scenario& s) {
              s.scope = Scenario::Scope::kLayer;
              s.training.recompute = StepRecompute::parse("mlp");
            }),
            "training.recompute: found mlp with scope layer, which has no dense FFN; scope step has");
  EXPECT_EQ(refusal([](Scenario& s) {
              s.scope = Scenario::Scope::kLayer;
              s.training.sharding = ShardingScheme::kHsdp;
            }),
            "training.sharding: found hsdp, expected hsdp:shard=N, the ranks that shard");
}

TEST(Resolve, ADenseModelHasNothingOfExperts) {
  const auto dense = [](const std::function<void(Scenario&)>& change) {
    return refusal([&](Scenario& s) {
      s.model.experts = s.model.topk = 0;
      s.parallel.ep = 1;
      change(s);
    });
  };
  EXPECT_EQ(dense([](Scenario&) {}), "");
  EXPECT_EQ(dense([](Scenario& s) { s.parallel.ep = 2; }),
            "model small: found no experts with expert parallelism, expected a mixture of experts");
  EXPECT_EQ(dense([](Scenario& s) { s.scope = Scenario::Scope::kLayer; }),
            "model small: found no experts with scope layer, which is a MoE layer's, expected a mixture of "
            "experts, or --scope step, which answers dense models");
  EXPECT_EQ(dense([](Scenario& s) { s.routing = RoutingSpec::parse("zipf:1"); }),
            "model small: found no experts with a routing, expected a mixture of experts");
  Scenario s = small_job();
  s.model.experts = 0;
  s.parallel.ep = 1;
  s.resolve();
  EXPECT_EQ(s.dispatchers.front().name, kNoDispatcher);
}

// replicate 2 x shard 2 x tp 2: HSDP over two ranks; a shard of one is plain data parallelism.
TEST(Resolve, AMeshSaysThePlanAndTheSharding) {
  const auto with_mesh = [](const std::string& text) {
    Scenario s = small_job();
    s.parallel = {};
    s.parallel.seq = 64;
    s.mesh = DeviceMesh::parse(JsonNode::parse("\"" + text + "\"", "m"));
    return s;
  };
  Scenario s = with_mesh("replicate=2,shard=2,tp=2");
  s.resolve();
  EXPECT_EQ(s.parallel.tp, 2);
  EXPECT_EQ(s.parallel.dp, 4);
  EXPECT_EQ(s.training.sharding, ShardingScheme::kHsdp);
  EXPECT_EQ(s.training.shard_group, 2);
  s = with_mesh("replicate=4,tp=2");
  s.resolve();
  EXPECT_EQ(s.training.sharding, ShardingScheme::kDdp);
  s = with_mesh("shard=2,ep=4");
  s.resolve();
  EXPECT_EQ(s.training.sharding, ShardingScheme::kFsdp);
  EXPECT_EQ(s.parallel.dp, 8);
  EXPECT_EQ(s.parallel.data_ranks(), 2);  // ranks of the ep axis hold the dense weights once each
  s = with_mesh("shard=4,tp=2");
  s.parallel.tp = 4;
  s.give("parallel.tp");
  EXPECT_EQ(message_of([&] { s.resolve(); }),
            "parallel.tp: found 4 beside a mesh that makes it 2, expected one of them");
}

TEST(Scenario, TypesOfRowsAndRouters) {
  Scenario s;
  const auto say = [&](const char* path, const char* name) { set_field(*find_field(path), s, name); };
  say("router_dtype", "fp64");
  EXPECT_EQ(s.router_dtype, DType::kFp64);
  say("activation_dtype", "fp16");
  EXPECT_EQ(s.activation, DType::kFp16);
  EXPECT_EQ(message_of([&] { say("router_dtype", "fp8"); }),
            "router dtype: found 'fp8', expected bf16, fp16, fp32 or fp64");
  EXPECT_EQ(message_of([&] { say("activation_dtype", "fp64"); }),
            "activation dtype: found 'fp64', expected bf16, fp16 or fp32");
}

// A path in a file is taken from the file's folder where something stands there, else as it stands.
TEST(Beside, LooksIntoTheFoldersOfFiles) {
  const std::string source = MOESIM_SOURCE_DIR;
  EXPECT_EQ(beside(source + "/docs/none.json", "contributing.md"), source + "/docs/contributing.md");
  EXPECT_EQ(beside(source + "/docs/none.json", "nothing-here.md"), "nothing-here.md");
  EXPECT_EQ(beside(source + "/docs/none.json", "/etc/passwd"), "/etc/passwd");
}

}  // namespace
}  // namespace moesim::models
