// Element types of tensors, messages and GEMMs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moesim::models {

enum class DType : std::uint8_t {
  kBool,
  kUint8,
  kFp8,  // per-tensor scale
  kBf16,
  kFp16,
  kFp32,
  kFp64,
  kInt16,
  kInt32,
  kInt64,
  kFp8Block,  // DeepSeek-style 1x128 / 128x128 block scales
  kMxFp8,     // OCP microscaling, 1x32 scales
  kTf32,      // fp32 storage, TF32 tensor cores
  kFp4,       // E2M1 with scales of 16 (NVFP4) or 32 elements (MXFP4): of products alone
};
inline constexpr std::size_t kDTypes = 14;

// Bytes of one element without block scales. A torch bool takes one byte.
constexpr int bytes_of(DType type) {
  switch (type) {
    case DType::kBool:
    case DType::kUint8:
    case DType::kFp8:
    case DType::kFp8Block:
    case DType::kMxFp8:
    case DType::kFp4:  // a message of less is no whole number of bytes
      return 1;
    case DType::kBf16:
    case DType::kFp16:
    case DType::kInt16:
      return 2;
    case DType::kFp32:
    case DType::kTf32:
    case DType::kInt32:
      return 4;
    case DType::kFp64:
    case DType::kInt64:
      return 8;
  }
  return 0;
}
inline constexpr double kBf16Bytes = bytes_of(DType::kBf16);

// Precisions of a job's products with weights, as --precision and device files name them.
inline constexpr std::array<std::string_view, 6> kPrecisions = {"bf16",  "fp8",   "fp8_block",
                                                                "mxfp8", "nvfp4", "mxfp4"};

// "bool", "uint8", "fp8", "bf16", "fp16", "fp32", "fp64", "int16", "int32", "int64", "fp8_block", "mxfp8",
// "tf32", "fp4".
std::string_view name_of(DType type);

// The inverse of name_of, accepting also the long spellings of torch and Hugging Face ("bfloat16", "float32",
// "torch.bfloat16"). Throws InputError with the known names for anything else.
DType dtype_named(std::string_view name);

}  // namespace moesim::models
