// Tables of measured rows: what is read, and what every mistake is called.
#include "calibration/rows/measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file_io.h"
#include "calibration/rows/csv_table.h"
#include "tests/message_of.h"
#include "tests/replaced.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kHeader =
    "op,gpu,nodes,gpus_per_node,bytes,bytes_meaning,time_us,algbw_GBps,busbw_GBps,datatype,library_version,"
    "source\n";
const std::string kRow =
    "all_gather,H100-SXM5-80GB,1,8,1048576,recv_total_per_rank,17.1,61.32,53.66,half,NCCL 2.29.2,me\n";

std::string error_of(const std::string& text) {
  return message_of([&] { read_table(text, "t.csv"); });
}

TEST(Tables, CollectivesAreReadInSiUnits) {
  const Measurements rows = read_table("# a comment\n" + kHeader + kRow, "t.csv");
  ASSERT_EQ(rows.collectives.size(), 1u);
  EXPECT_EQ(rows.collectives[0].op, sim::CollectiveOp::all_gather);
  EXPECT_DOUBLE_EQ(rows.collectives[0].seconds, 17.1e-6);
  EXPECT_EQ(rows.collectives[0].origin.place.line, 3);
}

TEST(Tables, MistakesAreNamedByLine) {
  EXPECT_THAT(error_of(kHeader + replaced(kRow, "17.1,", "17100,")),
              HasSubstr("t.csv:2: found algbw_GBps 61.32"));
  EXPECT_THAT(error_of(kHeader + replaced(kRow, "53.66", "61.32")),
              HasSubstr("t.csv:2: found busbw_GBps 61.32"));
  EXPECT_THAT(error_of(kHeader + replaced(kRow, "17.1,", "nan,")), HasSubstr("'nan' as time_us"));
  EXPECT_THAT(error_of(kHeader + replaced(kRow, "17.1,", "-3,")), HasSubstr("t.csv:2"));
  EXPECT_THAT(error_of(kHeader + replaced(kRow, ",me", "")), HasSubstr("11 fields"));
  EXPECT_THAT(error_of(replaced(kHeader, "nodes", "op") + kRow), HasSubstr("twice"));
  EXPECT_THAT(error_of(kHeader + replaced(kRow, "all_gather", "all_gathr")), HasSubstr("all_gathr"));
  EXPECT_THAT(error_of(kHeader + replaced(kRow, "recv_total", "send_total")), HasSubstr("bytes_meaning"));
  EXPECT_THAT(error_of(kHeader + replaced(kRow, "me\n", "\"me\n")), HasSubstr("unfinished quote"));
  EXPECT_THAT(error_of("a,b\n1,2\n"), HasSubstr("a table of collectives"));
  EXPECT_THAT(error_of(""), HasSubstr("no column names"));
  EXPECT_THAT(error_of(kHeader + replaced(kRow, ",8,", ",999999999999999999999,")),
              HasSubstr("gpus_per_node"));
}

TEST(Tables, ColumnsComeInAnyOrderWithOthersAndAfterAByteOrderMark) {
  const std::string text =
      "\xef\xbb\xbfremark,source,time_us,bytes,op,nodes,gpus_per_node,busbw_GBps,algbw_GBps,library_version,"
      "datatype,gpu,bytes_meaning\r\n"
      "\"a, b\",me,17.1,1048576,all_gather,1,8,53.66,61.32,NCCL "
      "2.29.2,half,H100-SXM5-80GB,recv_total_per_rank"
      "\r\n";
  const Measurements rows = read_table(text, "t.csv");
  ASSERT_EQ(rows.collectives.size(), 1u);
  EXPECT_EQ(rows.collectives[0].ranks(), 8);
  EXPECT_DOUBLE_EQ(rows.collectives[0].bytes, 1048576);
  EXPECT_EQ(rows.collectives[0].origin.source, "me");
}

