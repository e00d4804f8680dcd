// Logs of NCCL Inspector and of DeepEP become rows.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/rows/import_logs.h"
#include "models/costs/ep_kernel.h"
#include "tests/message_of.h"
#include "tests/replaced.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
using sim::CollectiveOp;
using ::testing::HasSubstr;

std::string header(int rank, int ranks, int nodes, const std::string& id = "0x7f8c") {
  return fmt::format(
      R"("header":{{"id":"{}","rank":{},"n_ranks":{},"nnodes":{}}},"metadata":{{"inspector_output_format_version":"v4.3","hostname":"a","pid":1}})",
      id, rank, ranks, nodes);
}

// Computed like the plugin: pieces times ranks for gathers and scatters.
std::string perf(const std::string& coll, int number, double bytes, double us, int ranks) {
  const bool pieces = coll == "AllGather" || coll == "ReduceScatter";
  const double rate = bytes * (pieces ? ranks : 1) / us * 1e-3;
  const double share = (ranks - 1.0) / ranks * (coll == "AllReduce" ? 2 : 1);
  return fmt::format(
      R"("coll_perf":{{"coll":"{}","coll_algo":"RING","coll_proto":"LL","coll_sn":{},"coll_msg_size_bytes":{:.0f},"coll_exec_time_us":{:.0f},"coll_timing_source":"kernel_gpu","coll_algobw_gbs":{:.6f},"coll_busbw_gbs":{:.6f}}})",
      coll, number, bytes, us, rate, rate * share);
}

std::string marker(int rank, int ranks, int nodes, int records, int lost = 0) {
  return "{" + header(rank, ranks, nodes) +
         fmt::format(
             R"(,"dump_stats":{{"coll_records":{},"coll_dropped_since_last_dump":{},"p2p_records":0}}}})",
             records, lost) +
         "\n";
}

std::string line(const std::string& inner) { return "{" + inner + "}\n"; }

ImportFacts h100() {
  ImportFacts facts;
  facts.gpu = "H100-SXM5-80GB";
  return facts;
}

Imported read(const std::vector<std::string>& texts, const ImportFacts& facts = h100()) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < texts.size(); ++i) names.push_back(fmt::format("{}.log", i));
  return import_inspector(
      names, [&](const std::string& name) { return texts.at(std::stoul(name)); }, facts);
}
std::string error_of(const std::vector<std::string>& texts, const ImportFacts& facts = h100()) {
  return message_of([&] { read(texts, facts); });
}

// The record that the plugin's README shows: 17 GB among 8 ranks of a node.
TEST(InspectorLog, TheExampleOfItsReadme) {
  const std::string text =
      marker(2, 8, 1, 1, 512) +
      R"({"coll_perf":{"coll":"AllReduce","coll_algo":"RING","coll_proto":"LL","coll_sn":1407,"coll_msg_size_bytes":17179869184,"coll_exec_time_us":61974,"coll_algobw_gbs":277.210914,"coll_busbw_gbs":485.119099}})"
      "\n";
  ASSERT_TRUE(is_inspector_log(text));
  const Imported all = read({text});
  ASSERT_EQ(all.rows.collectives.size(), 1u);
  const CollectiveRow& row = all.rows.collectives.front();
  EXPECT_EQ(row.op, CollectiveOp::all_reduce);
  EXPECT_EQ(row.nodes, 1);
  EXPECT_EQ(row.gpus_per_node, 8);
  EXPECT_DOUBLE_EQ(row.bytes, 17179869184.0);
  EXPECT_DOUBLE_EQ(row.seconds, 61974e-6);
  EXPECT_EQ(row.origin.place.str(), "0.log:2");
  ASSERT_EQ(all.notes.size(), 2u);
  EXPECT_THAT(all.notes[0], HasSubstr("1 of 1 calls lack ranks (12 % of them are there"));
  EXPECT_THAT(all.notes[1], HasSubstr("lost 512 calls"));
}

