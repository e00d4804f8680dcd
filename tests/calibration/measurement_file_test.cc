#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "calibration/rows/measurements.h"
#include "tests/message_of.h"
#include "tests/replaced.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

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

std::string error_of(const std::string& json) {
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
  EXPECT_THAT(error_of(replaced(json, "measurements/1", "measurements/2")),
              HasSubstr("'moesim.measurements/1'"));
  EXPECT_THAT(error_of(replaced(json, "\"bytes\"", "\"byte\"")), HasSubstr("byte"));
  EXPECT_THAT(error_of(replaced(json, "reduce_scatter", "reduce_scater")),
              HasSubstr("all_gather, reduce_scatter"));
  EXPECT_THAT(error_of(replaced(json, "1.71e-05", "-1.71e-05")), HasSubstr("m.json:"));
  EXPECT_THAT(error_of(replaced(json, "1.71e-05", "\"1.71e-05\"")), HasSubstr("m.json:"));
  EXPECT_NE(error_of(json.substr(0, json.size() / 2)), "");
  EXPECT_EQ(error_of(json), "");
}

}  // namespace
}  // namespace moesim::calibration
