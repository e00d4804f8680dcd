#include "models/hardware/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/input_error.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;

TEST(DType, EveryNameNamesOneType) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    EXPECT_TRUE(names.insert(name_of(type)).second) << name_of(type);
    EXPECT_EQ(dtype_named(name_of(type)), type);
    EXPECT_EQ(dtype_named("torch." + std::string(name_of(type))), type);
  }
}

// The digits in a name are its bits; a torch bool takes a byte and TF32 is stored as fp32.
TEST(DType, BytesFollowFromTheName) {
  for (std::size_t i = 0; i < kDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    const std::string name(name_of(type));
    int bits = 0;
    for (const char c : name.substr(0, name.find('_')))
      if (c >= '0' && c <= '9') bits = bits * 10 + (c - '0');
    if (type == DType::kBool) bits = 8;
    if (type == DType::kTf32) bits = 32;
    EXPECT_EQ(bytes_of(type) * 8, bits) << name;
  }
}

TEST(DType, LongSpellingsAreKnownAndOthersRefused) {
  EXPECT_EQ(dtype_named("torch.bfloat16"), DType::kBf16);
  EXPECT_EQ(dtype_named("half"), DType::kFp16);
  EXPECT_EQ(dtype_named("float8_e5m2"), DType::kFp8);
  for (const char* wrong : {"", "torch.", "BF16", "fp4", "bfloat", "torch.torch.fp8"}) {
    EXPECT_THAT(message_of([&] { dtype_named(wrong); }),
                ::testing::HasSubstr("expected one of bool, uint8, fp8"))
        << wrong;
  }
}

}  // namespace
}  // namespace moesim::models
