#include "base/units.h"

#include <gtest/gtest.h>

#include "base/input_error.h"
#include "tests/message_of.h"

namespace moesim {
namespace {

using moesim::testing::message_of;

TEST(Units, BandwidthTellsBitsFromBytes) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("100GBps"), 100e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("100 GB/s"), 100e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("400Gbps"), 50e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("5e10"), 50e9);
}

TEST(Units, TimesSizesAndFractions) {
  EXPECT_DOUBLE_EQ(parse_seconds("2us"), 2e-6);
  EXPECT_DOUBLE_EQ(parse_bytes("64MiB"), 64.0 * 1048576);
  EXPECT_DOUBLE_EQ(parse_fraction("5%"), 0.05);
}

TEST(Units, WrongUnitIsNamed) {
  EXPECT_THROW(parse_bandwidth("100us"), InputError);
  EXPECT_THROW(parse_seconds("fast"), InputError);
  EXPECT_EQ(message_of([&] { parse_bandwidth("100 furlongs"); }),
            "found '100 furlongs', expected a bandwidth such as 100GBps or 400Gbps");
}

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(format_us(12.34), "12.3 us");
  EXPECT_EQ(format_us(1500), "1.50 ms");
  EXPECT_EQ(format_us(2.5e6), "2.500 s");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1067e6), "1.07 GB");
  EXPECT_EQ(format_bytes(-53.04 * 1048576), "-55.62 MB");
}

}  // namespace
}  // namespace moesim
