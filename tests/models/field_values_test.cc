// Values of fields as people write them: units, integers, and numbers with a forgotten unit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/workload/fields.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using nlohmann::json;

std::string refusal(FieldType type, std::string_view text) {
  return message_of([&] { json_of_text("a.b", type, text); });
}

TEST(FieldValues, TakeUnits) {
  EXPECT_EQ(json_of_text("a", FieldType::kBandwidth, "100GBps"), json(1e11));
  EXPECT_EQ(json_of_text("a", FieldType::kBandwidth, "400Gbps"), json(5e10));
  EXPECT_EQ(json_of_text("a", FieldType::kSeconds, "2us"), json(2e-6));
  EXPECT_EQ(json_of_text("a", FieldType::kBytes, "80GB"), json(8e10));
  EXPECT_EQ(json_of_text("a", FieldType::kFlops, "989TFLOPS"), json(9.89e14));
  // SI without a unit, as tables of results have it.
  EXPECT_EQ(json_of_text("a", FieldType::kBandwidth, "1e11"), json(1e11));
  EXPECT_EQ(json_of_text("a", FieldType::kSeconds, "2e-6"), json(2e-6));
}

TEST(FieldValues, NoMachineHasANumberWhoseUnitWasForgotten) {
  EXPECT_EQ(refusal(FieldType::kBandwidth, "100"),
            "a.b: found '100', expected a bandwidth such as 100GBps or 400Gbps");
  EXPECT_EQ(refusal(FieldType::kSeconds, "2"), "a.b: found '2', expected a time such as 2us");
  EXPECT_EQ(refusal(FieldType::kBytes, "80"), "a.b: found '80', expected a size such as 80GB");
  EXPECT_EQ(refusal(FieldType::kFlops, "989"), "a.b: found '989', expected a rate such as 989TFLOPS");
  EXPECT_EQ(json_of_text("a", FieldType::kBytes, "0"), json(0.0));  // nothing has no unit
}

TEST(FieldValues, WholeNumbersAreWhole) {
  EXPECT_EQ(json_of_text("a", FieldType::kInteger, " 8 "), json(8));
  EXPECT_EQ(json_of_text("a", FieldType::kInteger, "1e3"), json(1000));
  EXPECT_EQ(refusal(FieldType::kInteger, "8.5"), "a.b: found '8.5', expected a whole number");
  EXPECT_EQ(refusal(FieldType::kInteger, "eight"), "a.b: found 'eight', expected a whole number");
  EXPECT_EQ(refusal(FieldType::kInteger, ""), "a.b: found '', expected a whole number");
  EXPECT_EQ(message_of([] { json_of_number("a.b", FieldType::kInteger, 1e20); }),
            "a.b: found '1e+20', expected a whole number");
  EXPECT_EQ(json_of_number("a", FieldType::kNumber, 8.5), json(8.5));
}

TEST(FieldValues, SwitchesTextsAndObjects) {
  EXPECT_EQ(json_of_text("a", FieldType::kBoolean, "true"), json(true));
  EXPECT_EQ(refusal(FieldType::kBoolean, "yes"), "a.b: found 'yes', expected true or false");
  EXPECT_EQ(json_of_text("a", FieldType::kText, "zipf:1.2"), json("zipf:1.2"));
  EXPECT_EQ(json_of_text("a", FieldType::kObject, R"({"x": [1, 2]})"), json::parse(R"({"x": [1, 2]})"));
  EXPECT_NE(refusal(FieldType::kObject, "{\"x\": "), "");
  for (const FieldType type : {FieldType::kBoolean, FieldType::kChoice, FieldType::kText, FieldType::kObject})
    EXPECT_FALSE(is_number(type));
  for (const FieldType type : {FieldType::kInteger, FieldType::kNumber, FieldType::kBandwidth,
                               FieldType::kSeconds, FieldType::kBytes, FieldType::kFlops})
    EXPECT_TRUE(is_number(type));
}

}  // namespace
}  // namespace moesim::models
