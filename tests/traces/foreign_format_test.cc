#include "traces/foreign_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "base/input_error.h"
#include "tests/message_of.h"
#include "tests/traces/temporary_folder.h"

namespace moesim::traces {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

std::string name_of(const std::string& beginning, const std::string& file = "x") {
  const auto found = foreign_format(beginning, file);
  return found ? found->name : "";
}

// A literal with the zeros inside of it.
template <std::size_t n>
std::string bytes(const char (&literal)[n]) {
  return {literal, n - 1};
}

TEST(ForeignFormat, IsToldByWhatItHolds) {
  EXPECT_EQ(name_of("{\"schema\": \"1.0.2-chakra.0.0.4\", \"nodes\": []}"),
            "a Chakra trace of the host alone (PyTorch's execution trace)");
  EXPECT_EQ(
      name_of(
          "{\"schema\": \"1.0.1\", \"nodes\": [{\"name\": \"[pytorch|profiler|execution_trace|thread]\"}]}"),
      "a PyTorch execution trace");
  EXPECT_EQ(name_of(bytes("\x5e\x12\x10\x0a\x06schema\xea\x01\x05"
                          "1.0.1\x0a\x08start_ts\x68\xf1\x00")),
            "a Chakra execution trace (protobuf)");
  EXPECT_EQ(name_of("num_ranks 32\n\nrank 0 {\nl1: send 1b to 1 tag 0\n}\n"), "a GOAL schedule");
  EXPECT_EQ(name_of("HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1\n1\nembedding -1 "
                    "556000 ALLREDUCE 16777216 1 NONE 0\n"),
            "a workload of SimAI or ASTRA-sim");
  EXPECT_EQ(name_of("MICRO\n2\nconv1 -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1048576 5\n"),
            "a workload of SimAI or ASTRA-sim");
  EXPECT_EQ(name_of(bytes("SQLite format 3\0CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL")),
            "an export of Nsight Systems (SQLite)");
  EXPECT_EQ(name_of(bytes("SQLite format 3\0CREATE TABLE rocpd_kernel_dispatch")),
            "a rocprof database (SQLite)");
  EXPECT_EQ(name_of("abc", "run.nsys-rep"), "a report of Nsight Systems");
  EXPECT_EQ(name_of("\"Index\",\"KernelName\",\"gpu-id\",\"queue-id\"\n"), "a rocprof table");
  EXPECT_EQ(name_of("\"Kind\",\"Agent_Id\",\"Queue_Id\",\"Kernel_Name\"\n"), "a rocprof table");
  EXPECT_EQ(name_of("{\"rocprofiler-sdk-tool\": []}"), "a rocprofv3 result (JSON)");
  EXPECT_EQ(name_of(" iteration 1/ 20 | elapsed time per iteration (ms): 79489.9 |\n"),
            "a training log of Megatron or DeepSpeed");
  EXPECT_EQ(
      name_of("# Collective test starting: all_reduce_perf\n# size count type redop root time algbw busbw\n"),
      "a log of nccl-tests");
  EXPECT_EQ(name_of("PK\x03\x04 zip"), "an archive (zip)");
}

TEST(ForeignFormat, OursAndUnknownOnesAreNot) {
  EXPECT_EQ(name_of("rank:0:forward_step(stage_id=0"), "");
  EXPECT_EQ(name_of("# recorded: a real run\nrank:0:"), "");
  EXPECT_EQ(name_of("rank,operation,start_us,duration_us\n"), "");
  EXPECT_EQ(name_of("{\"traceEvents\": [], \"schema\": \"chakra\"}"), "");
  EXPECT_EQ(name_of("hello\n"), "");
  EXPECT_EQ(name_of(""), "");
  EXPECT_EQ(name_of("HELLO\nworld\n"), "");
}

TEST(ForeignFormat, TheRefusalSaysWhatToDoInstead) {
  const TemporaryFolder folder;
  folder.write("goal/a.goal", "num_ranks 2\nrank 0 {\n}\n");
  folder.write("json/t.json", "{\"traceEvents\": []}");
  const std::filesystem::path goal = folder.path() / "goal", json = folder.path() / "json";
  for (const auto& path : {goal, goal / "a.goal"})
    EXPECT_THAT(message_of([&] { refuse_foreign(path, Traces::kRead); }),
                HasSubstr("a.goal: found a GOAL schedule, expected the model and its plan for 'moesim "
                          "compare --scope step'"));
  EXPECT_EQ(message_of([&] { refuse_foreign(json, Traces::kRead); }), "");
  EXPECT_THAT(message_of([&] { refuse_foreign(json, Traces::kForeign); }), HasSubstr("moesim trace convert"));
  EXPECT_EQ(message_of([&] { refuse_foreign(json / "none", Traces::kForeign); }), "");
}

TEST(ForeignFormat, FilesOfOthers) {
  const std::filesystem::path folder = std::filesystem::path(MOESIM_DATA_DIR) / "foreign";
  if (!std::filesystem::exists(folder / "kineto")) GTEST_SKIP() << "no data set at " << folder;
  const std::map<std::string, std::string> expected{
      {"kineto/chakra__feeder_tests_trace.tar.gz", "an archive (tar)"},
      {"kineto/chakra__x__1.0.2-chakra.0.0.4.json", "a Chakra trace of the host alone"},
      {"kineto/chakra__x__jsonData__small_chakra.0.json", ""},
      {"kineto/hta__execution_trace__benchmark_simple_add_et.json.gz", "a PyTorch execution trace"},
      {"kineto/param__linear_et.json.gz", "a PyTorch execution trace"},
      {"other/binary_tree_32.goal", "a GOAL schedule"},
      {"other/simai_microAllReduce.txt", "a workload of SimAI or ASTRA-sim"},
      {"other/ling_v2_train.log", "a training log of Megatron or DeepSpeed"},
      {"other/megatron_deepspeed.log", "a training log of Megatron or DeepSpeed"},
      {"other/vllm_ascend_expert_map.json", "a map of experts to devices (vLLM Ascend)"},
      {"nccl/superbench__nccl_allreduce.log", ""}};
  for (const auto& [file, name] : expected) {
    const std::string message = message_of([&] { refuse_foreign(folder / file, Traces::kRead); });
    if (name.empty() && file.starts_with("kineto")) {
      EXPECT_EQ(message, "") << file;
    } else if (!name.empty()) {
      EXPECT_THAT(message, HasSubstr("found " + name)) << file;
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder / "kineto")) {
    const std::string file = "kineto/" + entry.path().filename().string();
    const bool archive = file.find(".tar") != std::string::npos;
    if (!expected.contains(file) && !archive) {
      EXPECT_EQ(message_of([&] { refuse_foreign(entry.path(), Traces::kRead); }), "") << file;
    }
  }
}

}  // namespace
}  // namespace moesim::traces
