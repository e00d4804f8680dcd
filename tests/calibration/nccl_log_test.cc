#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file_io.h"
#include "base/input_error.h"
#include "calibration/rows/collective_table.h"
#include "calibration/rows/import_logs.h"
#include "tests/message_of.h"
#include "tests/replaced.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
using sim::CollectiveOp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string rank_line(int rank, const std::string& host, int device,
                      const std::string& gpu = "NVIDIA H100 80GB HBM3") {
  return fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device {:2} [0000:{:02x}:00] {}\n", rank,
                     100 + rank, host, device, device + 16, gpu);
}

std::string ranks(int nodes, int gpus) {
  std::string text = "# Using devices\n";
  for (int r = 0; r < nodes * gpus; ++r) text += rank_line(r, fmt::format("node-{}", r / gpus), r % gpus);
  return text;
}

const std::string kHeader =
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw  "
    " busbw  #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  "
    "(GB/s)\n";
const std::string kEnd = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n#\n";

// Rows of 16 MiB and 1 GiB whose columns are right; `factor` is busbw / algbw.
std::string rows(double factor, int pieces = 1, const std::string& redop = "sum") {
  std::string text;
  for (const double bytes : {16777216.0, 1073741824.0}) {
    const double us = 30 + bytes / 250e3, algbw = bytes / us * 1e-3;
    const std::string timing = fmt::format("{:>8.1f}  {:6.2f}  {:6.2f}       0", us, algbw, algbw * factor);
    text += fmt::format("{:>12.0f}  {:>12.0f}     float  {:>6}      -1 {} {}\n", bytes, bytes / 4 / pieces,
                        redop, timing, timing);
  }
  return text;
}

std::string test(const std::string& name, int nodes, int gpus, const std::string& table) {
  return "# Collective test starting: " + name +
         "\n# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20\n#\n" +
         ranks(nodes, gpus) + "#\n" + kHeader + table + kEnd + "# Collective test concluded: " + name + "\n";
}

double all_reduce_of(int n) { return 2.0 * (n - 1) / n; }
double share_of(int n) { return (n - 1.0) / n; }

Imported read(const std::string& text, const ImportFacts& facts = {}, const std::string& file = "x.log") {
  return read_nccl_log(text, file, facts);
}

std::string error_of(const std::string& text, const ImportFacts& facts = {},
                     const std::string& file = "x.log") {
  return message_of([&] { read(text, facts, file); });
}

std::vector<CollectiveOp> ops_of(const Imported& imported) {
  std::vector<CollectiveOp> ops;
  for (const CollectiveRow& row : imported.rows.collectives)
    if (ops.empty() || ops.back() != row.op) ops.push_back(row.op);
  return ops;
}

TEST(NcclLog, SeveralTestsOfOneLogAreEachTheirOwn) {
  const Imported all = read(test("all_reduce_perf", 2, 8, rows(all_reduce_of(16))) +
                            test("all_gather_perf", 1, 8, rows(share_of(8), 8, "none")) +
                            test("alltoall_perf", 2, 8, rows(share_of(16), 16, "none")) +
                            test("sendrecv_perf", 1, 4, rows(1, 1, "sum")));
  EXPECT_THAT(ops_of(all), ElementsAre(CollectiveOp::all_reduce, CollectiveOp::all_gather,
                                       CollectiveOp::all_to_all, CollectiveOp::send_recv));
  EXPECT_EQ(all.rows.collectives[0].nodes, 2);
  EXPECT_EQ(all.rows.collectives[2].nodes, 1);
  EXPECT_EQ(all.rows.collectives[6].gpus_per_node, 4);
  EXPECT_TRUE(all.notes.empty());
}

