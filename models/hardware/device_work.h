// Kinds of GPU work: kernel classes, matrix products, exchange libraries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moesim::models {

// Access patterns of docs/spec.md 1.5. The caller counts bytes as that table does.
enum class KernelClass : std::uint8_t {
  kCopy,         // contiguous copy, pad, stack, memset
  kElementwise,  // activation, cast, multiply
  kGatherRows,   // permute, index_select, unpermute with a fused sum
  kScatterRows,  // unsort by index_put without accumulation
  kScatterAdd,   // atomics: zeros + index_add
  kScatterAddDeterministic,
  kSort,       // one radix pass over keys and values; the caller multiplies the bytes by the passes
  kHistogram,  // histc, bincount, column sums of a mask
  kSelect,     // masked_select, nonzero
  kReduce,     // row sums, norms, softmax
};
inline constexpr std::size_t kKernelClasses = 10;
// Log standard deviation of a class without a law in the profile: its share of the bandwidth is an estimate.
inline constexpr double kUnmeasuredKernelSigma = 0.25;

std::string_view name_of(KernelClass kernel);
// Returns the assumed share of the measured HBM bandwidth for a class that was not measured.
double judged_share(KernelClass kernel);
std::optional<KernelClass> parse_kernel_class(std::string_view name);

// C[m,n] = A[m,k] B[k,n].
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

// For y[M,N] = x[M,K] W[K,N]: forward (M,N,K), dgrad dx = dy W^T (M,K,N), wgrad dW = x^T dy (K,N,M).
enum class GemmPass : std::uint8_t { kForward, kDgrad, kWgrad };
// Returns the product that a pass computes, from the forward shape.
GemmShape turned(GemmShape forward, GemmPass pass);

// Launching of the products of several experts.
enum class GemmBackend : std::uint8_t {
  kDense,    // one weight for all rows: no grouping, whatever the number of experts
  kGrouped,  // one kernel over all experts (CUTLASS / cuBLAS grouped): waves are shared, empty experts cost
  // nothing. Under a framework its library (Transformer Engine, grouped_gemm) launches one product per expert
  kGroupedMm,    // the same kernel through torch._grouped_mm: the host launches it once
  kLoop,         // one launch per non-empty expert
  kBatched,      // one strided batch: every expert is padded to the largest
  kBlockSparse,  // MegaBlocks: products with one block-sparse operand or result
};

// The library whose dispatch and combine kernel an exchange uses; kNone: NCCL's, or an unmeasured kernel.
// kDeepEp: the measured version of DeepEP, over NVSHMEM; kUccl has DeepEP's interface over UCCL, kMori over
// AMD's MoRI.
enum class ExchangeLibrary : std::uint8_t { kNone, kDeepEp, kDeepEpV2, kUccl, kHybridEp, kNcclEp, kMori };
inline constexpr std::array kExchangeLibraries{ExchangeLibrary::kDeepEp, ExchangeLibrary::kDeepEpV2,
                                               ExchangeLibrary::kUccl,   ExchangeLibrary::kHybridEp,
                                               ExchangeLibrary::kNcclEp, ExchangeLibrary::kMori};
// "DeepEP", "DeepEP V2", "UCCL-EP", "MoRI-EP", "HybridEP", "NCCL EP", "".
std::string_view name_of(ExchangeLibrary library);
inline constexpr double kUsualSms = 24;  // SMs in DeepEP's tables
// Returns the key of the ParameterSet for a library's kernels without a law; its factor is 1 unless drawn.
std::string unmeasured_kernel_key(ExchangeLibrary library);

}  // namespace moesim::models
