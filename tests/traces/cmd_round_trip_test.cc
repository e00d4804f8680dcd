#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/file_io.h"
#include "base/input_error.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"

namespace moesim::traces {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> public_recordings() {
  std::vector<fs::path> files;
  const fs::path root = fs::path(MOESIM_DATA_DIR) / "echo";
  if (!fs::exists(root)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.is_regular_file() && entry.path().filename().string().starts_with("rank"))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(CmdRoundTrip, EveryPublicFileComesBackByteForByte) {
  const std::vector<fs::path> files = public_recordings();
  if (files.empty()) GTEST_SKIP() << "no recordings under " << MOESIM_DATA_DIR;
  for (const fs::path& file : files) {
    const std::string text = read_file(file);
    Pool pool;
    const RankRecording rank = read_cmd_text(text, file.string(), pool);
    EXPECT_EQ(write_cmd_text(rank), text) << file;
    EXPECT_EQ(rank.operations.size(), static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')))
        << file;
  }
}

// Lines of public 2026 recordings (Qwen3-30B-A3B and GPT-175B, scaling mode), as the notes on the format
// quote them.
constexpr const char* kBucketLine =
    "rank:0:ddp_grad_comm(comm_uid=ddpcomm-095f230264a8,iter=3,stage_id=0,mg_state=cooldown,group_kind=dp,"
    "comm_func=allreduce,buffer_id=1,bucket_id=2,bucket_offset=94371840,bucket_numel=18874368,"
    "bucket_numel_unpadded=18874368,param_count=2,trigger_cmd_uid=cmd-31b045c3edaf,trigger_op=backward_step,"
    "trigger_batch_id=0,trigger_timestamp_ms=7284879241.59,launch_timestamp_ms=7284879241.73,"
    "launch_source=param_hook,timing_domain=metadata_only,metadata_only=True,status=launch_only,"
    "completion_observed_timestamp_ms=None,completion_source=None,wait_cmd_uid=None,wait_start_timestamp_ms="
    "None,"
    "wait_end_timestamp_ms=None,logical_stream_role=dp_comm,grad_dtype=torch.float32,data_parallel_world_"
    "size=1,"
    "duration=0.0,timestamp=7284879241.73,sub_operations=[])\n";
constexpr const char* kV2Lines =
    "rank:896:loss_func(stage_id=7,batch_id=0,mg_state=steady,duration=0.38,description=simulation: "
    "loss_func, "
    "calculate and DP allreduce for the last "
    "stage,group_kind=None,cmd_uid=cmd-1af1a58ee5ab,op_semantics=None,"
    "finalize_base_duration_ms=None,input__shape=None,input__dtype=None,timestamp=6423013628.73,"
    "sub_operations=['trace_src_func=allreduce,duration=0.0,timestamp=6423013628.52,input__shape=[1],"
    "input__dtype=torch.float32,func_name=loss_func,group=dp,comm_func=allreduce'])\n"
    "rank:896:dp_allreduce(stage_id=7,batch_id=0,mg_state=finalize,duration=131.33,description=simulation,"
    "group_kind=dp,cmd_uid=cmd-392be9b1d1e3,op_semantics=metadata_placeholder,finalize_base_duration_ms=131."
    "33,"
    "input__shape=[2797787136],input__dtype=torch.float16,timestamp=6423013831.86,sub_operations=[])\n"
    "rank:896:ep_allreduce(stage_id=7,batch_id=0,mg_state=finalize,duration=0,description=simulation,group_"
    "kind=ep,"
    "cmd_uid=cmd-676cd9b2136b,op_semantics=None,finalize_base_duration_ms=None,input__shape=[6416, 12288],"
    "input__dtype=torch.float32,timestamp=0,sub_operations=[])\n"
    "rank:896:optimizer_step(stage_id=7,batch_id=0,mg_state=finalize,duration=45.16,description=simulation,"
    "group_kind=None,cmd_uid=cmd-3e0974e9289a,op_semantics=None,finalize_base_duration_ms=None,input__shape="
    "None,"
    "input__dtype=None,timestamp=6423013877.48,sub_operations=[])\n";

TEST(CmdRoundTrip, NewerLinesComeBackByteForByte) {
  Pool pool;
  const RankRecording rank = read_cmd_text(kV2Lines, "v2", pool);
  EXPECT_EQ(write_cmd_text(rank), kV2Lines);
  ASSERT_EQ(rank.operations.size(), 4u);
  EXPECT_EQ(rank.operations[0].form, LineForm::kV2);
  EXPECT_EQ(rank.operations[0].description,
            "simulation: loss_func, calculate and DP allreduce for the last stage");
  EXPECT_FALSE(rank.operations[0].finalize_base_duration.has_value());
  EXPECT_EQ(rank.operations[1].op_semantics, "metadata_placeholder");
  EXPECT_DOUBLE_EQ(rank.operations[1].finalize_base_duration->value(), 131.33);
  EXPECT_EQ(rank.operations[1].shape.elements(), 2797787136);
  EXPECT_TRUE(rank.operations[2].duration.is_placeholder());
}

TEST(CmdRoundTrip, GradientBucketsComeBackByteForByte) {
  Pool pool;
  const RankRecording rank = read_cmd_text(kBucketLine, "v2", pool);
  EXPECT_EQ(write_cmd_text(rank), kBucketLine);
  ASSERT_EQ(rank.gradient_buckets.size(), 1u);
  const Operation& op = rank.operations[0];
  EXPECT_EQ(op.form, LineForm::kGradientBucket);
  EXPECT_EQ(op.batch_id, -1);
  EXPECT_EQ(op.state, "cooldown");
  const GradientBucket& bucket = rank.gradient_buckets[op.bucket];
  EXPECT_EQ(bucket.buffer_id, 1);
  EXPECT_EQ(bucket.bucket_offset, 94371840);
  EXPECT_EQ(bucket.bucket_numel, 18874368);
  EXPECT_EQ(bucket.trigger_cmd_uid, "cmd-31b045c3edaf");
  EXPECT_TRUE(bucket.metadata_only);
  EXPECT_FALSE(bucket.wait_end.has_value());
  EXPECT_EQ(bucket.grad_dtype, "torch.float32");
}

Decimal any_decimal() {
  return Decimal(*rc::gen::inRange<std::uint64_t>(0, 10'000'000'000'000), *rc::gen::inRange(0, 4));
}

Name any_of(Pool& pool, std::vector<std::string> words) {
  return pool.name(words[*rc::gen::inRange<std::size_t>(0, words.size())]);
}

Shape any_shape(Pool& pool) {
  if (*rc::gen::inRange(0, 4) == 0) return pool.shape_none();
  std::vector<std::int64_t> dims;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) dims.push_back(*rc::gen::inRange<std::int64_t>(0, 3000));
  return pool.shape(dims);
}

SubOperation any_sub(Pool& pool) {
  SubOperation sub;
  sub.source = any_of(pool, {"allreduce", "_reduce", "<lambda>"});
  sub.duration = any_decimal();
  sub.timestamp = any_decimal();
  if (*rc::gen::arbitrary<bool>()) {
    sub.shape = any_shape(pool);
    sub.dtype = any_of(pool, {"None", "torch.bool", "torch.float16"});
  }
  if (*rc::gen::arbitrary<bool>()) sub.func_name = any_of(pool, {"linear_fwd", "tokens"});
  if (*rc::gen::arbitrary<bool>()) sub.overlap_op_name = any_of(pool, {"wgrad_gemm"});
  if (*rc::gen::arbitrary<bool>()) sub.group = any_of(pool, {"tp", "exp"});
  if (*rc::gen::arbitrary<bool>()) sub.comm_func = any_of(pool, {"allreduce", "alltoall"});
  return sub;
}

Operation any_operation(Pool& pool) {
  Operation op;
  op.name = any_of(pool, {"forward_step", "send_forward", "some_new_op"});
  op.stage_id = *rc::gen::inRange(0, 100);
  op.batch_id = *rc::gen::inRange(0, 1000);
  op.state = any_of(pool, {"None", "warmup"});
  op.duration = any_decimal();
  op.timestamp = any_decimal();
  op.description = any_of(pool, {"None", "", "f(x), y=[1, 2], g(z)", "it's"});
  op.group_kind = any_of(pool, {"None", "ep_dp"});
  op.shape = any_shape(pool);
  op.dtype = any_of(pool, {"None", "torch.int64"});
  if (*rc::gen::arbitrary<bool>()) {
    op.form = LineForm::kV2;
    op.cmd_uid = any_of(pool, {"cmd-0123456789ab"});
    op.op_semantics = any_of(pool, {"None", "wait_flush_only"});
    if (*rc::gen::arbitrary<bool>()) op.finalize_base_duration = any_decimal();
  }
  return op;
}

TEST(CmdRoundTrip, WhateverIsWrittenIsReadAndWrittenTheSame) {
  EXPECT_TRUE(rc::check("any recording", [] {
    Pool pool;
    RankRecording rank;
    rank.rank = *rc::gen::inRange(0, 2000);
    const int count = *rc::gen::inRange(1, 4);
    for (int i = 0; i < count; ++i) {
      std::vector<SubOperation> subs;
      for (int k = *rc::gen::inRange(0, 3); k > 0; --k) subs.push_back(any_sub(pool));
      rank.add(any_operation(pool), subs);
    }
    const std::string text = write_cmd_text(rank);
    Pool other;
    const RankRecording again = read_cmd_text(text, "again", other);
    RC_ASSERT(write_cmd_text(again) == text);
    RC_ASSERT(again.operations.size() == rank.operations.size());
    for (std::size_t i = 0; i < rank.operations.size(); ++i) {
      const Operation& a = rank.operations[i];
      const Operation& b = again.operations[i];
      RC_ASSERT(a.name == b.name);
      RC_ASSERT(a.duration == b.duration);
      RC_ASSERT(a.timestamp == b.timestamp);
      RC_ASSERT(a.description == b.description);
      RC_ASSERT(a.shape == b.shape);
      RC_ASSERT(a.finalize_base_duration == b.finalize_base_duration);
      RC_ASSERT(rank.subs(a).size() == again.subs(b).size());
      for (std::size_t k = 0; k < rank.subs(a).size(); ++k) {
        RC_ASSERT(rank.subs(a)[k].shape == again.subs(b)[k].shape);
        RC_ASSERT(rank.subs(a)[k].group == again.subs(b)[k].group);
      }
    }
  }));
}

TEST(CmdWriter, WritesAFolderOrNothing) {
  const fs::path root = fs::temp_directory_path() / ("moesim-cmd-writer-" + std::to_string(::getpid()));
  fs::remove_all(root);
  fs::create_directories(root);
  Recording recording;
  for (int rank : {0, 11}) {
    RankRecording& made = recording.ranks.emplace_back();
    made.rank = rank;
    made.header = {" synthetic"};
    Operation op;
    op.name = recording.pool.name("forward_step");
    op.state = op.group_kind = op.dtype = op.description = recording.pool.name("None");
    op.shape = recording.pool.shape_none();
    op.duration = Decimal::from_ms(1.25);
    op.timestamp = Decimal::from_ms(100.0);
    made.add(op);
  }
  // A microbatch of -1 could not be read back: refused, and nothing is left behind.
  EXPECT_THROW(write_cmd(recording, root / "out"), InputError);
  EXPECT_TRUE(fs::is_empty(root));
  for (RankRecording& rank : recording.ranks) rank.operations[0].batch_id = 0;
  write_cmd(recording, root / "out");
  EXPECT_EQ(read_cmd(root / "out").ranks[1].rank, 11);
  EXPECT_THROW(write_cmd(recording, root / "out"), InputError);  // not empty
  EXPECT_EQ(
      read_file(root / "out" / "rank00.txt"),
      "# synthetic\nrank:0:forward_step(stage_id=0,batch_id=0,mg_state=None,duration=1.25,description=None,"
      "group_kind=None,input__shape=None,input__dtype=None,timestamp=100.0,sub_operations=[])\n");
  fs::remove_all(root);
}

}  // namespace
}  // namespace moesim::traces
