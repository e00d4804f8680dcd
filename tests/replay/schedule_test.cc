// 1F1B: the order of operations of every real run, and what any pipeline needs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>
#include <string>

#include "base/input_error.h"
#include "echo_data.h"
#include "recording_builder.h"
#include "replay/recording/gradients.h"
#include "replay/recording/steps.h"
#include "replay/run/forecast.h"
#include "replay/run/recorded_run.h"
#include "replay/run/run_summary.h"
#include "tests/message_of.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Gradient buckets that are reduced beside backward (recordings of 2026).

// Two data-parallel ranks in v2 lines (made up, in the grammar of docs/formats.md): forward 10 ms, backward
// 20 ms with one bucket launched after `launch_ms`, done `bucket_ms` later; a flush; an optimizer of 5 ms.
std::string rank_text(int rank, double launch_ms, double bucket_ms, double backward_ms, const char* trigger) {
  const double origin = 1000;
  const auto op = [&](const char* name, const char* uid, const char* semantics, double duration, double end,
                      const char* shape, const char* dtype) {
    return fmt::format(
        "rank:{}:{}(stage_id=0,batch_id=0,mg_state=steady,duration={:.2f},description=None,group_kind=None,"
        "cmd_uid={},op_semantics={},finalize_base_duration_ms=None,input__shape={},input__dtype={},timestamp="
        "{:.2f},"
        "sub_operations=[])\n",
        rank, name, duration, uid, semantics, shape, dtype, end);
  };
  const double start = origin + 10;
  const double end = start + backward_ms;
  const double flushed = std::max(end, start + launch_ms + bucket_ms);
  return op("forward_step", "cmd-000000000001", "None", 10, start, "None", "None") +
         fmt::format(
             "rank:{}:ddp_grad_comm(comm_uid=ddpcomm-00000000000{},iter=3,stage_id=0,mg_state=steady,group_"
             "kind=dp,"
             "comm_func=allreduce,buffer_id=0,bucket_id=0,bucket_offset=0,bucket_numel=1000,"
             "bucket_numel_unpadded=1000,param_count=2,trigger_cmd_uid={},trigger_op=backward_step,"
             "trigger_batch_id=0,trigger_timestamp_ms={:.2f},launch_timestamp_ms={:.2f},launch_source=param_"
             "hook,"
             "timing_domain=actual,metadata_only=False,status=completed,completion_observed_timestamp_ms={:."
             "2f},"
             "completion_source=cuda_event,wait_cmd_uid=None,wait_start_timestamp_ms=None,wait_end_timestamp_"
             "ms=None,"
             "logical_stream_role=dp_comm,grad_dtype=torch.float32,data_parallel_world_size=2,duration=0.0,"
             "timestamp={:.2f},sub_operations=[])\n",
             rank, rank, trigger, start + launch_ms, start + launch_ms, start + launch_ms + bucket_ms,
             start + launch_ms) +
         op("backward_step", "cmd-000000000002", "None", backward_ms, end, "None", "None") +
         op("dp_allreduce", "cmd-000000000003", "wait_flush_only", flushed - end, flushed, "[1000]",
            "torch.float32") +
         op("optimizer_step", "cmd-000000000004", "None", 5, flushed + 5, "None", "None");
}

traces::Recording job(double launch_ms, double bucket_ms, double backward_ms = 20,
                      const char* trigger = "cmd-000000000002") {
  traces::Recording recording;
  recording.source = "made up";
  recording.named.world = 2;
  recording.named.dp = 2;
  for (int r = 0; r < 2; ++r)
    recording.ranks.push_back(traces::read_cmd_text(rank_text(r, launch_ms, bucket_ms, backward_ms, trigger),
                                                    fmt::format("rank{}.txt", r), recording.pool));
  return recording;
}

Iteration replayed_as_recorded(const traces::Recording& recording) {
  RecordedJob run = interpret(recording);
  run.realistic = true;
  RecordedPricing pricing;
  return simulate(run.topology, recorded_plans(run, 8), pricing);
}

TEST(Bucket, HidesBehindTheRestOfBackward) {
  EXPECT_NEAR(replayed_as_recorded(job(5, 10)).us(), 35000, 20);  // 10 + 20 + 5
}

TEST(Bucket, ItsTailIsWaitedFor) {
  // Launched 15 ms into 20 ms of backward and 12 ms long: 7 ms are left.
  const Iteration iteration = replayed_as_recorded(job(15, 12));
  EXPECT_NEAR(iteration.us(), 42000, 20);
  EXPECT_NEAR(summarize(iteration).of(StepKind::dp_all_reduce).mean_us, 7000, 20);
}

