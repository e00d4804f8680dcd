#include "calibration/rows/import_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file_io.h"
#include "base/input_error.h"
#include "tests/message_of.h"
#include "tests/replaced.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

// Output of nccl-tests 2.13 and later.
const std::string kLog =
    R"(# nThread 1 nGpus 8 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  4242 on   node-a device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  4243 on   node-a device  1 [0x1c] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    21.00   49.93   49.93      0    20.00   52.43   52.43      0
     2097152        524288     float     sum      -1    31.00   67.65   67.65      0    30.00   69.91   69.91      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 58.79
)";

ImportFacts all_reduce() {
  ImportFacts facts;
  facts.op = sim::CollectiveOp::all_reduce;
  return facts;
}

std::string error_of(const std::string& log, const ImportFacts& facts) {
  return message_of([&] { import_nccl_tests(log, "x.log", facts); });
}

TEST(NcclTests, ReadsTheOutOfPlaceColumns) {
  const auto rows = import_nccl_tests(kLog, "all_reduce.log", {}).rows.collectives;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].op, sim::CollectiveOp::all_reduce);
  EXPECT_EQ(rows[0].ranks(), 2);
  EXPECT_EQ(rows[0].nodes, 1);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 21e-6);
  EXPECT_EQ(rows[0].origin.gpu, "H100-SXM5-80GB");
}

TEST(NcclTests, ReadsOldRowsWithoutReductionOrRoot) {
  const std::string old = R"(# Using devices
#   Rank  0 Pid 7 on host-a device  0 [0x07] A100-SXM4-40GB
#   Rank  1 Pid 8 on host-b device  0 [0x07] A100-SXM4-40GB
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        131072   float            40.00   26.21   13.11  0e+00    39.00   26.89   13.44  0e+00
# Out of bounds values : 0 OK
)";
  const auto rows = import_nccl_tests(old, "all_gather_perf.log", {}).rows.collectives;
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].op, sim::CollectiveOp::all_gather);
  EXPECT_EQ(rows[0].nodes, 2);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 40e-6);
  EXPECT_EQ(rows[0].origin.gpu, "A100-SXM4-40GB");
}

TEST(NcclTests, MistakesAreNamedByLine) {
  EXPECT_THAT(error_of(kLog.substr(0, kLog.find("   20.00   52.43")), all_reduce()),
              HasSubstr("x.log:10: found 9 columns"));
  EXPECT_THAT(error_of(kLog.substr(0, kLog.find("\n# Out of bounds")), all_reduce()),
              HasSubstr("truncated log?"));
  EXPECT_THAT(error_of(replaced(kLog, "21.00", "nan"), all_reduce()), HasSubstr("'nan' as time"));
  EXPECT_THAT(error_of(replaced(kLog, "21.00", "21000.0"), all_reduce()), HasSubstr("wrong unit?"));
  EXPECT_THAT(error_of(replaced(kLog, "262144", "262143"), all_reduce()),
              HasSubstr("size = count x 4 bytes"));
  EXPECT_THAT(error_of(replaced(kLog, "49.93      0", "49.93      7"), all_reduce()),
              HasSubstr("wrong results"));
  EXPECT_THAT(error_of(kLog, {}), HasSubstr("--op"));
  EXPECT_THAT(error_of("hello\n", all_reduce()), HasSubstr("no result rows"));
  EXPECT_THAT(error_of("", all_reduce()), HasSubstr("no result rows"));
}

