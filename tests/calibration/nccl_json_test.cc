#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/input_error.h"
#include "calibration/rows/import_logs.h"
#include "tests/message_of.h"
#include "tests/replaced.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
using sim::CollectiveOp;
using ::testing::HasSubstr;

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

Imported read(const std::string& text, const ImportFacts& facts = {}) {
  return import_nccl_tests(text, "x.json", facts);
}
std::string error_of(const std::string& text, const ImportFacts& facts = {}) {
  return message_of([&] { read(text, facts); });
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

}  // namespace
}  // namespace moesim::calibration