// Format 4.0, the verbose example: the size is what a rank receives, the bandwidth is of all.
TEST(InspectorLog, OlderLinesSayAllThemselves) {
  const Imported all = read(
      {"{" + header(4, 8, 1) + "," +
       R"("coll_perf":{"coll":"ReduceScatter","coll_sn":1231,"coll_msg_size_bytes":2147483648,"coll_exec_time_us":41057,"coll_timing_source":"kernel_gpu","coll_algobw_gbs":418.439467,"coll_busbw_gbs":366.134533,"event_trace_sn":{"coll_start_sn":1}}})"
       "\n"});
  ASSERT_EQ(all.rows.collectives.size(), 1u);
  EXPECT_EQ(all.rows.collectives.front().op, CollectiveOp::reduce_scatter);
  EXPECT_DOUBLE_EQ(all.rows.collectives.front().bytes, 8 * 2147483648.0);
}

TEST(InspectorLog, ACallLastsAsLongAsOnTheRankThatWaitedLeast) {
  std::vector<std::string> files;
  for (int rank = 0; rank < 4; ++rank)
    files.push_back(marker(rank, 4, 2, 2) + line(perf("AllGather", 1, 1 << 20, 90 - 20 * rank, 4)) +
                    line(perf("AllGather", 2, 1 << 20, 40 + 20 * rank, 4)));
  const Imported all = read(files);
  ASSERT_EQ(all.rows.collectives.size(), 1u);
  const CollectiveRow& row = all.rows.collectives.front();
  EXPECT_EQ(row.nodes, 2);
  EXPECT_EQ(row.gpus_per_node, 2);
  EXPECT_DOUBLE_EQ(row.bytes, 4 << 20);
  EXPECT_DOUBLE_EQ(row.seconds, 30e-6);  // the lower of 30 us and 40 us
  EXPECT_TRUE(all.notes.empty());
}

TEST(InspectorLog, CallsWithAllRanksAreTakenBeforeOthers) {
  const Imported all = read({marker(0, 2, 1, 2) + line(perf("AllReduce", 1, 4096, 20, 2)) +
                                 line(perf("AllReduce", 2, 4096, 900, 2)),
                             marker(1, 2, 1, 1) + line(perf("AllReduce", 1, 4096, 25, 2))});
  ASSERT_EQ(all.rows.collectives.size(), 1u);
  EXPECT_DOUBLE_EQ(all.rows.collectives.front().seconds, 20e-6);
  EXPECT_THAT(all.notes.at(0), HasSubstr("1 of 2 calls lack ranks"));
}

TEST(InspectorLog, WhatNoForecastUsesIsNamed) {
  const std::string text =
      marker(0, 2, 1, 5) + line(perf("AllReduce", 1, 4096, 20, 2)) +
      R"({"coll_perf":{"coll":"AlltoAll","coll_sn":2,"coll_msg_size_bytes":64,"coll_exec_time_us":9,"coll_algobw_gbs":0,"coll_busbw_gbs":0}})"
      "\n" +
      line(replaced(perf("AllReduce", 3, 4096, 20, 2), "kernel_gpu", "kernel_cpu")) +
      line(perf("AllReduce", 4, 4096, 20, 2)) + R"({"p2p_perf":{"p2p":"Send"}})" + "\n";
  const Imported all = read({text, marker(1, 2, 1, 2) + line(perf("AllReduce", 1, 4096, 20, 2)) +
                                       line(perf("AllReduce", 4, 4096, 20, 2))});
  EXPECT_EQ(all.rows.collectives.size(), 1u);
  ASSERT_EQ(all.notes.size(), 3u);
  EXPECT_THAT(all.notes[0], HasSubstr("1 calls are left out: the host took"));
  EXPECT_THAT(all.notes[1], HasSubstr("1 calls of 'AlltoAll'"));
  EXPECT_THAT(all.notes[2], HasSubstr("1 records of sends"));
}