TEST(GoogleBenchmark, ReadsMediansAndSkipsWhatAMachineLacks) {
  const std::string json = R"({"context": {"gpu": "H200-SXM5-141GB"}, "benchmarks": [
    {"name": "gemm/m:64/n:128/k:256/dtype:bf16/library:cublaslt/clocks:burst", "run_name": "gemm/m:64/n:128/k:256/dtype:bf16/library:cublaslt/clocks:burst",
     "run_type": "iteration", "real_time": 9.0, "time_unit": "us"},
    {"name": "gemm/m:64/n:128/k:256/dtype:bf16/library:cublaslt/clocks:burst_median", "run_name": "gemm/m:64/n:128/k:256/dtype:bf16/library:cublaslt/clocks:burst",
     "run_type": "aggregate", "aggregate_name": "median", "real_time": 4.0, "time_unit": "us"},
    {"name": "all_gather/nodes:1/ranks:8/bytes:1024/dtype:bf16/library:nccl", "error_occurred": true, "error_message": "skipped: one GPU here"},
    {"name": "kernel/class:copy/bytes:1000/launches:1", "real_time": 2000, "time_unit": "ns"}]})";
  const Measurements rows = import_google_benchmark(json, "b.json", {}).rows;
  ASSERT_EQ(rows.gemms.size(), 1u);
  EXPECT_DOUBLE_EQ(rows.gemms[0].seconds, 4e-6);
  ASSERT_EQ(rows.kernels.size(), 1u);
  EXPECT_DOUBLE_EQ(rows.kernels[0].seconds, 2e-6);
  EXPECT_THAT(import_google_benchmark(json, "b.json", {}).notes,
              ::testing::ElementsAre("b.json: 1 benchmark left out: skipped: one GPU here"));
  EXPECT_TRUE(rows.collectives.empty());
  EXPECT_THROW(import_google_benchmark(json.substr(0, json.size() - 20), "b.json", {}), InputError);
  EXPECT_THROW(import_google_benchmark(replaced(json, "\"ns\"", "\"parsec\""), "b.json", {}), InputError);
  EXPECT_THROW(import_google_benchmark(replaced(json, "skipped: one GPU here", "wrong result"), "b.json", {}),
               InputError);
  EXPECT_THROW(
      import_google_benchmark(replaced(json, "\"name\": \"kernel/", "\"name\": \"colonel/"), "b.json", {}),
      InputError);
  const auto gather = [](const std::string& shape) {
    return import_google_benchmark(
               R"({"context": {"gpu": "H200-SXM5-141GB"}, "benchmarks": [{"name": "all_gather/)" + shape +
                   R"(/bytes:1024/dtype:bf16/library:nccl", "real_time": 20, "time_unit": "us"}]})",
               "b.json", {})
        .rows.collectives.size();
  };
  EXPECT_EQ(gather("nodes:2/ranks:8"), 1u);
  EXPECT_THROW(gather("nodes:2/ranks:7"), InputError);
  EXPECT_THROW(gather("nodes:1/ranks:7.5"), InputError);
}

// The bench reports a warm cache, which is no row of memory.
TEST(GoogleBenchmark, WarmRowsAreLeftOut) {
  const auto rows = [](const std::string& cache) {
    const std::string name = R"({"name": "kernel/class:copy/bytes:1024/launches:1)";
    const std::string end = R"(", "real_time": 1, "time_unit": "us"})";
    return import_google_benchmark(R"({"context": {"gpu": "H100-SXM5-80GB"}, "benchmarks": [)" + name + end +
                                       ", " + name + cache + end + "]}",
                                   "raw.json", {})
        .rows.kernels.size();
  };
  EXPECT_EQ(rows("/cache:warm"), 1u);
  EXPECT_EQ(rows("/cache:cold"), 2u);
  EXPECT_THROW(rows("/cache:tepid"), InputError);
}

// A log of DeepEP's that begins with its settings is no table of ours.
TEST(ImportAny, ASettingIsNoHeaderOfATable) {
  ImportFacts facts;
  facts.gpu = "H100-SXM5-80GB";
  try {
    import_any("[config] num_tokens=4096, hidden=7168, num_topk=8\n[tuning] Best dispatch (FP8): nothing\n",
               "deepep.log", facts);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).find("column"), std::string::npos) << error.what();
  }
}

TEST(Echo, UnitTrapsAreUndone) {
  ImportFacts facts;
  facts.gpu = "H800-SXM5-80GB";
  const std::string reduce =
      "size_bytes,size_str,count_elements,type,time_us,algbw_gbps,busbw_gbps,errors\n1048576,1M,262144,float,"
      "110.3826,75.9957,142.49,0\n";
  const auto rows = import_echo(reduce, "allreduce_16gpu_2node_x.csv", facts).collectives;
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].nodes, 2);
  EXPECT_EQ(rows[0].gpus_per_node, 8);
  const std::string send =
      "size_bytes,size_str,count_elements,type,redop,root,time_us,algbw_gbps,busbw_gbps,errors\n1048576,1M,"
      "262144,float,none,none,238.60156,8.18572,8.18572,0\n";
  const auto sends = import_echo(send, "multi_node_sendrecv_x.csv", facts).collectives;
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_DOUBLE_EQ(sends[0].seconds, 238.60156e-6 / 2);  // a round trip
  EXPECT_THROW(import_echo(replaced(reduce, "75.9957", "9.4995"), "allreduce_16gpu_2node_x.csv", facts),
               InputError);  // GB/s
  EXPECT_THROW(import_echo(replaced(reduce, "262144", "262143"), "allreduce_16gpu_2node_x.csv", facts),
               InputError);
  EXPECT_THROW(import_echo(reduce, "table.csv", facts), InputError);
}

TEST(Echo, ReadsTheWholeDataSet) {
  const std::filesystem::path folder = std::filesystem::path(MOESIM_DATA_DIR) / "echo/comm_bench";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no data set at " << folder;
  std::size_t rows = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".csv") continue;
    ImportFacts facts;
    facts.gpu = "H800-SXM5-80GB";
    rows += import_echo(read_file(entry.path()), entry.path().string(), facts).collectives.size();
  }
  EXPECT_EQ(rows, 3 * 23u + 3 * 23u + 9 * 22u + 2 * 21u);
}

}  // namespace
}  // namespace moesim::calibration
