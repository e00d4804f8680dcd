// Logs of NCCL tests, as text and as JSON, become rows.
#include "calibration/rows/import_logs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file_io.h"
#include "base/input_error.h"
#include "calibration/rows/collective_table.h"
#include "tests/message_of.h"
#include "tests/replaced.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
using sim::CollectiveOp;
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

Imported read(const std::string& text, const ImportFacts& facts = {}) {
  return import_nccl_tests(text, "x.json", facts);
}
std::string error_of(const std::string& text, const ImportFacts& facts = {}) {
  return message_of([&] { read(text, facts); });
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

TEST(NcclTests, ReadsTheKindOfNetwork) {
  for (const auto& [said, kind] :
       {std::pair{"NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>", "infiniband"},
        {"NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]", "roce"},
        {"NET/OFI Selected Provider is efa (found 4 nics)", "efa"},
        {"NET/Socket : Using [0]eth0:10.0.0.1<0>", ""}}) {
    const std::string log = "node-a:4242:4250 [0] NCCL INFO " + std::string(said) + "\n" + kLog;
    EXPECT_EQ(import_nccl_tests(log, "all_reduce.log", {}).rows.collectives.at(0).origin.network, kind);
  }
}

// NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING: NCCL writes into the row that is being printed, and says its choice and nodes.
TEST(NcclTests, KeepsWhatNcclChose) {
  const std::string log =
      R"(node-a:1:2 [0] NCCL INFO comm 0x55d0c0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576         32768      half    none      -1node-a:1:2 [0] NCCL INFO AllGather: 65536 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}
node-a:1:2 [0] NCCL INFO AllGather: 65536 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}
    40.00   26.21   24.58      0node-a:1:2 [0] NCCL INFO AllGather: 65536 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}
    39.00   26.89   25.21      0
     2097152         65536      half    none      -1    50.00   41.94   39.32      0    50.00   41.94   39.32      0
[2026-05-05 06:16:47] node-a:1:2 [0] NCCL INFO AllGather: 4194304 Bytes -> Algo 1 proto 2 time 46.1
     4194304        131072      half    none      -1    90.00   46.60   43.69      0    90.00   46.60   43.69      0
# Out of bounds values : 0 OK
)";
  ImportFacts facts;
  facts.gpu = "h100-sxm";
  const auto rows = import_nccl_tests(log, "all_gather_perf.log", facts).rows.collectives;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 40e-6);
  EXPECT_EQ(rows[0].algorithm, "ring/ll128/16");
  EXPECT_EQ(rows[1].algorithm, "");
  EXPECT_EQ(rows[2].algorithm, "ring/simple");
  EXPECT_EQ(rows[0].nodes, 2);
  EXPECT_EQ(rows[0].gpus_per_node, 8);
  // Racks are no nodes; a row that nothing finishes is no row.
  EXPECT_THAT(message_of([&] {
                import_nccl_tests(replaced(log, "MNNVL 0", "MNNVL 1"), "all_gather_perf.log", facts);
              }),
              HasSubstr("rank lines"));
  EXPECT_THAT(message_of([&] {
                import_nccl_tests(log.substr(0, log.find("    40.00")), "all_gather_perf.log", facts);
              }),
              HasSubstr("truncated log?"));
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
              HasSubstr("x.json:10: found 9 columns"));
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
  EXPECT_THAT(
      error_of("n1:1:2 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo 1 proto 2 time 46.1\n", all_reduce()),
      HasSubstr("no result rows but NCCL's own estimates (subsystem TUNING)"));
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

// Output of nccl-tests 2.17 (src/util.cu), 16 ranks on two nodes, one process with two GPUs each.
std::string nccl_json() {
  std::string devices;
  for (int p = 0; p < 8; ++p)
    devices += fmt::format(
        R"({}{{"rank":{},"group":0,"pid":{},"hostname":"node-{}","device":{},"device_hex":"0000:1{}:00","device_info":"NVIDIA H100 80GB HBM3"}})",
        p == 0 ? "" : ",", 2 * p, p, p / 4, 2 * (p % 4), p);
  return R"({"version":2,"start_time":"2026-01-01 00:00:00","args":[".\/build\/all_reduce_perf","-g","2","-J","x.json"],
"env":["A=b"],"nccl_version":22902,"config":{"nthreads":1,"ngpus":2,"minimum_bytes":8,"devices":[)" +
         devices + R"(]},"results":[
{"size":1048576,"count":262144,"type":"float","redop":"sum","root":"    -1","out_of_place":{"time":40.000000,"alg_bw":26.214400,"bus_bw":49.152000,"nwrong":0.000000},"in_place":{"time":39.0,"alg_bw":26.88,"bus_bw":50.4,"nwrong":null},"actual_iterations":20,"experiment_name":"AllReduce"},
{"size":2097152,"count":524288,"type":"float","redop":"sum","root":"    -1","out_of_place":null,"in_place":{"time":39.0,"alg_bw":26.88,"bus_bw":50.4,"nwrong":null}}],
"out_of_bounds":{"count":0,"okay":"true"},"average_bus_bandwidth":{"bandwidth":1.0,"okay":"unchecked"},"errors":[],"end_time":"x"})";
}