TEST(Bucket, IsPlacedInTheStepThatLaunchedIt) {
  const traces::Recording recording = job(5, 10);
  const RecordedJob run = interpret(recording);
  for (const RankSteps& rank : run.ranks)
    for (const Step& step : rank.steps) {
      EXPECT_EQ(step.buckets.size(), step.kind == StepKind::backward ? 1u : 0u);
      EXPECT_EQ(step.waits_for_buckets, step.kind == StepKind::dp_all_reduce);
      for (const Bucket& bucket : step.buckets) {
        EXPECT_EQ(bucket.elements, 1000);
        EXPECT_EQ(bucket.group, GroupKind::dp);
        EXPECT_NEAR(bucket.fraction, 0.25, 1e-3);
        EXPECT_NEAR(bucket.recorded_us, 10000, 1);
      }
    }
}

TEST(Bucket, OfAnUnknownStepIsRefused) {
  const std::string refusal = message_of([&] { interpret(job(5, 10, 20, "cmd-00000000000f")); });
  EXPECT_THAT(refusal, HasSubstr("cmd-00000000000f"));
  EXPECT_THAT(refusal, HasSubstr("a later line with this cmd_uid"));
}

// Gradient sizes: both generations of recordings give the sizes that the real run reduced.

struct Sizes {
  std::int64_t dense = 0, expert = 0;
};

class RecordedGradients : public testing::EchoTest {};

