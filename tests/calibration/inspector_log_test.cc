#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "calibration/rows/import_logs.h"
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

}  // namespace
}  // namespace moesim::calibration
