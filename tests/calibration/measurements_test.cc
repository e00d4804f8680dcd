// Tables of measured rows: what is read, and what every mistake is called.
#include "calibration/rows/measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file_io.h"
#include "tests/message_of.h"
#include "tests/replaced.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
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

}  // namespace
}  // namespace moesim::calibration
