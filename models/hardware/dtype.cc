#include "models/hardware/dtype.h"

#include <array>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "base/text.h"

namespace moesim::models {
namespace {

constexpr std::array<std::string_view, kDTypes> kNames = {"bool",      "uint8", "fp8",   "bf16",  "fp16",
                                                          "fp32",      "fp64",  "int16", "int32", "int64",
                                                          "fp8_block", "mxfp8", "tf32",  "fp4"};

constexpr std::pair<std::string_view, DType> kAliases[] = {
    {"bfloat16", DType::kBf16},     {"float16", DType::kFp16},    {"half", DType::kFp16},
    {"float32", DType::kFp32},      {"float", DType::kFp32},      {"float64", DType::kFp64},
    {"double", DType::kFp64},       {"long", DType::kInt64},      {"int", DType::kInt32},
    {"float8_e4m3fn", DType::kFp8}, {"float8_e5m2", DType::kFp8}, {"e4m3", DType::kFp8},
};

}  // namespace

std::string_view name_of(DType type) { return kNames[static_cast<std::size_t>(type)]; }

DType dtype_named(std::string_view name) {
  std::string_view word = name;
  if (word.starts_with("torch.")) word.remove_prefix(6);
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == word) return static_cast<DType>(i);
  for (const auto& [alias, type] : kAliases)
    if (alias == word) return type;
  const std::vector<std::string> known(kNames.begin(), kNames.end());
  throw InputError("found the element type " + in_quotes(name) + ", expected one of " + join(known, ", "));
}

}  // namespace moesim::models