TEST(InspectorLog, RefusesWhatContradictsOrLacks) {
  const std::string one = line(perf("AllReduce", 1, 4096, 20, 2));
  EXPECT_THAT(error_of({one}), HasSubstr("0.log:1: found a record before its \"dump_stats\""));
  EXPECT_THAT(error_of({marker(0, 2, 1, 2) + one}), HasSubstr("found 1 records fewer than 0.log:1 says"));
  EXPECT_THAT(error_of({marker(0, 2, 1, 2) + one + marker(0, 2, 1, 0)}),
              HasSubstr("0.log:3: found 1 records fewer"));
  EXPECT_THAT(error_of({marker(0, 2, 1, 1) + one.substr(0, one.size() / 2)}), HasSubstr("0.log:2"));
  EXPECT_THAT(error_of({marker(0, 4, 1, 1) + one}), HasSubstr("found size, count and bandwidths of 2 ranks"));
  EXPECT_THAT(
      error_of({marker(0, 2, 1, 1) + one, marker(1, 2, 1, 1) + line(perf("AllReduce", 1, 8192, 20, 2))}),
      HasSubstr("1.log:2: found call 1 of '0x7f8c' as all_reduce of 8192 bytes"));
  EXPECT_THAT(error_of({marker(0, 2, 1, 1) + one, marker(0, 2, 1, 1) + one}), HasSubstr("on rank 0 twice"));
  EXPECT_THAT(error_of({marker(0, 2, 1, 1) + one}, {}), HasSubstr("expected --gpu"));
  EXPECT_THAT(error_of({marker(0, 2, 1, 0)}), HasSubstr("found no collective"));
  EXPECT_THAT(error_of({marker(2, 2, 1, 0)}), HasSubstr("0.log:1"));
  EXPECT_THAT(error_of({"{\"header\":1,\"dump_stats\":{}}"}), HasSubstr("expected an object"));
  ImportFacts shape = h100();
  shape.nodes = 2;
  EXPECT_THAT(error_of({marker(0, 2, 1, 1) + one}, shape), HasSubstr("expected none of them"));
}

TEST(InspectorLog, IsToldByItsContent) {
  const std::string text = marker(0, 2, 1, 1) + line(perf("AllReduce", 1, 4096, 20, 2));
  EXPECT_EQ(import_any(text, "x.log", h100()).rows.collectives.size(), 1u);
  EXPECT_THAT(message_of([&] { import_nccl_tests(text, "x.log", h100()); }),
              HasSubstr("import nccl-inspector"));
}