TEST(NcclLog, AnUnknownTestIsLeftOutAndNamed) {
  const std::string known = test("all_reduce_perf", 1, 8, rows(all_reduce_of(8)));
  for (const char* name :
       {"reduce_perf", "gather_perf", "scatter_perf", "hypercube_perf", "alltoallv_perf", "my_new_perf"}) {
    const Imported all = read(known + test(name, 1, 8, rows(1)));
    EXPECT_THAT(ops_of(all), ElementsAre(CollectiveOp::all_reduce)) << name;
    ASSERT_EQ(all.notes.size(), 1u);
    EXPECT_THAT(all.notes.front(),
                HasSubstr("2 rows of '" + std::string(name).substr(0, std::string(name).find("_perf"))));
  }
  EXPECT_THAT(error_of(test("reduce_perf", 1, 8, rows(1))),
              HasSubstr("no result rows but 2 rows of 'reduce'"));
  // A second table without a name is not one of the first.
  EXPECT_THAT(error_of(known + ranks(1, 8) + kHeader + rows(all_reduce_of(8)) + kEnd),
              HasSubstr("without the name of its test"));
}

TEST(NcclLog, RanksAreNumberedNotCounted) {
  std::string cut = test("all_reduce_perf", 2, 8, rows(all_reduce_of(16)));
  for (const int rank : {1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14})
    cut = replaced(cut, rank_line(rank, fmt::format("node-{}", rank / 8), rank % 8), "");
  const CollectiveRow row = read(cut).rows.collectives.front();
  EXPECT_EQ(row.nodes, 2);
  EXPECT_EQ(row.gpus_per_node, 8);
  // Where the columns do not determine the number of ranks, it is not guessed.
  const std::string send =
      replaced(replaced(cut, rows(all_reduce_of(16)), rows(1)), "starting: all_reduce", "starting: sendrecv");
  EXPECT_THAT(error_of(replaced(send, "concluded: all_reduce", "concluded: sendrecv")),
              HasSubstr("some are left out, and columns of 1 or more ranks"));
  // The last lines may be missing, too.
  const std::string shorter =
      replaced(replaced(cut, rank_line(8, "node-1", 0), ""), rank_line(15, "node-1", 7), "...\n");
  EXPECT_THAT(error_of(shorter), HasSubstr("columns of 16 ranks"));
  ImportFacts facts;
  facts.nodes = 2, facts.gpus_per_node = 8;
  EXPECT_EQ(read(shorter, facts).rows.collectives.front().ranks(), 16);
  EXPECT_THAT(error_of(replaced(cut, rank_line(15, "node-1", 7), rank_line(8, "node-1", 0))),
              HasSubstr("rank 8 twice"));
}

TEST(NcclLog, RanksAreHeldAgainstTheColumns) {
  const std::string bare = kHeader + rows(1.972) + kEnd;
  ImportFacts facts;
  facts.op = CollectiveOp::all_reduce;
  facts.gpu = "H100-SXM5-80GB";
  facts.nodes = 2, facts.gpus_per_node = 8;
  EXPECT_THAT(error_of(bare, facts), HasSubstr("ranks (busbw / algbw is 1.97"));
  facts.nodes = 9;
  EXPECT_EQ(read(bare, facts).rows.collectives.front().ranks(), 72);
  facts.nodes = 0;
  EXPECT_THAT(error_of(kHeader + rows(all_reduce_of(16)) + kEnd),
              HasSubstr("expected --op, --nodes and --gpus-per-node, --gpu"));
  EXPECT_EQ(read(kHeader + rows(all_reduce_of(16)) + kEnd, facts).rows.collectives.front().nodes, 2);
  const std::string eight = test("all_reduce_perf", 1, 8, rows(all_reduce_of(8)));
  facts.nodes = 2;
  EXPECT_THAT(error_of(eight, facts), HasSubstr("rank lines of 8 ranks, expected 16"));
  // The lines lie: columns of 16.
  EXPECT_THAT(error_of(test("all_reduce_perf", 1, 8, rows(all_reduce_of(16)))),
              HasSubstr("expected 8, as the rank lines say"));
  EXPECT_THAT(error_of(test("all_gather_perf", 1, 8, rows(share_of(8), 16, "none"))),
              HasSubstr("the ratio of this operation"));
}

