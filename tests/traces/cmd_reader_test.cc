// CMD folders: what is read, what is refused, and what reads back as it was written.
#include "traces/cmd_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file_io.h"
#include "base/input_error.h"
#include "tests/cases.h"
#include "tests/message_of.h"
#include "tests/replaced.h"
#include "tests/traces/temporary_folder.h"
#include "traces/cmd_writer.h"
#include "traces/recording.h"

namespace moesim::traces {
namespace {

namespace fs = std::filesystem;
using moesim::testing::message_of;
using ::testing::HasSubstr;

// The parts of a well-formed line, to be spoilt one at a time.
const std::string kHead =
    "rank:3:forward_step(stage_id=1,batch_id=0,mg_state=steady,duration=24.5,description=None";
const std::string kTail =
    ",group_kind=None,input__shape=[1024, 1, 4096],input__dtype=torch.bfloat16,timestamp=3374745430.49,"
    "sub_operations=['trace_src_func=_profiled_all_to_all_single,duration=0.04,timestamp=3374745412.6,"
    "input__shape=[2048, 4096],input__dtype=torch.bfloat16,group=exp,comm_func=all_to_all'])\n";
const std::string kLine = kHead + kTail;

std::string error_of(const std::string& text) {
  return message_of([&] {
    Pool pool;
    read_cmd_text(text, "rank03.txt", pool);
  });
}

std::string error_of(const TemporaryFolder& folder, const CmdReadOptions& options = {}) {
  return message_of([&] { read_cmd(folder.path(), options); });
}

std::string line_of(int rank, const std::string& duration = "24.5") {
  return replaced(replaced(kLine, "rank:3", "rank:" + std::to_string(rank)), "duration=24.5",
                  "duration=" + duration);
}

TEST(CmdReader, ReadsEveryField) {
  Pool pool;
  const RankRecording rank = read_cmd_text(kLine, "rank03.txt", pool);
  EXPECT_EQ(rank.rank, 3);
  ASSERT_EQ(rank.operations.size(), 1u);
  const Operation& op = rank.operations[0];
  EXPECT_EQ(op.name, "forward_step");
  EXPECT_EQ(op.form, LineForm::kV1);
  EXPECT_EQ(op.stage_id, 1);
  EXPECT_EQ(op.batch_id, 0);
  EXPECT_EQ(op.line, 1u);
  EXPECT_EQ(op.state, "steady");
  EXPECT_DOUBLE_EQ(op.duration.value(), 24.5);
  EXPECT_DOUBLE_EQ(op.start_ms(), 3374745430.49 - 24.5);
  EXPECT_TRUE(op.description.is_none());
  EXPECT_FALSE(op.cmd_uid.present());
  EXPECT_THAT(op.shape.dims(), ::testing::ElementsAre(1024, 1, 4096));
  EXPECT_EQ(op.shape.elements(), 1024 * 4096);
  ASSERT_EQ(rank.subs(op).size(), 1u);
  const SubOperation& sub = rank.subs(op)[0];
  EXPECT_EQ(sub.source, "_profiled_all_to_all_single");
  EXPECT_EQ(sub.comm_func, "all_to_all");
  EXPECT_EQ(sub.group, "exp");
  EXPECT_FALSE(sub.func_name.present());
  EXPECT_EQ(sub.shape.str(), "[2048, 4096]");
  EXPECT_EQ(dtype_bytes(sub.dtype), 2);
}

TEST(CmdReader, DescriptionsMayHoldCommasAndParentheses) {
  const std::string text =
      "model_chunk.finish_grad_sync(), All-reduce / reduce-scatter across DP replicas, duration=3, "
      "sub_operations=[])";
  Pool pool;
  const RankRecording rank =
      read_cmd_text(replaced(kLine, "description=None", "description=" + text), "rank03.txt", pool);
  EXPECT_EQ(rank.operations[0].description, text);
  EXPECT_DOUBLE_EQ(rank.operations[0].duration.value(), 24.5);
}

TEST(CmdReader, LeadingCommentsAreKept) {
  Pool pool;
  const RankRecording rank = read_cmd_text("# synthetic\n#\n" + kLine, "rank03.txt", pool);
  EXPECT_THAT(rank.header, ::testing::ElementsAre(" synthetic", ""));
  EXPECT_EQ(rank.operations[0].line, 3u);
}

TEST(CmdReader, PlaceholdersDifferFromMeasuredZeros) {
  Pool pool;
  const RankRecording rank = read_cmd_text(
      replaced(replaced(kLine, "duration=24.5", "duration=0"), "duration=0.04", "duration=0.0"), "f", pool);
  EXPECT_TRUE(rank.operations[0].duration.is_placeholder());
  EXPECT_FALSE(rank.sub_operations[0].duration.is_placeholder());
  EXPECT_EQ(rank.sub_operations[0].duration.mantissa(), 0U);
}

TEST(CmdReader, RefusesSpoiltLinesWithPlaceFoundAndExpected) {
  EXPECT_EQ(error_of(replaced(kLine, "duration=24.5", "duration=-24.5")),
            "rank03.txt:1:68: found '-24.5,description=None,group_kin...', expected a duration in "
            "milliseconds like "
            "24.5, from 0 to 10^15");
  EXPECT_EQ(error_of(kLine + replaced(kLine, "rank:3", "rank:4")),
            "rank03.txt:2:6: found rank 4, expected rank 3 as on the lines above");
  EXPECT_EQ(error_of(kLine + kHead + "\n"),
            "rank03.txt:2:85: found 'None', expected a description followed by ',group_kind='");
  EXPECT_EQ(error_of(replaced(kLine, "mg_state=steady,duration=24.5", "duration=24.5,mg_state=steady")),
            "rank03.txt:1:42: found ',duration=24.5,mg_state=steady,d...', expected ',mg_state='");
  std::vector<std::pair<std::string, std::string>> spoilt = {
      {"", "found an empty file"},
      {"# nothing else\n", "found comments only"},
      {"\n", "expected 'rank:'"},
      {kLine + "\n", "rank03.txt:2:1: found the end of the line, expected 'rank:'"},
      {kLine.substr(0, kLine.size() - 1), "found a last line without a line break"},
      {kLine + kLine.substr(0, 40), "rank03.txt:2: found a last line without a line break"},
      {kLine + "# late comment\n", "rank03.txt:2:1: found '# late comment', expected 'rank:'"},
      {replaced(kLine, "description=None", "description=caf\xC3"),
       "found the byte 0xc3, expected UTF-8 text"},
      {replaced(kLine, "description=None", "description=\xED\xA0\x80"), "found the byte 0xed"},
      {replaced(kLine, "description=None", std::string("description=a\0b", 15)), "found the byte 0x00"},
  };
  for (const auto& row : moesim::testing::cases("traces/refusals.json", "lines of commands"))
    spoilt.emplace_back(replaced(kLine, row[0].get<std::string>(), row[1].get<std::string>()),
                        row[2].get<std::string>());
  for (const auto& [text, expected] : spoilt) {
    const std::string error = error_of(text);
    EXPECT_THAT(error, HasSubstr(expected)) << text;
    EXPECT_THAT(error, ::testing::StartsWith("rank03.txt:")) << text;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(CmdReader, EveryTruncationIsRefused) {
  for (std::size_t length = 0; length < kLine.size(); ++length) {
    EXPECT_NE(error_of(kLine.substr(0, length)), "") << length;
    if (length + 1 < kLine.size()) {
      EXPECT_NE(error_of(kLine.substr(0, length) + "\n"), "") << length;
    }
  }
}

TEST(CmdReader, UnicodeDescriptionsAreKept) {
  Pool pool;
  const std::string word =
      "r\xC3\xA9"
      "duction \xE2\x86\x92 \xF0\x9F\x99\x82";
  EXPECT_EQ(read_cmd_text(replaced(kLine, "description=None", "description=" + word), "f", pool)
                .operations[0]
                .description,
            word);
}

TEST(CmdReader, FoldersAreReadInRankOrderAndOtherFilesLeftAlone) {
  TemporaryFolder folder;
  for (int rank : {10, 2, 0}) folder.write("rank" + std::to_string(rank) + ".txt", line_of(rank));
  folder.write("notes.txt", "not a recording");
  folder.write("memory_trace_rank0.json", "{}");
  folder.write("frank1.txt", "not a recording");
  const Recording recording = read_cmd(folder.path());
  ASSERT_EQ(recording.ranks.size(), 3u);
  EXPECT_EQ(recording.ranks[1].rank, 2);
  EXPECT_EQ(recording.ranks[2].rank, 10);
  EXPECT_EQ(recording.find(10), &recording.ranks[2]);
  EXPECT_EQ(recording.find(1), nullptr);
  EXPECT_TRUE(recording.warnings.empty());
  EXPECT_EQ(read_cmd(folder.path() / "rank2.txt").ranks.size(), 1u);
}

TEST(CmdReader, FoldersWithoutRankFilesSayWhereRecordingsAre) {
  TemporaryFolder folder;
  folder.write("notes.txt", "x");
  EXPECT_THAT(error_of(folder), HasSubstr("found a folder without rank files"));
  folder.write("scaling/rank00.txt", line_of(0));
  folder.write("realistic/rank00.txt", line_of(0));
  EXPECT_THAT(error_of(folder), HasSubstr("; there are recordings in its folders realistic, scaling"));
}

TEST(CmdReader, RankOfTheNameAndOfTheLinesMustAgree) {
  TemporaryFolder folder;
  folder.write("rank1.txt", line_of(2));
  EXPECT_THAT(error_of(folder),
              HasSubstr("rank1.txt:1: found rank 2, expected rank 1 as the file name says"));
}

TEST(CmdReader, TwoFilesOfOneRankNeedTimeStamps) {
  TemporaryFolder folder;
  folder.write("rank1.txt", line_of(1));
  folder.write("rank01.txt", line_of(1));
  EXPECT_THAT(error_of(folder), HasSubstr("found a second file of rank 1, expected one file per rank"));
}

TEST(CmdReader, PassesOfOneFolderAreToldApartByTime) {
  TemporaryFolder folder;
  const std::string name = "wd2_tp1_pp2_exp1_expNumNone_numl8_bs1_rank";
  folder.write(name + "0_20250818063302.txt", line_of(0, "1.5"));
  folder.write(name + "1_20250818063309.txt", line_of(1, "1.5"));
  folder.write(name + "1_20250819101500.txt", line_of(1, "2.5"));
  folder.write(name + "0_20250819101458.txt", line_of(0, "2.5"));
  for (const std::size_t pass : {0u, 1u}) {
    const Recording recording = read_cmd(folder.path(), {pass});
    EXPECT_EQ(recording.passes, 2u);
    ASSERT_EQ(recording.ranks.size(), 2u);
    for (const RankRecording& rank : recording.ranks)
      EXPECT_DOUBLE_EQ(rank.operations[0].duration.value(), pass == 0 ? 1.5 : 2.5);
    EXPECT_THAT(recording.warnings, ::testing::ElementsAre(HasSubstr("holds 2 passes")));
  }
  EXPECT_THAT(error_of(folder, {2}), HasSubstr("found pass 2, expected a pass from 0 to 1"));
}

TEST(CmdReader, UnknownOperationsAreKeptAndNamedOnce) {
  TemporaryFolder folder;
  const std::string odd = replaced(line_of(0), "forward_step", "forwrd_step");
  folder.write("rank0.txt", odd + odd);
  const Recording recording = read_cmd(folder.path());
  EXPECT_EQ(recording.ranks[0].operations[0].name, "forwrd_step");
  EXPECT_THAT(recording.warnings,
              ::testing::ElementsAre(
                  HasSubstr("rank0.txt:1: unknown operation 'forwrd_step'; did you mean 'forward_step'?")));
}

TEST(CmdReader, FusedPairsAreRecognised) {
  const auto line = [](const std::string& name, int batch, const std::string& time) {
    return "rank:0:" + name + "(stage_id=0,batch_id=" + std::to_string(batch) +
           ",mg_state=steady,duration=1.0,description=None,group_kind=pp,input__shape=[4, 1, 8],"
           "input__dtype=torch.bfloat16,timestamp=" +
           time + ",sub_operations=[])\n";
  };
  Pool pool;
  const RankRecording rank =
      read_cmd_text(line("send_forward", 1, "9.0") + line("recv_backward", 0, "9.0") +
                        line("send_forward", 2, "11.0") + line("recv_backward", 1, "12.0"),
                    "f", pool);
  EXPECT_TRUE(is_fused_pair(rank.operations, 0));
  EXPECT_FALSE(is_fused_pair(rank.operations, 1));
  EXPECT_FALSE(is_fused_pair(rank.operations, 2));
  EXPECT_FALSE(is_fused_pair(rank.operations, 3));
}

TEST(NamedTopology, ReadsBothLayoutsOfPublicNames) {
  NamedTopology folder;
  folder.pp = 2, folder.tp = 1, folder.ep = 4, folder.experts = 8, folder.dp = 8, folder.layers = 8;
  folder.hidden = 4096, folder.seq = 1024;
  EXPECT_EQ(named_topology("/x/profiler_log/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024"), folder);
  EXPECT_EQ(named_topology("/x/realistic_trace/pp2_tp1_exp4_expn8_dp8_nl8_hs4096_sl1024/"), folder);
  EXPECT_EQ(named_topology("/x/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/scaling2/rank00.txt"), folder);

  NamedTopology file;
  file.world = 256, file.tp = 8, file.pp = 8, file.ep = 4, file.experts = 128, file.layers = 48,
  file.micro_batch = 1;
  EXPECT_EQ(named_topology("wd256_tp8_pp8_exp4_expNum128_numl48_bs1_rank104_20260722112504.txt").world, 256);
  EXPECT_EQ(named_topology("/x/y/wd256_tp8_pp8_exp4_expNum128_numl48_bs1_rank104_20260722112504.txt"), file);
  file.layers = 8, file.experts = 0;  // the realistic spelling, dense
  EXPECT_EQ(named_topology("/x/y/wd256_tp8_pp8_exp4_expNumNone_l8_bs1_rank104_20260722112504.txt"), file);

  NamedTopology dense;
  dense.world = 4, dense.tp = 2, dense.pp = 2, dense.layers = 40, dense.hidden = 5120, dense.seq = 4096;
  EXPECT_EQ(named_topology("/x/dense_wd4_tp2_pp2_nl40_hs5120_sl4096/realistic"), dense);
  dense.hidden.reset(), dense.seq.reset(), dense.micro_batch = 1;
  EXPECT_EQ(named_topology("/x/y/wd4_tp2_pp2_numl40_bs1_GPT2BPETokenizer_rank0_20250321150450.txt"), dense);
  EXPECT_TRUE(named_topology("/tmp/recordings/today/rank00.txt").empty());
}

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

TEST(Decimal, KeepsTheTextAndTheValue) {
  for (const char* text :
       {"0", "0.0", "0.00", "24.5", "3374745430.49", "131.33", "7", "0.04", "999999999999999.99"}) {
    const std::optional<Decimal> decimal = Decimal::parse(text);
    ASSERT_TRUE(decimal) << text;
    EXPECT_EQ(decimal->str(), text);
    EXPECT_EQ(decimal->value(), std::strtod(text, nullptr)) << text;
  }
}

TEST(Decimal, RefusesWhatItCouldNotWriteBack) {
  for (const char* text : {"", ".", ".5", "5.", "-1", "+1", "1e3", "01", "00", "1.2.3", "1,5", " 1", "nan",
                           "inf", "1152921504606846976", "0.0000000000000001"})
    EXPECT_FALSE(Decimal::parse(text)) << text;
  EXPECT_TRUE(Decimal::parse("1152921504606846975"));  // 2^60 - 1
}

TEST(Decimal, RoundsTimesAsTheRecorderPrintsThem) {
  EXPECT_EQ(Decimal::from_ms(3.0).str(), "3.0");
  EXPECT_EQ(Decimal::from_ms(0.1).str(), "0.1");
  EXPECT_EQ(Decimal::from_ms(0.0).str(), "0.0");
  EXPECT_EQ(Decimal::from_ms(24.456).str(), "24.46");
  EXPECT_THROW(Decimal::from_ms(-0.01), InputError);
  EXPECT_THROW(Decimal::from_ms(std::nan("")), InputError);
}

TEST(Decimal, EveryNumberSurvivesItsText) {
  EXPECT_TRUE(rc::check([] {
    const Decimal decimal(*rc::gen::inRange<std::uint64_t>(0, Decimal::kMaxMantissa),
                          *rc::gen::inRange(0, Decimal::kMaxDigits + 1));
    RC_ASSERT(Decimal::parse(decimal.str()) == decimal);
  }));
}

TEST(Pool, StoresEachWordAndShapeOnce) {
  Pool pool;
  const Name word = pool.name("forward_step");
  EXPECT_EQ(word.view().data(), pool.name(std::string("forward_") + "step").view().data());
  EXPECT_NE(word, pool.name("backward_step"));
  EXPECT_FALSE(Name().present());
  EXPECT_TRUE(pool.name("").present());
  std::vector<Name> many;
  for (int i = 0; i < 5000; ++i) many.push_back(pool.name("cmd-" + std::to_string(i)));
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(many[static_cast<std::size_t>(i)], "cmd-" + std::to_string(i));
  Pool moved = std::move(pool);
  EXPECT_EQ(word, "forward_step");
  EXPECT_EQ(moved.name("forward_step").view().data(), word.view().data());
}

TEST(Pool, ShapesRoundTripAndStayWithinBounds) {
  Pool pool;
  EXPECT_EQ(pool.shape(std::vector<std::int64_t>{2048, 4096}).str(), "[2048, 4096]");
  EXPECT_EQ(pool.shape({}).str(), "[]");
  EXPECT_EQ(pool.shape({}).elements(), 1);
  EXPECT_TRUE(pool.shape_none().is_none());
  EXPECT_EQ(pool.shape_none().elements(), 0);
  EXPECT_EQ(pool.parse_shape("[0, 7]")->elements(), 0);
  EXPECT_TRUE(pool.parse_shape("[1099511627776]"));
  for (const char* text :
       {"", "[", "]", "[1,2]", "[1, ]", "[ 1]", "[-1]", "[01]", "[1099511627777]", "[1048577, 1048577]",
        "[9999999999999999999999]", "none", "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"})
    EXPECT_FALSE(pool.parse_shape(text)) << text;
  EXPECT_THROW(pool.shape(std::vector<std::int64_t>{-1}), InputError);
}

}  // namespace
}  // namespace moesim::traces
