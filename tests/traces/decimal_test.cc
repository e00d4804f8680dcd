#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "base/input_error.h"
#include "traces/recording.h"

namespace moesim::traces {
namespace {

TEST(Decimal, KeepsTheTextAndTheValue) {
  for (const char* text :
       {"0", "0.0", "0.00", "24.5", "3374745430.49", "131.33", "7", "0.04", "999999999999999.99"}) {
    const std::optional<Decimal> decimal = Decimal::parse(text);
    ASSERT_TRUE(decimal) << text;
    EXPECT_EQ(decimal->str(), text);
    EXPECT_EQ(decimal->value(), std::strtod(text, nullptr)) << text;
  }
}

TEST(Decimal, RefusesWhatItCouldNotWriteBack) {
  for (const char* text : {"", ".", ".5", "5.", "-1", "+1", "1e3", "01", "00", "1.2.3", "1,5", " 1", "nan",
                           "inf", "1152921504606846976", "0.0000000000000001"})
    EXPECT_FALSE(Decimal::parse(text)) << text;
  EXPECT_TRUE(Decimal::parse("1152921504606846975"));  // 2^60 - 1
}

TEST(Decimal, RoundsTimesAsTheRecorderPrintsThem) {
  EXPECT_EQ(Decimal::from_ms(3.0).str(), "3.0");
  EXPECT_EQ(Decimal::from_ms(0.1).str(), "0.1");
  EXPECT_EQ(Decimal::from_ms(0.0).str(), "0.0");
  EXPECT_EQ(Decimal::from_ms(24.456).str(), "24.46");
  EXPECT_THROW(Decimal::from_ms(-0.01), InputError);
  EXPECT_THROW(Decimal::from_ms(std::nan("")), InputError);
}

TEST(Decimal, EveryNumberSurvivesItsText) {
  EXPECT_TRUE(rc::check([] {
    const Decimal decimal(*rc::gen::inRange<std::uint64_t>(0, Decimal::kMaxMantissa),
                          *rc::gen::inRange(0, Decimal::kMaxDigits + 1));
    RC_ASSERT(Decimal::parse(decimal.str()) == decimal);
  }));
}

TEST(Pool, StoresEachWordAndShapeOnce) {
  Pool pool;
  const Name word = pool.name("forward_step");
  EXPECT_EQ(word.view().data(), pool.name(std::string("forward_") + "step").view().data());
  EXPECT_NE(word, pool.name("backward_step"));
  EXPECT_FALSE(Name().present());
  EXPECT_TRUE(pool.name("").present());
  std::vector<Name> many;
  for (int i = 0; i < 5000; ++i) many.push_back(pool.name("cmd-" + std::to_string(i)));
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(many[static_cast<std::size_t>(i)], "cmd-" + std::to_string(i));
  Pool moved = std::move(pool);
  EXPECT_EQ(word, "forward_step");
  EXPECT_EQ(moved.name("forward_step").view().data(), word.view().data());
}

TEST(Pool, ShapesRoundTripAndStayWithinBounds) {
  Pool pool;
  EXPECT_EQ(pool.shape(std::vector<std::int64_t>{2048, 4096}).str(), "[2048, 4096]");
  EXPECT_EQ(pool.shape({}).str(), "[]");
  EXPECT_EQ(pool.shape({}).elements(), 1);
  EXPECT_TRUE(pool.shape_none().is_none());
  EXPECT_EQ(pool.shape_none().elements(), 0);
  EXPECT_EQ(pool.parse_shape("[0, 7]")->elements(), 0);
  EXPECT_TRUE(pool.parse_shape("[1099511627776]"));
  for (const char* text :
       {"", "[", "]", "[1,2]", "[1, ]", "[ 1]", "[-1]", "[01]", "[1099511627777]", "[1048577, 1048577]",
        "[9999999999999999999999]", "none", "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"})
    EXPECT_FALSE(pool.parse_shape(text)) << text;
  EXPECT_THROW(pool.shape(std::vector<std::int64_t>{-1}), InputError);
}

}  // namespace
}  // namespace moesim::traces