TEST(Tables, OneKernelHasSeveralNames) {
  const std::string header =
      "gpu,kernel,ep,nodes,tokens,hidden,topk,topk_groups,dtype,bottleneck_GBps,latency_us,source,experts,"
      "sms,note\n";
  const auto read = [&](const std::string& kernel) {
    return read_table(header + "MI355X," + kernel + ",8,1,4096,7168,8,,fp8,,250,me,256-288,128,\n", "t.csv")
        .dispatches.front();
  };
  EXPECT_EQ(read("mori_ep_intranode_dispatch").kernel, "mori_ep_normal_dispatch");
  EXPECT_EQ(read("mori_ep_internodev1_combine").kernel, "mori_ep_normal_combine");
  EXPECT_EQ(read("mori_ep_intranode_combine_fp8cast").kernel, "mori_ep_normal_combine_fp8cast");
  EXPECT_EQ(read("mori_ep_combine").kernel, "mori_ep_normal_combine");
  EXPECT_EQ(read("mori_ep_internodev1ll_combine").kernel, "mori_ep_internodev1ll_combine");
  EXPECT_EQ(read("uccl_ep_cxi_normal_dispatch").kernel, "uccl_ep_normal_dispatch");
  EXPECT_EQ(read("mori_ep_dispatch").sms, 0);  // thread blocks, not SMs
  EXPECT_EQ(read("deepep_v1_normal_dispatch").sms, 128);
  EXPECT_EQ(read("deepep_v1_normal_dispatch").experts, 0);  // "256-288": left open
}

TEST(Tables, ADispatchFasterThanALaunchIsAWrongUnit) {
  const std::string header =
      "gpu,kernel,ep,nodes,tokens,hidden,topk,topk_groups,dtype,bottleneck_GBps,latency_us,source,experts,"
      "sms,"
      "note\n";
  const std::string row = "H100-SXM5-80GB,deepep_v1_normal_dispatch,8,1,4096,7168,8,1,fp8,,250,me,256,20,\n";
  EXPECT_EQ(read_table(header + row, "t.csv").dispatches.size(), 1u);
  EXPECT_THAT(error_of(header + replaced(row, ",250,", ",0.25,")), HasSubstr("latency_us 0.25"));
}

TEST(Tables, AGemmWhoseRateContradictsItsTimeIsAWrongUnit) {
  const std::string header = "gpu,dtype,m,n,k,time_us,tflops,kernel,source\n";
  EXPECT_EQ(
      read_table(header + "H100-SXM5-80GB,bfloat16,4096,4096,4096,180,763,torch,me\n", "t.csv").gemms.size(),
      1u);
  EXPECT_THAT(error_of(header + "H100-SXM5-80GB,bfloat16,4096,4096,4096,0.180,763,torch,me\n"),
              HasSubstr("wrong unit"));
}

TEST(Tables, AnExpertFfnFasterThanItsArithmeticIsAWrongUnit) {
  const std::string header =
      "gpu,framework,kernel,dtype,num_tokens,hidden,moe_inter,topk,experts,tp,ep,routing,latency_us,source\n";
  const std::string row = "H100-SXM5-80GB,trtllm,moe,bfloat16,16384,4096,14336,2,8,1,1,balanced,20000,me\n";
  EXPECT_EQ(read_table(header + row, "t.csv").ffns.size(), 1u);
  EXPECT_THAT(error_of(header + replaced(row, ",20000,", ",20,")),
              HasSubstr("t.csv:2: found latency_us 20, expected"));
  EXPECT_THAT(error_of(header + replaced(row, ",8,1,1,", ",8,1,3,")),
              HasSubstr("ranks that divide the experts"));
}

TEST(Tables, EveryPublishedLayoutIsRead) {
  const std::filesystem::path folder = std::filesystem::path(MOESIM_DATA_DIR) / "published";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no data set at " << folder;
  const auto rows = [&](const char* file) { return read_measurements(folder / file); };
  EXPECT_EQ(rows("collectives_intranode.csv").collectives.size(), 2412u);
  EXPECT_EQ(rows("collectives_multinode.csv").collectives.size(), 830u);
  EXPECT_EQ(rows("gemm_dense.csv").gemms.size(), 2648u);
  EXPECT_EQ(rows("grouped_gemm.csv").grouped.size(), 10u);
  EXPECT_EQ(rows("moe_ffn_h100.csv").ffns.size(), 4644u);
  EXPECT_EQ(rows("ep_dispatch_combine_tables.csv").dispatches.size(), 246u);
  EXPECT_EQ(rows("ep_dispatch_combine_sweeps.csv").dispatches.size(), 4512u);
}

