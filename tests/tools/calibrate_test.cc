// `moesim calibrate` as a user runs it: a log comes in, a profile is held against it, a limit decides the
// exit code.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_text;
using testing::run_moesim;
using testing::TempFolder;

// Output of all_gather_perf, with our own times.
constexpr const char* kLog = R"(# nThread 1 nGpus 2 minBytes 1048576 maxBytes 16777216 step: 16(factor)
#  Rank  0 Group  0 Pid   1234 on     node0 device  0 [0x19] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1234 on     node0 device  1 [0x3b] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        131072     float    none      -1    30.00   34.95   17.48      0    30.00   34.95   17.48      0
    16777216       2097152     float    none      -1    80.00  209.72  104.86      0    80.00  209.72  104.86      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 61.17
)";

class Calibrate : public ::testing::Test {
 protected:
  Calibrate() { here_.write("all_gather.log", kLog); }
  Outcome run(std::vector<std::string> words) const {
    words.insert(words.begin(), "calibrate");
    return run_moesim(words, here_.path());
  }
  Outcome import_log() const {
    return run({"import", "nccl-tests", "all_gather.log", "--gpu", "h100-sxm", "--op", "all_gather", "--out",
                "raw.json"});
  }

  TempFolder here_;
};

// Two ranks' files belong together: the second rank waited less.
TEST_F(Calibrate, ImportsAJobsInspectorLogs) {
  const auto log = [](int rank, const char* call) {
    return fmt::format(
        R"({{"header":{{"id":"0x1","rank":{},"n_ranks":2,"nnodes":1}},"dump_stats":{{"coll_records":1}}}}
{{"coll_perf":{{"coll":"AllReduce","coll_sn":1,"coll_msg_size_bytes":4096,{}}}}}
)",
        rank, call);
  };
  here_.write("0.log", log(0, R"("coll_exec_time_us":40,"coll_algobw_gbs":0.1024,"coll_busbw_gbs":0.1024)"));
  here_.write("1.log", log(1, R"("coll_exec_time_us":20,"coll_algobw_gbs":0.2048,"coll_busbw_gbs":0.2048)"));
  const Outcome outcome = run({"import", "nccl-inspector", "0.log", "1.log", "--gpu", "h100-sxm"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const json rows = json::parse(outcome.out).at("collectives");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_NEAR(rows[0].at("seconds").get<double>(), 20e-6, 1e-12);
  EXPECT_THAT(run({"import", "nccl-inspector", "0.log", "--gpu", "h100-sxm"}).err, HasSubstr("lack ranks"));
}

TEST_F(Calibrate, ChecksAProfileAndFailsAboveTheLimit) {
  ASSERT_EQ(import_log().exit_code, 0);
  const Outcome outcome = run({"check", "h100-sxm", "--against", "raw.json", "--format", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("schema"), "moesim.calibrate-check/1");
  // Everything needed to run it again.
  EXPECT_EQ(result.at("inputs").at("files").size(), 1u);
  EXPECT_EQ(result.at("inputs").at("command")[0], "calibrate");
  EXPECT_TRUE(result.at("inputs").contains("seed"));
  EXPECT_TRUE(result.at("warnings").is_array());
  EXPECT_EQ(result.at("rows"), 2);
  const double error = result.at("mean_abs_error");
  EXPECT_GT(error, 0);
  EXPECT_GE(result.at("coverage"), 0);
  EXPECT_LE(result.at("coverage"), 1);
  const auto with = [&](double limit) {
    return run({"check", "h100-sxm", "--against", "raw.json", "--max-error", std::to_string(limit)})
        .exit_code;
  };
  EXPECT_EQ(with(1.01 * error), 0);
  EXPECT_EQ(with(0.99 * error), 1);
}

// Twelve sizes of a machine that takes half as long again as a DGX H100.
std::string own_table() {
  std::string text =
      "op,gpu,nodes,gpus_per_node,bytes,bytes_meaning,time_us,algbw_GBps,busbw_GBps,datatype,library_version,"
      "source\n";
  for (int power = 18; power < 30; ++power) {
    const double bytes = static_cast<double>(std::int64_t{1} << power), us = 1.5 * (15 + bytes / 380e3);
    text += fmt::format(
        "all_gather,H100-SXM5-80GB,1,8,{:.0f},recv_total_per_rank,{:.6f},{:.6f},{:.6f},half,NCCL 9,mine\n",
        bytes, us, bytes / us * 1e-3, bytes / us * 1e-3 * 7 / 8);
  }
  return text;
}

TEST_F(Calibrate, OneLogMakesAProfileOnesOwn) {
  here_.write("own.csv", own_table());
  const Outcome outcome =
      run({"refine", "h100-sxm", "--with", "own.csv", "--out", "mine.json", "--format", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("schema"), "moesim.calibrate-refine/1");
  ASSERT_EQ(result.at("laws").size(), 1u);
  const json& law = result.at("laws")[0];
  EXPECT_EQ(law.at("key"), "collective/all_gather/scaleup");
  EXPECT_GT(law.at("moved_sigma"), 0);
  EXPECT_GT(law.at("own_share"), 0.3);
  EXPECT_EQ(result.at("decisions").size(), 6u);
  // The refined profile answers, its own rows much better.
  const auto error = [&](const std::string& profile) {
    return json::parse(run({"check", profile, "--against", "own.csv", "--format", "json"}).out)
        .at("mean_abs_error")
        .get<double>();
  };
  EXPECT_LT(error("mine.json"), 0.3 * error("h100-sxm"));
  const json written = json::parse(read_text(here_.path() / "mine.json"));
  EXPECT_THAT(written.at("provenance").get<std::string>(), HasSubstr("refine h100-sxm with own.csv"));
  EXPECT_GT(written.at("laws").at("collective/all_gather/scaleup").at("own_share"), 0.3);
  EXPECT_FALSE(written.at("laws").at("collective/all_reduce/scaleup").contains("own_share"));
}

// A driver's name is that of its GPU; --gpu names unknown ones and does not rename others.
TEST_F(Calibrate, TakesRowsByTheirDriversName) {
  const auto write = [&](const char* file, const std::string& gpu) {
    std::string text = "gpu,source,dtype,kernel,m,n,k,time_us,tflops\n";
    for (const int m : {1024, 4096, 8192})
      text += fmt::format("{},me,bf16,cublas,{},4096,4096,{},\n", gpu, m, 10 + m * 0.06);
    here_.write(file, text);
  };
  write("driver.csv", "NVIDIA H200");
  write("unknown.csv", "my box");
  write("other.csv", "NVIDIA H100 80GB HBM3");
  const auto refine = [&](const char* file, std::vector<std::string> more) {
    std::vector<std::string> words{"refine", "h200-sxm",  "--with",   file,
                                   "--out",  "mine.json", "--format", "json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome driver = refine("driver.csv", {});
  ASSERT_EQ(driver.exit_code, 0) << driver.err;
  EXPECT_EQ(json::parse(driver.out).at("rows"), 3);
  const Outcome unknown = refine("unknown.csv", {});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("rows of 'my box', a GPU without a profile (calibrate import --gpu says of which)"));
  const Outcome said = refine("unknown.csv", {"--gpu", "NVIDIA H200"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_EQ(json::parse(said.out).at("rows"), 3);
  const Outcome other = refine("other.csv", {"--gpu", "h200-sxm"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(
      other.err,
      HasSubstr("other.csv:2: found a row of 'H100-SXM5-80GB', expected 'H200-SXM5-141GB', as --gpu says"));
  EXPECT_THAT(run({"import", "csv", "unknown.csv"}).err,
              HasSubstr("found rows of 'my box', a GPU without a profile"));
}

// A fit has a law of grouped products of its own, and counts what it leaves out.
TEST_F(Calibrate, AFitUsesGroupedProducts) {
  std::string dense = "gpu,source,dtype,kernel,m,n,k,time_us,tflops\n",
              grouped = "gpu,source,kind,dtype,groups,m_per_group,n,k,time_us,tflops\n";
  // At 500 and 400 TFLOP/s.
  for (const int m : {256, 512, 1024, 2048, 4096, 8192})
    for (const int n : {2048, 4096, 8192}) {
      dense += fmt::format("NVIDIA H200,me,bf16,cublas,{},{},4096,{:.3f},\n", m, n,
                           4 + 2.0 * m * n * 4096 / 500e6);
      if (m > 2048) continue;
      grouped += fmt::format("NVIDIA H200,me,grouped fwd none,bf16,8,{},{},4096,{:.3f},\n", m, n,
                             4 + 16.0 * m * n * 4096 / 400e6);
    }
  grouped += "my box,me,grouped fwd none,bf16,8,256,4096,4096,90,\n";
  here_.write("dense.csv", dense);
  here_.write("grouped.csv", grouped);
  const Outcome fit =
      run({"fit", "dense.csv", "grouped.csv", "--gpu", "h200-sxm", "--quick", "--out", "mine.json"});
  ASSERT_EQ(fit.exit_code, 0) << fit.err;
  EXPECT_THAT(fit.out, HasSubstr("skipped     1  rows of 'my box'"));
  const json laws = json::parse(read_text(here_.path() / "mine.json")).at("laws");
  const auto share = [&](const char* key) {
    return laws.at(key).at("parameters").at("peak_share").at("value").get<double>();
  };
  EXPECT_NEAR(share("grouped_gemm/bf16") / share("gemm/bf16"), 0.8, 0.06);
}

// Two expert ranks and two microbatches of one layer: gather of counts, dispatch of 8 rows each, products for
// 2 ms, exchange back of 10 and 6 rows.
std::string rank_file(int rank, int rows_back, double dispatch_ms, double combine_ms) {
  const auto call = [](const char* function, const char* comm, int rows, const char* shape, double ms,
                       double end) {
    return fmt::format(
        "'trace_src_func={},duration={:.2f},timestamp={:.2f},input__shape=[{}{}],input__dtype=torch.bfloat16,"
        "group=exp,comm_func={}'",
        function, ms, end, rows, shape, comm);
  };
  std::string text;
  for (int batch = 0; batch < 2; ++batch) {
    const double start = 1000.0 + 100 * batch;
    text += fmt::format(
        "rank:{}:forward_step(stage_id=0,batch_id={},mg_state=steady,duration=20.00,description=None,"
        "group_kind=None,input__shape=None,input__dtype=None,timestamp={:.2f},sub_operations=[{}, {}, {}])\n",
        rank, batch, start + 20,
        call("_gather_along_first_dim_expert_parallel", "allgather", 2, "", 0.12 + 0.2 * rank, start + 5),
        call("_profiled_all_to_all_single", "all_to_all", 8, ", 1000000", dispatch_ms, start + 10),
        call("_profiled_all_to_all_single", "all_to_all", rows_back, ", 1000000", combine_ms, start + 16));
  }
  return text;
}

TEST_F(Calibrate, ImportsTheTransfersOfARecording) {
  std::filesystem::create_directories(here_.path() / "realistic");
  const std::string name = "realistic/wd2_tp1_pp1_exp2_expNum2_l1_bs1_rank";
  here_.write(name + "0_20250818085316.txt", rank_file(0, 10, 0.30, 0.09));
  here_.write(name + "1_20250818085316.txt", rank_file(1, 6, 0.15, 1.70));
  const Outcome outcome = run({"import", "recording", "realistic", "--gpu", "h800-sxm", "--source", "me",
                               "--library", "NCCL 2.18.6", "--out", "raw.json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json file = json::parse(read_text(here_.path() / "raw.json"));
  // The return exchange: its fastest member did not wait. Rank 0 sends half of its 10 rows; an equal exchange
  // whose ranks send as much holds 10 rows of 2 MB.
  ASSERT_EQ(file.at("collectives").size(), 1u);
  const json& transfer = file.at("collectives")[0];
  EXPECT_EQ(transfer.at("op"), "all_to_all");
  EXPECT_EQ(transfer.at("gpus_per_node"), 2);
  EXPECT_DOUBLE_EQ(transfer.at("bytes"), 10 * 2e6);
  EXPECT_NEAR(transfer.at("seconds").get<double>(), 90e-6, 1e-9);
  EXPECT_EQ(transfer.at("library"), "NCCL 2.18.6");
  EXPECT_THAT(transfer.at("source").get<std::string>(), HasSubstr("me, "));
  // The gather and the dispatch, which the host launches while the GPU waits, say nothing about the links.
  ASSERT_EQ(file.at("exposed_calls").size(), 2u);
  for (const json& call : file.at("exposed_calls"))
    EXPECT_NEAR(call.at("seconds").get<double>(), call.at("op") == "all_gather" ? 120e-6 : 150e-6, 1e-9);
}

}  // namespace
}  // namespace moesim::tools
