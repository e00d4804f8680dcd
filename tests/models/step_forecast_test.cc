// A whole training step from a model card: what must hold whatever the prices are.
#include "models/step/step_forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>

#include "base/input_error.h"
#include "models/answers/answer.h"
#include "models/hardware/cluster.h"
#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

Scenario small(const std::string& model = "qwen3-30b-a3b", const std::string& cluster = "dgx-h100x2") {
  return testing::published_job(model, cluster);
}

Answer forecast(const Scenario& s, int draws = 0) { return answer(s, {.draws = draws}).answers.front(); }

double bubble_us(const Answer& a) { return a.breakdown_us[static_cast<std::size_t>(sim::Category::bubble)]; }

double seconds(const Scenario& s) { return forecast(s).time_us.value * 1e-6; }

TEST(StepForecast, BreakdownAddsUpAndRatesAgree) {
  for (const char* schedule : {"1f1b", "zero-bubble", "dualpipe"}) {
    Scenario s = small();
    s.parallel.pp = 2;
    s.training.pipeline = named<PipelineKind>("schedule", schedule);
    const Answer f = forecast(s);
    const double sum = std::accumulate(f.breakdown_us.begin(), f.breakdown_us.end(), 0.0);
    EXPECT_NEAR(sum / f.time_us.value, 1, 1e-6) << schedule;
    EXPECT_DOUBLE_EQ(f.tokens_per_s_per_gpu() * static_cast<double>(f.gpus),
                     f.tokens / (f.time_us.value * 1e-6));
    EXPECT_EQ(f.tokens, 8.0 * 8 * 4096);  // dp 8, 8 microbatches
    EXPECT_GT(f.mfu, 0.02);
    EXPECT_LT(f.mfu, 0.7);
    EXPECT_LE(f.exposed_comm_us, f.time_us.value);
  }
}

TEST(StepForecast, IntervalsHoldTheValueAndRepeat) {
  const Answer a = forecast(small(), 8), b = forecast(small(), 8);
  EXPECT_LT(a.time_us.low, a.time_us.value);
  EXPECT_GT(a.time_us.high, a.time_us.value);
  EXPECT_EQ(a.time_us.low, b.time_us.low);
  EXPECT_EQ(a.draws_us, b.draws_us);
}

TEST(StepForecast, UnfusedAttentionIsNeitherFasterNorSmaller) {
  double seconds = 0, bytes = 0;
  for (const char* kernel : {"flash", "unfused", "unfused-dropout"}) {
    Scenario s = small();
    s.training.attention = named<AttentionKernel>("attention", kernel);
    const Answer f = forecast(s);
    EXPECT_GT(f.time_us.value, seconds) << kernel;
    EXPECT_GT(f.memory.max_bytes, bytes) << kernel;
    seconds = f.time_us.value, bytes = f.memory.max_bytes;
  }
  Scenario s = small();
  s.training.attention = named<AttentionKernel>("attention", "unfused");
  s.parallel.cp = 2;
  EXPECT_THAT(moesim::testing::message_of([&] { forecast(s); }),
              HasSubstr("training.attention: found unfused with context parallelism"));
}

// All-reduces move as many bytes as gathers and scatters and are fewer; every rank holds all rows.
TEST(StepForecast, WithoutSequenceParallelismADenseModelHoldsMore) {
  Scenario s = small();
  s.model.experts = s.model.topk = 0;
  s.model.dense_ffn = 6144;
  s.parallel.ep = 1;
  s.parallel.tp = 4;
  const Answer shared = forecast(s);
  s.training.sequence_parallel = false;
  const Answer whole = forecast(s);
  EXPECT_NEAR(whole.time_us.value / shared.time_us.value, 1, 0.3);
  EXPECT_GT(whole.memory.max_bytes, shared.memory.max_bytes);
  Scenario experts = small();
  experts.parallel.tp = 2;
  experts.training.sequence_parallel = false;
  EXPECT_THAT(moesim::testing::message_of([&] { forecast(experts); }),
              HasSubstr("training.sequence_parallel: found false with experts"));
}

TEST(StepForecast, MoreWorkTakesLonger) {
  const double base = seconds(small());
  const auto with = [](auto&& change) {
    Scenario s = small();
    change(s);
    return seconds(s);
  };
  EXPECT_GT(with([](Scenario& s) { s.parallel.microbatches = 16; }), 1.8 * base);
  EXPECT_GT(with([](Scenario& s) { s.training.recompute = StepRecompute::parse("moe_act"); }), base);
  const double whole = with([](Scenario& s) { s.training.recompute = StepRecompute::parse("full"); });
  EXPECT_GT(whole, 1.15 * base);  // a third more computing, with its communication
  EXPECT_LT(whole, 1.5 * base);
  EXPECT_LT(with([](Scenario& s) { s.training.launch = named<LaunchMode>("launch", "graphs"); }),
            base * (1 + 1e-9));
  EXPECT_LT(with([](Scenario& s) { s.training.fused_kernels = true; }), base * (1 + 1e-9));
  EXPECT_GT(with([](Scenario& s) { s.model.layers *= 2; }), 1.7 * base);
}