// The order of files does not matter, and waits only make a rank's time longer.
RC_GTEST_PROP(InspectorLog, OrderAndWaitsDoNotMatter, ()) {
  const int ranks = 1 << *rc::gen::inRange(1, 4), calls = *rc::gen::inRange(1, 6);
  std::vector<std::string> files(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    files[static_cast<std::size_t>(rank)] = marker(rank, ranks, 1, calls);
  double least = 1e9;
  for (int call = 0; call < calls; ++call) {
    const int true_us = *rc::gen::inRange(10, 1000), last = *rc::gen::inRange(0, ranks);
    least = std::min<double>(least, true_us);
    for (int rank = 0; rank < ranks; ++rank)
      files[static_cast<std::size_t>(rank)] += line(
          perf("AllGather", call, 1 << 16, true_us + (rank == last ? 0 : *rc::gen::inRange(0, 500)), ranks));
  }
  const Imported one = read(files);
  std::reverse(files.begin(), files.end());
  const Imported other = read(files);
  RC_ASSERT(one.rows.collectives.size() == 1u);
  RC_ASSERT(one.rows.collectives[0].seconds == other.rows.collectives[0].seconds);
  RC_ASSERT(one.rows.collectives[0].seconds >= least * 1e-6);
}

ImportFacts h100(int nodes, int gpus) {
  ImportFacts facts;
  facts.gpu = "H100-SXM5-80GB";
  facts.nodes = nodes;
  facts.gpus_per_node = gpus;
  return facts;
}

Imported read_deepep(const std::string& text, const ImportFacts& facts) {
  return import_deepep(text, "x.log", facts);
}
std::string deepep_error(const std::string& text, const ImportFacts& facts) {
  return message_of([&] { read_deepep(text, facts); });
}
const DispatchRow& row_of(const Imported& all, const std::string& kernel, const std::string& dtype) {
  for (const DispatchRow& row : all.rows.dispatches)
    if (row.kernel == kernel && row.dtype == dtype) return row;
  ADD_FAILURE() << kernel << " " << dtype;
  return all.rows.dispatches.front();
}

// GB/s at which so many copies of every token take the time.
double rate(double tokens, double token_bytes, double copies, double us) {
  return tokens * token_bytes * copies / us * 1e-3;
}

constexpr double kFp8 = 7168 + 7168 / 128 * 4, kBf16 = 2 * 7168;

TEST(DeepEp, NormalKernelsInANode) {
  const double copies = models::distinct_places(8, 8);
  const std::string text = fmt::format(
      "[config] num_tokens=4096, hidden=7168, num_topk=8\n[layout] Kernel performance: 0.049 ms\n\n"
      "[tuning] SMs 24, NVL chunk 4: 172.86 GB/s (NVL), 924.57 us\n"
      "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 30, {:.2f} GB/s (NVL), t: 453.49 us\n"
      "[tuning] Best dispatch (BF16): SMs 24, NVL chunk 13, {:.2f} GB/s (NVL), t: 640.59 us\n"
      "[tuning] Best combine: SMs 24, NVL chunk 15: {:.2f} GB/s (NVL), t: 775.61 us\n",
      rate(4096, kFp8, copies, 453.49), rate(4096, kBf16, copies, 640.59), rate(4096, kBf16, copies, 775.61));
  const Imported all = read_deepep(text, h100(0, 8));
  ASSERT_EQ(all.rows.dispatches.size(), 3u);
  const DispatchRow& fp8 = row_of(all, "deepep_v1_normal_dispatch", "fp8");
  EXPECT_DOUBLE_EQ(fp8.seconds, 453.49e-6);
  EXPECT_EQ(fp8.ep, 8);
  EXPECT_EQ(fp8.nodes, 1);
  EXPECT_EQ(fp8.tokens, 4096);
  EXPECT_EQ(fp8.hidden, 7168);
  EXPECT_EQ(fp8.sms, 24);
  EXPECT_EQ(fp8.origin.place.line, 5);
  EXPECT_TRUE(call_of(fp8).has_value());
  EXPECT_DOUBLE_EQ(row_of(all, "deepep_v1_normal_combine", "bf16").seconds, 775.61e-6);
  // Among four ranks a token has fewer copies.
  EXPECT_THAT(deepep_error(text, h100(0, 4)), HasSubstr("copies of a token, expected about 3."));
  EXPECT_THAT(deepep_error(text, h100(0, 0)), HasSubstr("expected --gpus-per-node"));
  EXPECT_THAT(deepep_error(replaced(text, "[config]", "[other]"), h100(0, 8)),
              HasSubstr("expected --tokens, --hidden, --topk"));
  ImportFacts facts = h100(0, 8);
  facts.hidden = 4096;
  EXPECT_THAT(deepep_error(text, facts), HasSubstr("found 7168, expected --hidden 4096"));
}

TEST(DeepEp, NormalKernelsBetweenNodes) {
  const std::string config =
      "[config] num_tokens=4096, hidden=7168, num_topk_groups=2, num_topk=8, num_experts=256\n";
  const Imported all =
      read_deepep(config +
                      "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 20, RDMA chunk 28: 58.12 "
                      "GB/s (RDMA), 190.35 GB/s (NVL)\n"
                      "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 24, RDMA chunk 32: 56.12 "
                      "GB/s (RDMA), 180.35 GB/s (NVL)\n"
                      "[tuning] Best combine: SMs 36, NVL chunk 7, RDMA chunk 16, transmit: "
                      "1055.25 us, notify: 30.98 us, BW: "
                      "61.04 GB/s (RDMA), 199.85 GB/s (NVL)\n",
                  h100(2, 8));
  ASSERT_EQ(all.rows.dispatches.size(), 2u);
  const DispatchRow& dispatch = row_of(all, "deepep_v1_normal_dispatch", "fp8");
  EXPECT_DOUBLE_EQ(dispatch.bandwidth, 57.12e9);  // of two nodes
  EXPECT_EQ(dispatch.seconds, 0);
  EXPECT_EQ(dispatch.topk_groups, 2);
  EXPECT_EQ(dispatch.experts, 256);
  EXPECT_GT(seconds_of(dispatch), 0);
  const DispatchRow& combine = row_of(all, "deepep_v1_normal_combine", "bf16");
  EXPECT_DOUBLE_EQ(combine.seconds, 1055.25e-6);
  EXPECT_DOUBLE_EQ(combine.bandwidth, 61.04e9);
  EXPECT_THAT(combine.note, HasSubstr("notify_us 30.98"));
  EXPECT_THAT(
      deepep_error(config + "[tuning] Best combine: SMs 24, RDMA chunk 8: 40 GB/s (RDMA), 9 GB/s (NVL)\n",
                   h100(1, 8)),
      HasSubstr("expected --nodes 2 or more"));
  EXPECT_THAT(deepep_error(config + "[tuning] Best combine: SMs 24, RDMA chunk 8: \n", h100(2, 8)),
              HasSubstr("(cut?)"));
}

TEST(DeepEp, LowLatencyIsTheMeanOfTheRanks) {
  std::string text;
  for (int r = 0; r < 8; ++r)
    text += fmt::format(
        "[rank {}] Dispatch + combine bandwidth: 43.24 GB/s, avg_t=509.86 us, min_t=494.66 us, max_t=526.91 "
        "us\n"
        "[rank {}] Dispatch bandwidth: {:.2f} GB/s, avg_t={:.2f} us | Combine bandwidth: {:.2f} GB/s, "
        "avg_t=120.00 us\n"
        "[rank {}] Dispatch send/recv time: 39.60 + 5.00 us | Combine send/recv time: 39.95 + 6.00 us\n",
        r, r, rate(128, kFp8, 8, 70.0 + r), 70.0 + r, rate(128, kBf16, 8, 120), r);
  ImportFacts facts = h100(1, 0);
  facts.tokens = 128, facts.hidden = 7168, facts.topk = 8, facts.experts = 288;
  const Imported all = read_deepep(text, facts);
  ASSERT_EQ(all.rows.dispatches.size(), 2u);
  const DispatchRow& dispatch = row_of(all, "deepep_v1_lowlatency_dispatch", "fp8");
  EXPECT_NEAR(dispatch.seconds, 73.5e-6, 1e-12);
  EXPECT_EQ(dispatch.ep, 8);
  EXPECT_EQ(dispatch.experts, 288);
  facts.gpus_per_node = 4;
  EXPECT_THAT(deepep_error(text, facts), HasSubstr("lines of 8 ranks"));
  facts.gpus_per_node = 8;
  facts.tokens = 64;
  EXPECT_THAT(deepep_error(text, facts), HasSubstr("copies of a token, expected about 8.00"));
  facts.tokens = 0;
  EXPECT_THAT(deepep_error(text, facts), HasSubstr("expected --tokens"));
  EXPECT_THAT(deepep_error("[rank 0] Dispatch bandwidth: 4 GB/s, avg_t=1\n", facts),
              HasSubstr("half a line"));
}

TEST(DeepEp, HybridEp) {
  const double copies = models::distinct_places(4, 8);
  std::string text;
  for (int r = 0; r < 4; ++r)
    text += fmt::format(
        "[rank {0}] HybridEP dispatch torch API (BF16): {1:.2f} GB/s (NVL), t: 300.00 us, nvl_recv_bytes: "
        "1.00 MB\n"
        "[rank {0}] HybridEP combine torch API: {1:.2f} GB/s (NVL), t: 300.00 us, combine_send_bytes: 1.00 "
        "MB\n"
        "[rank {0}] HybridEP dispatch+permute torch API (BF16): {2:.2f} GB/s (NVL), t: 400.00 us, "
        "nvl_recv_bytes: 1.00 MB\n"
        "[rank {0}] HybridEP dispatch kernel(NVL) (BF16): {1:.2f} GB/s, avg_t=300.00 us | HybridEP combine "
        "kernel(NVL): {2:.2f} "
        "GB/s, avg_t=400.00 us\n",
        r, rate(4096, kBf16, copies, 300), rate(4096, kBf16, copies, 400));
  ImportFacts facts = h100(0, 0);
  facts.tokens = 4096, facts.hidden = 7168, facts.topk = 8;
  const Imported all = read_deepep(text, facts);
  EXPECT_EQ(all.rows.dispatches.size(), 5u);
  EXPECT_EQ(row_of(all, "hybridep_dispatch_api", "bf16").ep, 4);
  EXPECT_DOUBLE_EQ(row_of(all, "hybridep_combine_kernel", "bf16").seconds, 400e-6);
  EXPECT_DOUBLE_EQ(row_of(all, "hybridep_dispatch_permute_api", "bf16").seconds, 400e-6);
}

TEST(DeepEp, VersionTwoSaysItsSizes) {
  std::string text =
      "Config:\n > Ranks: 2 x 8\n > Experts: 8/256\n > Tokens: 8192 (max: 8192), hidden: 7168\n > #SM: 12, "
      "#QPs: 9/17\n"
      " > Testing with do_handle_copy=1, expert_alignment=128, use_fp8_dispatch=1, num_bias=0 ...\n";
  for (int r = 0; r < 16; ++r)
    text += fmt::format(
        "   * EP: {0:3}/16 | dispatch: 90 GB/s (SO), 150 GB/s (SU), 1234.500 us, 5 bytes | copy: 3 GB/s, 1.0 "
        "us\n"
        "   # EP: {0:3}/16 | cached dispatch: 99 GB/s (SO), 150 GB/s (SU), 1000.500 us, 5 bytes | copy: 3 "
        "GB/s, 1.0 us\n"
        "   @ EP: {0:3}/16 | combine: 81 GB/s (SO), 140 GB/s (SU), 2234.500 us, 5 bytes | reduce: 3 GB/s, "
        "1.0 us\n",
        r);
  const Imported all = read_deepep(text, h100(0, 0));
  ASSERT_EQ(all.rows.dispatches.size(), 2u);
  const DispatchRow& dispatch = row_of(all, "deepep_v2_dispatch", "fp8");
  EXPECT_EQ(dispatch.nodes, 2);
  EXPECT_EQ(dispatch.ep, 16);
  EXPECT_EQ(dispatch.tokens, 8192);
  EXPECT_EQ(dispatch.sms, 12);
  EXPECT_EQ(dispatch.experts, 256);
  EXPECT_DOUBLE_EQ(dispatch.bandwidth, 90e9);
  EXPECT_DOUBLE_EQ(row_of(all, "deepep_v2_combine", "bf16").seconds, 2234.5e-6);
  EXPECT_THAT(deepep_error(text, h100(4, 8)), HasSubstr("found 2, expected --nodes 4"));
  EXPECT_THAT(deepep_error("hello\n", h100(1, 8)), HasSubstr("no timing of a dispatch or combine"));
}

}  // namespace
}  // namespace moesim::calibration