std::string record(const std::string& name, int nodes, int ranks_per_node, int in_place, double factor) {
  constexpr double kUs = 50;
  const double rate = 16777216 / kUs * 1e-3;
  return fmt::format(
      R"({{"numCycle":0, "name":"{}", "nodes":{}, "ranks":{}, "ranksPerNode":{}, "gpusPerRank":1, "size":16777216, "type":"float", "redop":"{}", "inPlace":{}, "time":{:f}, "algBw":{:f}, "busBw":{:f}, "wrong":"0"}})",
      name, nodes, nodes * ranks_per_node, ranks_per_node, name == "AllReduce" ? "sum" : "none", in_place,
      kUs, rate, rate * factor);
}

ImportFacts mi300x() {
  ImportFacts facts;
  facts.gpu = "MI300X";
  return facts;
}

TEST(NcclJson, OfNcclTests) {
  const Imported all = read(nccl_json());
  ASSERT_EQ(all.rows.collectives.size(), 1u);  // the other has no time out of place
  const CollectiveRow& row = all.rows.collectives.front();
  EXPECT_EQ(row.op, CollectiveOp::all_reduce);
  EXPECT_EQ(row.nodes, 2);
  EXPECT_EQ(row.gpus_per_node, 8);
  EXPECT_DOUBLE_EQ(row.seconds, 40e-6);
  EXPECT_EQ(row.library, "NCCL 2.29.2");
  EXPECT_EQ(row.origin.gpu, "H100-SXM5-80GB");
  EXPECT_EQ(row.origin.place.line, 3);
}

TEST(NcclJson, OfNcclTestsIsHeldAgainstItself) {
  const std::string good = nccl_json();
  EXPECT_THAT(error_of(replaced(good, "49.152000", "45.875200")),
              HasSubstr("expected 16, as the rank lines say"));
  EXPECT_THAT(error_of(replaced(good, "all_reduce_perf", "reduce_perf")),
              HasSubstr("no result rows but 1 rows of 'reduce'"));
  EXPECT_THAT(error_of(replaced(good, "all_reduce_perf", "all_gather_perf")), HasSubstr("another --op?"));
  EXPECT_THAT(error_of(replaced(good, "\"time\":40", "\"cpu_time\":40")), HasSubstr("times on the CPU"));
  EXPECT_THAT(error_of(replaced(good, "\"nwrong\":0.0", "\"nwrong\":3.0")), HasSubstr("wrong results"));
  EXPECT_THAT(error_of(replaced(good, "\"okay\":\"true\"", "\"okay\":\"false\"")),
              HasSubstr("a test that failed"));
  EXPECT_THAT(error_of(replaced(good, "\"count\":262144", "\"count\":262143")),
              HasSubstr("size = count x 4 bytes"));
  EXPECT_THAT(error_of(replaced(good, "\"alg_bw\":26.214400,", "")), HasSubstr("'alg_bw'"));
  EXPECT_THAT(error_of(good.substr(0, good.size() - 2)), HasSubstr("x.json:"));
  EXPECT_THAT(error_of("{\"a\": 1}"), HasSubstr("the JSON of nccl-tests"));
}