std::string parse_error(const std::string& text) {
  return message_of([&] { CsvTable::parse(text, "t.csv"); });
}

TEST(CsvTable, RowsKeepTheirLinesPastCommentsAndEmptyOnes) {
  const CsvTable table =
      CsvTable::parse("# who measured\n\n name , x \r\na,1\n# between\nb,2\r\n\nc,3", "t.csv");
  EXPECT_THAT(table.columns(), ElementsAre("name", "x"));
  ASSERT_EQ(table.rows(), 3u);
  EXPECT_EQ(table.text(2, "name"), "c");
  EXPECT_EQ(table.place(0).line, 4);
  EXPECT_EQ(table.place(1).line, 6);
  EXPECT_EQ(table.place(2).line, 8);
  EXPECT_TRUE(table.has("x"));
  EXPECT_FALSE(table.has("y"));
}

TEST(CsvTable, NumbersAreHeldAgainstTheirRange) {
  const CsvTable table = CsvTable::parse("x,n,o\n 1.5e3 ,-7, \ninf,1.0,2\n", "t.csv");
  EXPECT_EQ(table.number(0, "x", 0, 1e4), 1500);
  EXPECT_EQ(table.number(0, "x", 1500, 1500), 1500);  // both ends belong to the range
  EXPECT_EQ(table.integer(0, "n", -7, 7), -7);
  EXPECT_EQ(table.optional_number(0, "o", 0, 1), std::nullopt);
  EXPECT_EQ(table.optional_number(1, "o", 0, 2), 2);
  const auto error = [&](const std::function<void()>& read) { return message_of(read); };
  EXPECT_EQ(error([&] { table.number(0, "x", 0, 1000); }),
            "t.csv:2: found ' 1.5e3 ' as x, expected a number from 0 to 1000");
  EXPECT_THAT(error([&] { table.number(1, "x", 0, 1e300); }), HasSubstr("t.csv:3: found 'inf' as x"));
  EXPECT_THAT(error([&] { table.integer(1, "n", 0, 2); }), HasSubstr("an integer from 0 to 2"));
  EXPECT_THAT(error([&] { table.integer(0, "n", 0, 2); }), HasSubstr("t.csv:2: found '-7' as n"));
  EXPECT_THAT(error([&] { table.optional_number(1, "o", 0, 1); }), HasSubstr("from 0 to 1"));
  EXPECT_THAT(error([&] { table.text(0, "y"); }), HasSubstr("no column 'y', expected columns x,n,o"));
}

TEST(CsvTable, MistakesOfTheTableAreNamedByLine) {
  EXPECT_EQ(parse_error("# nothing\n"), "t.csv: found no column names, expected a table with a header line");
  EXPECT_THAT(parse_error("a,,c\n"), HasSubstr("t.csv:1: found an empty column name"));
  EXPECT_THAT(parse_error("a, a\n"), HasSubstr("t.csv:1: found the column 'a' twice"));
  EXPECT_THAT(parse_error("#\na,b\n1,2\n1\n"), HasSubstr("t.csv:4: found 1 fields, expected 2"));
  EXPECT_THAT(parse_error("a\n\"1\n"), HasSubstr("t.csv:2: found an unfinished quote"));
}

// A field of any characters but line ends comes back as it was written in quotes.
RC_GTEST_PROP(CsvTable, QuotedFieldsComeBack, ()) {
  const auto fields = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(
      rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab ,\"#\\;\t'0")))));
  std::string header, row;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    header += (i ? "," : "") + std::string("c") + std::to_string(i);
    row += i ? ",\"" : "\"";
    for (const char c : fields[i]) row += c == '"' ? std::string("\"\"") : std::string(1, c);
    row += '"';
  }
  const CsvTable table = CsvTable::parse(header + "\n" + row + "\n", "t.csv");
  RC_ASSERT(table.rows() == 1u);
  for (std::size_t i = 0; i < fields.size(); ++i)
    RC_ASSERT(table.text(0, "c" + std::to_string(i)) == fields[i]);
}

