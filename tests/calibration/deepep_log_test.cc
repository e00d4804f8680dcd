#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/input_error.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/rows/import_logs.h"
#include "models/costs/ep_kernel.h"
#include "tests/message_of.h"
#include "tests/replaced.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

ImportFacts h100(int nodes, int gpus) {
  ImportFacts facts;
  facts.gpu = "H100-SXM5-80GB";
  facts.nodes = nodes;
  facts.gpus_per_node = gpus;
  return facts;
}

Imported read(const std::string& text, const ImportFacts& facts) {
  return import_deepep(text, "x.log", facts);
}
std::string error_of(const std::string& text, const ImportFacts& facts) {
  return message_of([&] { read(text, facts); });
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
  const Imported all = read(text, h100(0, 8));
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
  EXPECT_THAT(error_of(text, h100(0, 4)), HasSubstr("copies of a token, expected about 3."));
  EXPECT_THAT(error_of(text, h100(0, 0)), HasSubstr("expected --gpus-per-node"));
  EXPECT_THAT(error_of(replaced(text, "[config]", "[other]"), h100(0, 8)),
              HasSubstr("expected --tokens, --hidden, --topk"));
  ImportFacts facts = h100(0, 8);
  facts.hidden = 4096;
  EXPECT_THAT(error_of(text, facts), HasSubstr("found 7168, expected --hidden 4096"));
}

TEST(DeepEp, NormalKernelsBetweenNodes) {
  const std::string config =
      "[config] num_tokens=4096, hidden=7168, num_topk_groups=2, num_topk=8, num_experts=256\n";
  const Imported all = read(config +
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
  EXPECT_THAT(error_of(config + "[tuning] Best combine: SMs 24, RDMA chunk 8: 40 GB/s (RDMA), 9 GB/s (NVL)\n",
                       h100(1, 8)),
              HasSubstr("expected --nodes 2 or more"));
  EXPECT_THAT(error_of(config + "[tuning] Best combine: SMs 24, RDMA chunk 8: \n", h100(2, 8)),
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
  const Imported all = read(text, facts);
  ASSERT_EQ(all.rows.dispatches.size(), 2u);
  const DispatchRow& dispatch = row_of(all, "deepep_v1_lowlatency_dispatch", "fp8");
  EXPECT_NEAR(dispatch.seconds, 73.5e-6, 1e-12);
  EXPECT_EQ(dispatch.ep, 8);
  EXPECT_EQ(dispatch.experts, 288);
  facts.gpus_per_node = 4;
  EXPECT_THAT(error_of(text, facts), HasSubstr("lines of 8 ranks"));
  facts.gpus_per_node = 8;
  facts.tokens = 64;
  EXPECT_THAT(error_of(text, facts), HasSubstr("copies of a token, expected about 8.00"));
  facts.tokens = 0;
  EXPECT_THAT(error_of(text, facts), HasSubstr("expected --tokens"));
  EXPECT_THAT(error_of("[rank 0] Dispatch bandwidth: 4 GB/s, avg_t=1\n", facts), HasSubstr("half a line"));
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
  const Imported all = read(text, facts);
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
  const Imported all = read(text, h100(0, 0));
  ASSERT_EQ(all.rows.dispatches.size(), 2u);
  const DispatchRow& dispatch = row_of(all, "deepep_v2_dispatch", "fp8");
  EXPECT_EQ(dispatch.nodes, 2);
  EXPECT_EQ(dispatch.ep, 16);
  EXPECT_EQ(dispatch.tokens, 8192);
  EXPECT_EQ(dispatch.sms, 12);
  EXPECT_EQ(dispatch.experts, 256);
  EXPECT_DOUBLE_EQ(dispatch.bandwidth, 90e9);
  EXPECT_DOUBLE_EQ(row_of(all, "deepep_v2_combine", "bf16").seconds, 2234.5e-6);
  EXPECT_THAT(error_of(text, h100(4, 8)), HasSubstr("found 2, expected --nodes 4"));
  EXPECT_THAT(error_of("hello\n", h100(1, 8)), HasSubstr("no timing of a dispatch or combine"));
}

}  // namespace
}  // namespace moesim::calibration