TEST(StepForecast, ScheduleAndOverlapSaveWhatTheyPromise) {
  Scenario s = small("deepseek-v2-lite", "dgx-h100x2");
  s.parallel.ep = 4;
  s.parallel.pp = 4;
  s.parallel.microbatches = 8;
  const Answer plain = forecast(s);
  Scenario other = s;
  other.parallel.vpp = 2;
  EXPECT_LT(bubble_us(forecast(other)), bubble_us(plain));
  other = s;
  other.training.pipeline = named<PipelineKind>("schedule", "zero-bubble");
  EXPECT_LT(bubble_us(forecast(other)), bubble_us(plain));
  other = s;
  other.training.pipeline = named<PipelineKind>("schedule", "dualpipe");
  EXPECT_LT(forecast(other).exposed_comm_us, plain.exposed_comm_us);
  Scenario one = small();
  const Answer apart = forecast(one);
  one.training.overlap.expert_communication = true;
  EXPECT_LT(forecast(one).exposed_comm_us, apart.exposed_comm_us);
  one.training.overlap.delayed_wgrad = true;
  EXPECT_LE(forecast(one).exposed_comm_us, apart.exposed_comm_us);
  // A multi-token-prediction layer has weight gradients of a head, too.
  Scenario two_heads = small("deepseek-v3", "dgx-h100x4");
  two_heads.model.layers = 8;
  two_heads.parallel.ep = 16;
  two_heads.training.overlap = one.training.overlap;
  EXPECT_GT(seconds(two_heads), 0);
  Scenario late = small();
  late.training.overlap.gradients = late.training.overlap.parameters = false;
  EXPECT_GT(seconds(late), apart.time_us.value * 1e-6);
}

TEST(StepForecast, TransfersShareTheNetwork) {
  // FSDP over two nodes: with the experts spread over both, gathers wait for dispatch and combine.
  Scenario s = small("mixtral-8x7b", "dgx-h100x2");
  s.training.set_sharding("fsdp");
  s.parallel.ep = 8;
  const double inside = seconds(s);
  s.cluster = std::make_shared<const Cluster>(Cluster::load("dgx-h100x4"));
  s.parallel.ep = 4;
  EXPECT_GT(seconds(s), inside);  // twice the expert parameters to gather
}

TEST(StepForecast, HardwareMattersTheRightWay) {
  Scenario s = small();
  const double h100 = seconds(s);
  s.cluster = std::make_shared<const Cluster>(Cluster::load("dgx-b200x2"));
  EXPECT_LT(seconds(s), h100);
  s.cluster = std::make_shared<const Cluster>(Cluster::load("dgx-a100x2"));
  EXPECT_GT(seconds(s), 1.5 * h100);
  // Without a host in the way: eager launches of the conversions cost more than fp8 saves here.
  s = small();
  s.training.launch = named<LaunchMode>("launch", "graphs");
  const double bf16 = seconds(s);
  s.training.set_precision("fp8");
  EXPECT_LT(seconds(s), bf16);
}

TEST(StepForecast, OffloadCostsWhatTheLinkToTheHostTakes) {
  const auto with = [](Offload offload, double link) {
    Scenario s = small();
    s.training.offload = offload;
    Cluster cluster = *s.cluster;
    cluster.profile.device().host_link *= link;
    s.cluster = std::make_shared<const Cluster>(cluster);
    return forecast(s);
  };
  const Answer here = with(Offload::kNone, 1);
  // On a link without limits only the host's memory is left, which Adam's state goes through once: here the
  // 22.9 GB of the state read and written, the gradients read and the bf16 weights written.
  const Answer adam = with(Offload::kOptimizer, 1e9);
  const DeviceLimits device = small().cluster->profile.device();
  const double state = here.memory.worst.optimizer / 12;  // elements of the shard
  EXPECT_NEAR(adam.time_us.value - here.time_us.value + state * (4 + 24 + 2) / device.hbm_bandwidth * 1e6,
              state * (4 + 24 + 2) / device.host_memory * 1e6, 0.03 * adam.time_us.value);
  for (const Offload offload : {Offload::kOptimizer, Offload::kActivations, Offload::kBoth}) {
    const double fast = with(offload, 2).time_us.value, usual = with(offload, 1).time_us.value,
                 slow = with(offload, 0.5).time_us.value;
    EXPECT_GT(usual, here.time_us.value);
    EXPECT_LT(fast, usual);
    EXPECT_LT(usual, slow);
  }
  // Nothing is left to send where the link is fast enough to hide behind the passes.
  EXPECT_DOUBLE_EQ(with(Offload::kActivations, 1e3).time_us.value, here.time_us.value);
}

TEST(StepForecast, RefusesPlansThatDoNotFitTogether) {
  const auto error = [](auto&& change) -> std::string {
    Scenario s = small();
    return message_of([&] {
      change(s);
      forecast(s);
    });
  };
  EXPECT_THAT(error([](Scenario& s) { s.parallel.ep = 3; }), HasSubstr("ep"));
  EXPECT_THAT(error([](Scenario& s) { s.parallel.pp = 2, s.parallel.vpp = 48; }), HasSubstr("48"));
  EXPECT_THAT(error([](Scenario& s) { s.training.pipeline = named<PipelineKind>("schedule", "dual-pipe"); }),
              HasSubstr("dualpipe"));
  EXPECT_THAT(error([](Scenario& s) { s.training.set_precision("fp9"); }), HasSubstr("did you mean"));
  EXPECT_THAT(error([](Scenario& s) { s.training.recompute = StepRecompute::parse("core_atn"); }),
              HasSubstr("core_attn"));
}

}  // namespace
}  // namespace moesim::models
