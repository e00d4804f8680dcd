// Gradient buckets that are reduced beside backward (recordings of 2026).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/input_error.h"
#include "replay/run/recorded_run.h"
#include "replay/run/run_summary.h"
#include "tests/message_of.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace moesim::replay