TEST_P(RecordedGradients, AreWhatTheRealRunReduces) {
  const traces::Recording truth = traces::read_cmd(folder() / "realistic");
  const RecordedJob real = interpret(truth);
  for (const char* side : {"scaling", "scaling2"}) {
    SCOPED_TRACE(side);
    const traces::Recording recording = traces::read_cmd(folder() / side);
    const RecordedJob job = interpret(recording);
    const CleanJob clean = denoise(std::span(&job, 1));
    const ModelFacts facts = model_facts(recording.named, clean, nullptr);
    EXPECT_TRUE(facts.model);
    std::vector<std::string> warnings;
    for (const RankSteps& rank : real.ranks) {
      const Coordinates at = real.topology.of(rank.rank);
      const GradientSizes sizes = gradient_sizes(clean, {at.pp, at.tp, at.expert}, facts, warnings);
      Sizes reduced;
      for (const Step& step : rank.steps) {
        if (step.kind == StepKind::dp_all_reduce) reduced.dense = step.elements;
        if (step.kind == StepKind::expert_all_reduce) reduced.expert = step.elements;
      }
      EXPECT_EQ(sizes.dense, reduced.dense) << "rank " << rank.rank;
      EXPECT_EQ(sizes.expert, reduced.expert) << "rank " << rank.rank;
      // Vocabulary of 50304 by hidden size 4096, on the first stage only.
      EXPECT_EQ(sizes.embedding, at.pp == 0 ? 50304LL * 4096 : 0) << "rank " << rank.rank;
    }
    EXPECT_THAT(warnings, IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Echo, RecordedGradients, ::testing::ValuesIn(testing::kMoeConfigurations),
                         testing::test_name);

TEST(Gradients, ASumThatNoModelExplainsStaysDenseAndSaysSo) {
  testing::ScalingSpec spec;
  spec.topology = {.expert = 2, .pp = 2};
  traces::Recording recording = testing::scaling_recording(spec);
  for (auto& rank : recording.ranks)
    std::erase_if(rank.operations,
                  [](const traces::Operation& line) { return line.name == "exp_dp_allreduce"; });
  const RecordedJob job = interpret(recording);
  const CleanJob clean = denoise(std::span(&job, 1));
  const ModelFacts facts = model_facts(recording.named, clean, nullptr);
  std::vector<std::string> warnings;
  const GradientSizes sizes = gradient_sizes(clean, {0, 0, 0}, facts, warnings);
  EXPECT_EQ(sizes.dense, 1000);
  EXPECT_EQ(sizes.expert, 0);
  EXPECT_THAT(warnings, Contains(HasSubstr("--model")));
  gradient_sizes(clean, {1, 0, 1}, facts, warnings);
  EXPECT_EQ(warnings.size(), 1u) << "said once";
}

TEST(Gradients, TwoLinesAreTakenAsTheyAre) {
  testing::ScalingSpec spec;
  spec.topology = {.expert = 2, .pp = 2};
  const traces::Recording recording = testing::scaling_recording(spec);
  const RecordedJob job = interpret(recording);
  const CleanJob clean = denoise(std::span(&job, 1));
  std::vector<std::string> warnings;
  const GradientSizes sizes =
      gradient_sizes(clean, {1, 0, 1}, model_facts(recording.named, clean, nullptr), warnings);
  EXPECT_EQ(sizes.dense, 1000);
  EXPECT_EQ(sizes.expert, 4000);
  EXPECT_EQ(sizes.parameters(), 5000);
  EXPECT_THAT(warnings, IsEmpty());
}

}  // namespace

void PrintTo(const Slot& slot, std::ostream* out) {
  *out << name(slot.kind) << ' ' << slot.microbatch << (slot.fused_with_next ? "+" : "");
}

namespace {

using enum StepKind;

std::vector<Slot> stage_of(int stage, int stages, int microbatches) {
  return one_forward_one_backward(stages, microbatches).at(static_cast<std::size_t>(stage));
}

bool scheduled(StepKind kind) {
  return kind == get_batch || kind == forward || kind == loss || kind == backward || is_p2p(kind);
}

class RealRun : public testing::EchoTest {};

TEST_P(RealRun, DoesItsWorkInThisOrder) {
  const traces::Recording recording = traces::read_cmd(folder() / "realistic");
  const RecordedJob job = interpret(recording);
  ASSERT_EQ(job.ranks.size(), static_cast<std::size_t>(job.topology.world()));
  for (const RankSteps& rank : job.ranks) {
    SCOPED_TRACE(rank.rank);
    int microbatches = 0;
    std::vector<Slot> recorded;
    for (const Step& step : rank.steps) {
      if (step.kind == forward) microbatches = std::max(microbatches, step.microbatch + 1);
      if (scheduled(step.kind)) recorded.push_back({step.kind, step.microbatch, step.fused_with_next});
    }
    EXPECT_EQ(recorded, stage_of(job.topology.of(rank.rank).pp, job.topology.pp, microbatches));
  }
}

INSTANTIATE_TEST_SUITE_P(Echo, RealRun, ::testing::ValuesIn(testing::kRealRuns), testing::test_name);

TEST(Schedule, TwoStagesTwoMicrobatches) {
  EXPECT_EQ(stage_of(0, 2, 2), (std::vector<Slot>{{get_batch, 0},
                                                  {forward, 0},
                                                  {send_forward, 0},
                                                  {get_batch, 1},
                                                  {forward, 1},
                                                  {send_forward, 1, true},
                                                  {recv_backward, 0},
                                                  {backward, 0},
                                                  {recv_backward, 1},
                                                  {backward, 1}}));
  EXPECT_EQ(stage_of(1, 2, 2), (std::vector<Slot>{{recv_forward, 0},
                                                  {get_batch, 0},
                                                  {forward, 0},
                                                  {loss, 0},
                                                  {backward, 0},
                                                  {send_backward, 0, true},
                                                  {recv_forward, 1},
                                                  {get_batch, 1},
                                                  {forward, 1},
                                                  {loss, 1},
                                                  {backward, 1},
                                                  {send_backward, 1}}));
}

TEST(Schedule, OneStageTalksToNobody) {
  for (const Slot& slot : stage_of(0, 1, 3)) EXPECT_FALSE(is_p2p(slot.kind));
}

std::vector<int> microbatches_of(const std::vector<Slot>& slots, StepKind kind) {
  std::vector<int> out;
  for (const Slot& slot : slots)
    if (slot.kind == kind) out.push_back(slot.microbatch);
  return out;
}

RC_GTEST_PROP(Schedule, EveryMicrobatchOnceAndForwardFirst, ()) {
  const int stages = *rc::gen::inRange(1, 17);
  const int microbatches = *rc::gen::inRange(1, 33);
  const int stage = *rc::gen::inRange(0, stages);
  const auto slots = stage_of(stage, stages, microbatches);
  std::set<int> forwarded, finished;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (slot.kind == forward) {
      RC_ASSERT(forwarded.insert(slot.microbatch).second);
      if (stage > 0) RC_ASSERT(slots[i - (stage == stages - 1 ? 2 : 1)].kind == recv_forward);
      // 1F1B holds the activations of at most as many microbatches as there are stages from here to the end.
      RC_ASSERT(static_cast<int>(forwarded.size() - finished.size()) <= stages - stage);
    }
    if (slot.kind == backward) {
      RC_ASSERT(forwarded.contains(slot.microbatch));
      RC_ASSERT(finished.insert(slot.microbatch).second);
    }
    if (slot.fused_with_next) {
      RC_ASSERT(i + 1 < slots.size());
      RC_ASSERT(slots[i + 1].kind == (slot.kind == send_forward ? recv_backward : recv_forward));
    }
  }
  RC_ASSERT(static_cast<int>(forwarded.size()) == microbatches);
  RC_ASSERT(finished == forwarded);
}

RC_GTEST_PROP(Schedule, NeighboursSendWhatTheOtherReceives, ()) {
  const int stages = *rc::gen::inRange(2, 17);
  const int microbatches = *rc::gen::inRange(1, 33);
  const int stage = *rc::gen::inRange(0, stages - 1);
  const auto here = stage_of(stage, stages, microbatches);
  const auto next = stage_of(stage + 1, stages, microbatches);
  RC_ASSERT(microbatches_of(here, send_forward) == microbatches_of(next, recv_forward));
  RC_ASSERT(microbatches_of(next, send_backward) == microbatches_of(here, recv_backward));
}

}  // namespace

}  // namespace moesim::replay