// One row of every kind, each number another one.
Measurements one_of_each() {
  Measurements rows;
  const Origin origin = {{}, "H100-SXM5-80GB", "me, \"quoted\""};
  rows.collectives.push_back(
      {origin, sim::CollectiveOp::reduce_scatter, 2, 8, 1048576, 17.1e-6, "half", "NCCL 2.29.2"});
  rows.exposed_calls.push_back(
      {origin, sim::CollectiveOp::send_recv, 1, 2, 4096, 1e-5, "float", "NCCL 2.18.6"});
  rows.gemms.push_back({origin, "bf16", "torch", 4096, 1024, 512, 180e-6, true});
  rows.grouped.push_back({origin, "contiguous", "fp8", 8, 256, 4096, 7168, 2e-4});
  rows.ffns.push_back({origin, "trtllm", "moe", "bf16", "balanced", 64, 4096, 14336, 2, 8, 1, 4, 3e-4});
  rows.dispatches.push_back(
      {origin, "deepep_v1_normal_dispatch", "fp8", "a note", 16, 2, 4096, 7168, 8, 4, 43e9, 2.5e-4, 256, 20});
  rows.kernels.push_back({origin, "copy", 1e6, 3e-6, 2});
  return rows;
}

std::string file_error(const std::string& json) {
  return message_of([&] { parse_measurement_file(json, "m.json"); });
}

TEST(MeasurementFile, EveryKindOfRowComesBack) {
  const std::string json = to_json(one_of_each(), "a test");
  const Measurements again = parse_measurement_file(json, "m.json");
  EXPECT_EQ(to_json(again, "a test"), json);
  ASSERT_EQ(again.size(), 7u);
  EXPECT_EQ(again.collectives[0].op, sim::CollectiveOp::reduce_scatter);
  EXPECT_EQ(again.collectives[0].ranks(), 16);
  EXPECT_EQ(again.collectives[0].seconds, 17.1e-6);
  EXPECT_EQ(again.collectives[0].origin.source, "me, \"quoted\"");
  EXPECT_EQ(again.exposed_calls[0].library, "NCCL 2.18.6");
  EXPECT_TRUE(again.gemms[0].sustained);
  EXPECT_EQ(again.gemms[0].k, 512);
  EXPECT_EQ(again.grouped[0].m_per_group, 256);
  EXPECT_EQ(again.ffns[0].ep, 4);
  EXPECT_EQ(again.dispatches[0].topk_groups, 4);
  EXPECT_EQ(again.dispatches[0].bandwidth, 43e9);
  EXPECT_EQ(again.kernels[0].launches, 2);
}

// Numbers are written so that the same bits are read.
RC_GTEST_PROP(MeasurementFile, NumbersKeepTheirBits, ()) {
  Measurements rows = one_of_each();
  const double share = *rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << 53) * 0x1p-53;
  rows.gemms[0].seconds = 1e-9 + share * 1e3;
  rows.collectives[0].bytes = 1 + share * 1e14;
  const Measurements again = parse_measurement_file(to_json(rows, ""), "m.json");
  RC_ASSERT(again.gemms[0].seconds == rows.gemms[0].seconds);
  RC_ASSERT(again.collectives[0].bytes == rows.collectives[0].bytes);
}

TEST(MeasurementFile, MistakesAreNamed) {
  const std::string json = to_json(one_of_each(), "a test");
  EXPECT_THAT(file_error(replaced(json, "measurements/1", "measurements/2")),
              HasSubstr("'moesim.measurements/1'"));
  EXPECT_THAT(file_error(replaced(json, "\"bytes\"", "\"byte\"")), HasSubstr("byte"));
  EXPECT_THAT(file_error(replaced(json, "reduce_scatter", "reduce_scater")),
              HasSubstr("all_gather, reduce_scatter"));
  EXPECT_THAT(file_error(replaced(json, "1.71e-05", "-1.71e-05")), HasSubstr("m.json:"));
  EXPECT_THAT(file_error(replaced(json, "1.71e-05", "\"1.71e-05\"")), HasSubstr("m.json:"));
  EXPECT_NE(file_error(json.substr(0, json.size() / 2)), "");
  EXPECT_EQ(file_error(json), "");
}

}  // namespace
}  // namespace moesim::calibration