TEST(NcclLog, OptionsDoNotContradictTheLog) {
  const std::string log = test("all_reduce_perf", 1, 8, rows(all_reduce_of(8)));
  ImportFacts facts;
  facts.op = CollectiveOp::all_gather;
  EXPECT_THAT(error_of(log, facts),
              HasSubstr("a table of 'all_reduce', expected one of all_gather, as --op says"));
  facts = {};
  facts.gpu = "A100-SXM4-80GB";
  EXPECT_THAT(error_of(log, facts), HasSubstr("as --gpu says"));
  // Nor does an operation its own columns.
  const std::string unnamed = ranks(1, 8) + kHeader + rows(all_reduce_of(8)) + kEnd;
  for (const CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::reduce_scatter,
                                CollectiveOp::broadcast, CollectiveOp::all_to_all, CollectiveOp::send_recv}) {
    facts = {};
    facts.op = op;
    EXPECT_NE(error_of(unnamed, facts), "") << sim::name(op);
  }
  facts.op = CollectiveOp::reduce_scatter;
  EXPECT_THAT(error_of(ranks(1, 8) + kHeader + rows(share_of(8), 8, "none") + kEnd, facts),
              HasSubstr("redop 'none'"));
}

TEST(NcclLog, PrefixesOfLaunchersAreTakenOff) {
  const std::string log = test("all_reduce_perf", 2, 8, rows(all_reduce_of(16)));
  for (const std::string prefix :
       {"[1,0]<stdout>:", "0: ", " 0:", "  [1,0]<stdout>: ", "node-7: ", "[0] ", "> ", "worker-0  | ",
        "(head, rank=0, pid=3808) [1,0]<stdout>:", "2026-01-28T14:50:17.123Z ",
        "[2026-01-28 14:50:17] [1,0]<stdout>:", "[pod/a-0/main] "}) {
    std::string with;
    std::size_t at = 0;
    for (std::size_t end = 0; (end = log.find('\n', at)) != std::string::npos; at = end + 1)
      with += prefix + log.substr(at, end + 1 - at);
    const Imported all = read(with);
    EXPECT_EQ(all.rows.collectives.size(), 2u) << prefix;
    EXPECT_EQ(all.rows.collectives.front().ranks(), 16) << prefix;
  }
  // Without MPI every process prints a table of its own.
  const std::string table = rows(all_reduce_of(16));
  const std::string second = table.substr(table.find('\n') + 1);
  EXPECT_THAT(error_of(replaced(log, table, "0: " + table.substr(0, table.find('\n') + 1) + "1: " + second)),
              HasSubstr("a row of '1:' in a table of '0:'"));
  std::string launcher;
  EXPECT_EQ(without_prefix("host:12:13 [0] NCCL INFO Launch mode Parallel", launcher),
            "host:12:13 [0] NCCL INFO Launch mode Parallel");
}

TEST(NcclLog, CutDocumentsAreReadWithANote) {
  const std::string table = rows(all_reduce_of(16));
  ImportFacts facts;
  facts.op = CollectiveOp::all_reduce;
  facts.gpu = "H100-SXM5-80GB";
  facts.nodes = 2, facts.gpus_per_node = 8;
  EXPECT_EQ(read(kHeader + replaced(table, "\n", "\n   ...\n") + kEnd, facts).rows.collectives.size(), 2u);
  EXPECT_EQ(read(table + kEnd, facts).rows.collectives.size(), 2u);  // from the middle
  const Imported open = read(kHeader + table, facts);
  ASSERT_EQ(open.notes.size(), 1u);
  EXPECT_THAT(open.notes.front(), HasSubstr("x.log:4: the log ends behind this row"));
  EXPECT_THAT(error_of(kHeader + table.substr(0, table.size() - 1), facts), HasSubstr("truncated log?"));
  EXPECT_THAT(error_of(kHeader + table.substr(0, table.size() - 20) + "\n", facts),
              HasSubstr("a truncated line?"));
  EXPECT_THAT(error_of(kHeader + replaced(table, " 268435456 ", " 2.68e+8 ") + kEnd, facts),
              HasSubstr("size = count x 4"));
  // The name may stand at the end only.
  facts.op.reset();
  EXPECT_THAT(ops_of(read(kHeader + table + kEnd + "# Collective test concluded: all_reduce_perf\n", facts)),
              ElementsAre(CollectiveOp::all_reduce));
  EXPECT_THAT(error_of("# Collective test starting: all_reduce_perf\n" + kHeader + table + kEnd +
                           "# Collective test concluded: all_gather_perf\n",
                       facts),
              HasSubstr("the end of 'all_gather'"));
}

