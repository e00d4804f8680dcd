#include <cstdint>

#include "products.h"

namespace moesim::bench {

cublasOperation_t turn(bool turned) { return turned ? CUBLAS_OP_T : CUBLAS_OP_N; }

void multiply(cublasHandle_t handle, const Product& p) {
  const float one = 1, beta = 0;
  require(cublasGemmEx(handle, turn(p.turn_a), turn(p.turn_b), p.rows, p.columns, p.depth, &one, p.a,
                       CUDA_R_16BF, p.lda, p.b, CUDA_R_16BF, p.ldb, &beta, p.c, CUDA_R_16BF, p.ldc,
                       CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "product");
}

GroupedCall::GroupedCall(const std::vector<Product>& products)
    : ones_(products.size(), 1),
      alpha_(products.size(), 1),
      beta_(products.size(), 0),
      pointers_(3 * products.size()) {
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product& p = products[i];
    op_a_.push_back(turn(p.turn_a));
    op_b_.push_back(turn(p.turn_b));
    rows_.push_back(p.rows);
    columns_.push_back(p.columns);
    depths_.push_back(p.depth);
    lda_.push_back(p.lda);
    ldb_.push_back(p.ldb);
    ldc_.push_back(p.ldc);
    pointers_[i] = p.a;
    pointers_[products.size() + i] = p.b;
    pointers_[2 * products.size() + i] = p.c;
  }
}

#if CUBLAS_VERSION >= kGroupedSince
void GroupedCall::run(cublasHandle_t handle, const void* on_device) const {
  const std::size_t count = ones_.size();
  const void* const* a = static_cast<const void* const*>(on_device);
  void* const* c = static_cast<void* const*>(const_cast<void*>(on_device)) + 2 * count;
  require(cublasGemmGroupedBatchedEx(handle, op_a_.data(), op_b_.data(), rows_.data(), columns_.data(),
                                     depths_.data(), alpha_.data(), a, CUDA_R_16BF, lda_.data(), a + count,
                                     CUDA_R_16BF, ldb_.data(), beta_.data(), c, CUDA_R_16BF, ldc_.data(),
                                     static_cast<int>(count), ones_.data(), CUBLAS_COMPUTE_32F),
          "grouped product");
}
#else
void GroupedCall::run(cublasHandle_t handle, const void*) const {
  for (std::size_t i = 0; i < ones_.size(); ++i)
    require(cublasGemmEx(handle, op_a_[i], op_b_[i], rows_[i], columns_[i], depths_[i], &alpha_[i],
                         pointers_[i], CUDA_R_16BF, lda_[i], pointers_[ones_.size() + i], CUDA_R_16BF,
                         ldb_[i], &beta_[i], const_cast<void*>(pointers_[2 * ones_.size() + i]), CUDA_R_16BF,
                         ldc_[i], CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "product");
}
#endif

namespace {

// Bytes of the block scales of an operand with so many lines: cuBLASLt lays them out in tiles of 128 lines by four
// blocks.
std::size_t scale_bytes(int lines, int depth) {
  const auto whole = [](int value, int tile) {
    return static_cast<std::size_t>((value + tile - 1) / tile) * static_cast<std::size_t>(tile);
  };
  constexpr int kBlock = 32;
  return whole(lines, 128) * whole((depth + kBlock - 1) / kBlock, 4);
}

const Buffer& workspace() {
  static const Buffer one(std::size_t{64} << 20);
  return one;
}

}  // namespace

#if CUBLAS_VERSION >= 120800
bool has_block_scales() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 10;
}
namespace {
void scale_blocks(cublasLtMatmulDesc_t operation, const void* of_a, const void* of_b) {
  const std::int32_t blocks = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
  for (const auto mode : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE})
    require(cublasLtMatmulDescSetAttribute(operation, mode, &blocks, sizeof blocks), "scales of blocks");
  require(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &of_a, sizeof of_a),
          "scales of A");
  require(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &of_b, sizeof of_b),
          "scales of B");
}
}  // namespace
#else
bool has_block_scales() { return false; }
namespace {
void scale_blocks(cublasLtMatmulDesc_t, const void*, const void*) {
  fail("cublasLt", "MXFP8 was asked of a version older than 12.8");
}
}  // namespace
#endif

Fp8Product::Fp8Product(cublasLtHandle_t handle, int rows, int columns, int depth, bool fast, Scales scales)
    : handle_(handle) {
  require(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "matmul descriptor");
  const cublasOperation_t transpose = CUBLAS_OP_T, plain = CUBLAS_OP_N;
  const std::int8_t fewer_bits = fast ? 1 : 0;
  require(
      cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
      "transpose");
  require(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain),
          "transpose");
  require(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fewer_bits,
                                         sizeof fewer_bits),
          "fast accumulation");
  if (scales == Scales::kBlocks) {
    constexpr int kOne = 127;  // 2^0
    const std::size_t of_a = scale_bytes(rows, depth), of_b = scale_bytes(columns, depth);
    scales_ = std::make_unique<Buffer>(of_a + of_b);
    require(cudaMemset(scales_->as<void>(), kOne, of_a + of_b), "scales");
    scale_blocks(operation_, scales_->as<char>(), scales_->as<char>() + of_a);
  }
  const auto size = [](int n) { return static_cast<std::uint64_t>(n); };
  require(cublasLtMatrixLayoutCreate(&a_, CUDA_R_8F_E4M3, size(depth), size(rows), depth), "layout");
  require(cublasLtMatrixLayoutCreate(&b_, CUDA_R_8F_E4M3, size(depth), size(columns), depth), "layout");
  require(cublasLtMatrixLayoutCreate(&c_, CUDA_R_16BF, size(rows), size(columns), rows), "layout");
  cublasLtMatmulPreference_t preference;
  require(cublasLtMatmulPreferenceCreate(&preference), "preference");
  const std::size_t limit = workspace().bytes();
  require(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                               sizeof limit),
          "workspace");
  if (cublasLtMatmulAlgoGetHeuristic(handle_, operation_, a_, b_, c_, c_, preference, 1, &algorithm_,
                                     &found_) != CUBLAS_STATUS_SUCCESS)
    found_ = 0;
  cublasLtMatmulPreferenceDestroy(preference);
}

Fp8Product::~Fp8Product() {
  cublasLtMatrixLayoutDestroy(c_);
  cublasLtMatrixLayoutDestroy(b_);
  cublasLtMatrixLayoutDestroy(a_);
  cublasLtMatmulDescDestroy(operation_);
}

void Fp8Product::run(const void* a, const void* b, void* c, cudaStream_t stream) const {
  const float one = 1, zero = 0;
  require(cublasLtMatmul(handle_, operation_, &one, a, a_, b, b_, &zero, c, c_, c, c_, &algorithm_.algo,
                         workspace().as<void>(), workspace().bytes(), stream),
          "cublasLtMatmul");
}

std::size_t Fp8Product::bytes(int rows, int columns, int depth, Scales scales) {
  return scales == Scales::kBlocks ? scale_bytes(rows, depth) + scale_bytes(columns, depth) : 0;
}

}  // namespace moesim::bench