TEST(NcclJson, OfRcclTests) {
  const std::string text = "[\n" + record("AllReduce", 2, 8, 0, 1.875) + ",\n" +
                           record("AllReduce", 2, 8, 1, 1.875) + ",\n" + record("AllToAll", 1, 8, 0, 0.875) +
                           ",\n" + record("Gather", 1, 8, 0, 0.875) + "\n]\n";
  const Imported all = read(text, mi300x());
  ASSERT_EQ(all.rows.collectives.size(), 2u);
  EXPECT_EQ(all.rows.collectives[0].op, CollectiveOp::all_reduce);
  EXPECT_EQ(all.rows.collectives[0].nodes, 2);
  EXPECT_EQ(all.rows.collectives[0].library, "RCCL (not recorded)");
  EXPECT_EQ(all.rows.collectives[1].op, CollectiveOp::all_to_all);
  EXPECT_EQ(all.rows.collectives[1].ranks(), 8);
  ASSERT_EQ(all.notes.size(), 1u);
  EXPECT_THAT(all.notes.front(), HasSubstr("1 rows of 'gather'"));
  EXPECT_THAT(error_of(text), HasSubstr("expected --gpu"));
  EXPECT_THAT(error_of("[\n" + record("AllReduce", 2, 8, 0, 1.75) + "]", mi300x()),
              HasSubstr("as nodes and ranks of the file say"));
  EXPECT_THAT(error_of(replaced(text, "\"wrong\":\"0\"", "\"wrong\":\"4\""), mi300x()),
              HasSubstr("wrong '4'"));
  EXPECT_THAT(error_of(replaced(text, "\"size\":16777216", "\"size\":\"x\""), mi300x()),
              HasSubstr("size 'x'"));
  ImportFacts facts = mi300x();
  facts.nodes = 4;
  EXPECT_THAT(error_of(text, facts), HasSubstr("2 nodes of 8 GPUs"));
}

TEST(NcclJson, CsvOfRcclTests) {
  const std::string text =
      "numCycle, name, nodes, ranks, ranksPerNode, gpusPerRank, size, type, redop, inPlace, time, algBw, "
      "busBw, wrong\n"
      "0, AllReduce, 2, 16, 8, 1, 16777216, float, sum, 0, 50.000000, 335.544320, 629.145600, 0\n"
      "0, AllReduce, 2, 16, 8, 1, 16777216, float, sum, 1, 50.000000, 335.544320, 629.145600, 0\n";
  const Imported all = read(text, mi300x());
  ASSERT_EQ(all.rows.collectives.size(), 1u);
  EXPECT_EQ(all.rows.collectives.front().ranks(), 16);
  EXPECT_EQ(all.rows.collectives.front().origin.place.line, 2);
  EXPECT_THAT(error_of(replaced(text, ", 0\n0, All", "\n0, All"), mi300x()),
              HasSubstr("x.json:2: found 13 fields"));
  EXPECT_THAT(error_of(replaced(text, "busBw,", "bw,"), mi300x()), HasSubstr("no column 'busBw'"));
  EXPECT_THAT(error_of(replaced(text, "nodes, ranks,", "nodes, nodes,"), mi300x()),
              HasSubstr("the column 'nodes' twice"));
}

Imported read_nccl(const std::string& text, const ImportFacts& facts = {},
                   const std::string& file = "x.log") {
  return read_nccl_log(text, file, facts);
}

std::string error_of_nccl(const std::string& text, const ImportFacts& facts = {},
                          const std::string& file = "x.log") {
  return message_of([&] { read_nccl(text, facts, file); });
}

TEST(NcclLog, NamesOfTestsAndLaunchers) {
  for (const char* name : {"allreduce", "AllReduce", "all_reduce", "all-reduce", "all_reduce_perf"})
    EXPECT_EQ(op_named(name), CollectiveOp::all_reduce) << name;
  EXPECT_EQ(op_named("alltoallv"), std::nullopt);
  EXPECT_EQ(op_named("reduce"), std::nullopt);
  std::string launcher;
  EXPECT_EQ(without_prefix("host:12:13 [0] NCCL INFO Launch mode Parallel", launcher),
            "host:12:13 [0] NCCL INFO Launch mode Parallel");
}

// The logs of others: each read as what it is, or refused for what it lacks.
TEST(NcclLog, LogsOfOthers) {
  const std::filesystem::path folder = std::filesystem::path(MOESIM_DATA_DIR) / "foreign/nccl";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no data set at " << folder;
  int read_whole = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string error = error_of_nccl(read_file(entry.path()), {}, name);
    if (name.starts_with("readme__oracle") && name.ends_with("_0.log")) {
      const Imported all = read_nccl(read_file(entry.path()), {}, name);
      EXPECT_EQ(all.rows.collectives.front().nodes, 2);
      EXPECT_EQ(all.rows.collectives.front().gpus_per_node, 8);
    } else if (name.starts_with("readme__")) {
      EXPECT_THAT(error, HasSubstr("a table without")) << name;
    } else if (name == "superbench__nccl_reduce.log") {
      EXPECT_THAT(error, HasSubstr("34 rows of 'reduce'"));
    } else {
      EXPECT_EQ(error, "") << name;
    }
    ++(error.empty() ? read_whole : refused);
  }
  EXPECT_GE(read_whole, 9);
  EXPECT_GE(refused, 1);
}

}  // namespace
}  // namespace moesim::calibration