TEST(NcclLog, NamesOfTestsInFilesAndPrograms) {
  const std::string unnamed = ranks(1, 8) + kHeader + rows(all_reduce_of(8)) + kEnd;
  for (const char* file :
       {"all_reduce.log", "nccl_allreduce.log", "AllReduce-8gpu.txt", "nccl-all-reduce_perf.out"})
    EXPECT_EQ(error_of(unnamed, {}, file), "") << file;
  EXPECT_THAT(error_of(unnamed, {}, "allreduce_vs_allgather.log"), HasSubstr("expected --op"));
  EXPECT_THAT(error_of(unnamed, {}, "nccl_reduce.log"), HasSubstr("2 rows of 'reduce'"));
  EXPECT_EQ(error_of("$ mpirun -np 8 ./build/all_reduce_perf -b 8 -e 8G\n" + unnamed), "");
  EXPECT_THAT(error_of("make all_reduce_perf all_gather_perf\n" + unnamed), HasSubstr("expected --op"));
  EXPECT_THAT(error_of("./all_gather_perf -g 8\n./all_reduce_perf -g 8\n" + unnamed),
              HasSubstr("expected --op"));
  for (const char* name : {"allreduce", "AllReduce", "all_reduce", "all-reduce", "all_reduce_perf"})
    EXPECT_EQ(op_named(name), CollectiveOp::all_reduce) << name;
  EXPECT_EQ(op_named("alltoallv"), std::nullopt);
  EXPECT_EQ(op_named("reduce"), std::nullopt);
}

// (n-1) / n of the size in both bandwidths, before version 2.8 of NCCL.
TEST(NcclLog, OldBandwidthsOfGathersAndScatters) {
  const auto old = [](int n) {
    std::string text =
        "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n";
    for (const double bytes : {16777216.0, 1073741824.0}) {
      const double us = 30 + bytes / 250e3, rate = bytes * share_of(n) / us * 1e-3;
      const std::string timing = fmt::format("{:>8.1f}  {:6.2f}  {:6.2f}  0e+00", us, rate, rate);
      text += fmt::format("{:>12.0f}  {:>12.0f}   float {} {}\n", bytes, bytes / 4 / n, timing, timing);
    }
    return text;
  };
  const Imported all = read(ranks(1, 8) + old(8) + kEnd, {}, "all_gather.log");
  EXPECT_EQ(all.rows.collectives.size(), 2u);
  EXPECT_DOUBLE_EQ(all.rows.collectives.front().seconds, std::round((30 + 16777216.0 / 250e3) * 10) * 1e-7);
  EXPECT_THAT(error_of(ranks(1, 4) + old(8) + kEnd, {}, "all_gather.log"),
              HasSubstr("expected 4, as the rank lines say"));
}

TEST(NcclLog, TheFirstVersionHasBytesAndMilliseconds) {
  const std::string log = ranks(1, 8) +
                          "#      bytes             N    type      op     time  algbw  busbw      res     "
                          "time  algbw  busbw      res\n"
                          "     16777216       4194304   float     sum    0.100  167.8  293.6    0e+00    "
                          "0.100  167.8  293.6    0e+00\n";
  const Imported all = read(log, {}, "all_reduce.log");
  ASSERT_EQ(all.rows.collectives.size(), 1u);
  EXPECT_DOUBLE_EQ(all.rows.collectives.front().seconds, 100e-6);
}

TEST(NcclLog, RanksThatNcclTellsAreHeldAgainstTheLines) {
  const std::string log = test("sendrecv_perf", 1, 8, rows(1)),
                    info = "node-0:1:9 [0] NCCL INFO comm 0x7f rank 0 nranks ";
  EXPECT_EQ(error_of(replaced(log, kHeader, info + "8 cudaDev 0 - Init COMPLETE\n" + kHeader)), "");
  EXPECT_THAT(error_of(replaced(log, kHeader, info + "16 cudaDev 0 - Init COMPLETE\n" + kHeader)),
              HasSubstr("nranks 16 of NCCL"));
}

TEST(NcclLog, WhatIsNoMeasurementIsRefused) {
  const std::string log = test("all_reduce_perf", 1, 8, rows(all_reduce_of(8)));
  EXPECT_THAT(error_of(replaced(log, " time ", " cputime ")), HasSubstr("times on the CPU"));
  EXPECT_THAT(error_of(replaced(log, "values : 0 OK", "values : 3 FAILED")), HasSubstr("a test that failed"));
  EXPECT_THAT(error_of(replaced(log, "Group  0 Pid    103", "Group  1 Pid    103")), HasSubstr("2 groups"));
  EXPECT_THAT(
      error_of(replaced(log, rank_line(3, "node-0", 3), rank_line(3, "node-0", 3, "NVIDIA A100-SXM4-80GB"))),
      HasSubstr("one kind of GPU"));
  std::string same = test("all_reduce_perf", 2, 8, rows(all_reduce_of(16)));
  for (std::size_t at = 0; (at = same.find("node-1", at)) != std::string::npos;)
    same.replace(at, 6, "node-0");
  EXPECT_THAT(error_of(same), HasSubstr("names that tell nodes apart"));
  ImportFacts facts;
  facts.nodes = 2;
  EXPECT_EQ(read(same, facts).rows.collectives.front().nodes, 2);
  const std::string one = test("all_reduce_perf", 1, 1, rows(0));
  EXPECT_THAT(error_of(one), HasSubstr("no result rows but 2 rows of one rank"));
  // A document shows the first of two ranks.
  EXPECT_THAT(error_of(test("all_reduce_perf", 1, 1, rows(1))),
              HasSubstr("expected 1, as the rank lines say"));
}

TEST(NcclLog, GpusThatHaveNoProfileKeepTheirNames) {
  const auto gpu_of = [](const std::string& name) {
    std::string log = test("all_reduce_perf", 1, 8, rows(all_reduce_of(8)));
    for (std::size_t at = 0; (at = log.find("NVIDIA H100 80GB HBM3", at)) != std::string::npos; ++at)
      log.replace(at, 21, name);
    return read(log).rows.collectives.front().origin.gpu;
  };
  EXPECT_EQ(gpu_of("NVIDIA H100 80GB HBM3"), "H100-SXM5-80GB");
  EXPECT_EQ(gpu_of("NVIDIA H100 PCIe"), "H100-PCIe-80GB");
  EXPECT_EQ(gpu_of("NVIDIA H200 NVL"), "NVIDIA H200 NVL");
  EXPECT_EQ(gpu_of("NVIDIA A100-PCIE-40GB"), "NVIDIA A100-PCIE-40GB");
  EXPECT_EQ(gpu_of("NVIDIA A100-SXM4-80GB"), "A100-SXM4-80GB");
  EXPECT_EQ(gpu_of("NVIDIA GB200"), "GB200");
  EXPECT_EQ(gpu_of("NVIDIA B200"), "B200-SXM6-180GB");
  EXPECT_EQ(gpu_of("AMD Instinct MI300X VF"), "MI300X");
}

// The logs of others: each read as what it is, or refused for what it lacks.
TEST(NcclLog, LogsOfOthers) {
  const std::filesystem::path folder = std::filesystem::path(MOESIM_DATA_DIR) / "foreign/nccl";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no data set at " << folder;
  int read_whole = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string error = error_of(read_file(entry.path()), {}, name);
    if (name.starts_with("readme__oracle") && name.ends_with("_0.log")) {
      const Imported all = read(read_file(entry.path()), {}, name);
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
