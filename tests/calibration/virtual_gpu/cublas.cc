// cuBLAS and cuBLASLt.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstring>

#include "machine.h"
#include "products.h"

using namespace moesim::virtual_gpu;

struct VirtualBlas {
  cudaStream_t stream = nullptr;
};
struct VirtualBlasLt {};
struct VirtualMatmul {
  int op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  std::int8_t fast = 0;
  const std::uint8_t *scale_a = nullptr, *scale_b = nullptr;
  int mode_a = 0, mode_b = 0;
  bool blocks() const { return mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0; }
};
struct VirtualLayout {
  cudaDataType_t type;
  int rows, columns, ld;
};
struct VirtualPreference {};

namespace {

std::size_t size_of(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 ? 1 : type == CUDA_R_16BF ? 2 : 4; }
float element(const void* data, cudaDataType_t type, std::size_t at) {
  if (type == CUDA_R_16BF) return static_cast<const __nv_bfloat16*>(data)[at];
  if (type == CUDA_R_8F_E4M3) return static_cast<float>(static_cast<const __nv_fp8_e4m3*>(data)[at]);
  return static_cast<const float*>(data)[at];
}

void compute(const Gemm& p) {
  const auto size = [](int value) { return static_cast<std::size_t>(value); };
  for (int column = 0; column < p.n; ++column)
    for (int row = 0; row < p.m; ++row) {
      float sum = 0;
      for (int i = 0; i < p.k; ++i)
        sum +=
            element(p.a, p.in,
                    p.turn_a ? size(row) * size(p.lda) + size(i) : size(i) * size(p.lda) + size(row)) *
            element(p.b, p.in,
                    p.turn_b ? size(i) * size(p.ldb) + size(column) : size(column) * size(p.ldb) + size(i));
      const std::size_t at = size(column) * size(p.ldc) + size(row);
      if (p.beta != 0) sum += p.beta * element(p.c, p.out, at);
      if (p.out == CUDA_R_16BF)
        static_cast<__nv_bfloat16*>(p.c)[at] = __nv_bfloat16(sum);
      else
        static_cast<float*>(p.c)[at] = sum;
    }
  static bool spoiled = false;
  if (wrong() == "gemm" && !spoiled && p.out == CUDA_R_16BF) {
    spoiled = true;
    static_cast<__nv_bfloat16*>(p.c)[size(p.n / 2) * size(p.ldc) + size(p.m / 3)] = __nv_bfloat16(1000.0f);
  }
}

}  // namespace

namespace moesim::virtual_gpu {

void products(cudaStream_t stream, const std::vector<Gemm>& all, Units units, double call) {
  double flops = 0;
  Cache::Traffic traffic;
  for (const Gemm& p : all) {
    const auto bytes = [](int rows, int columns, cudaDataType_t type) {
      return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * size_of(type);
    };
    flops += 2.0 * p.m * p.n * p.k;
    traffic += l2().touch(p.a, bytes(p.m, p.k, p.in));
    traffic += l2().touch(p.b, bytes(p.k, p.n, p.in));
    traffic += l2().touch(p.c, bytes(p.m, p.n, p.out));
  }
  VirtualStream& on = of(stream);
  queue(on, call,
        product_seconds(flops, units, traffic.misses, traffic.hits, clock_share(std::max(host, on.ready))),
        Kind::kCompute);
  if (effects())
    for (const Gemm& p : all) compute(p);
}

}  // namespace moesim::virtual_gpu

const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new VirtualBlas;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                            int n, int k, const void*, const void* a, cudaDataType_t type, int lda,
                            const void* b, cudaDataType_t, int ldb, const void* beta, void* c,
                            cudaDataType_t out, int ldc, cublasComputeType_t, cublasGemmAlgo_t) {
  products(handle->stream,
           {{op_a == CUBLAS_OP_T, op_b == CUBLAS_OP_T, m, n, k, a, b, c, type, out, lda, ldb, ldc,
             *static_cast<const float*>(beta)}},
           Units::kBf16, kBlasCall);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k, const void*,
                                          const void* a, cudaDataType_t type, int lda, long long stride_a,
                                          const void* b, cudaDataType_t, int ldb, long long stride_b,
                                          const void*, void* c, cudaDataType_t out, int ldc,
                                          long long stride_c, int count, cublasComputeType_t,
                                          cublasGemmAlgo_t) {
  std::vector<Gemm> all;
  for (int i = 0; i < count; ++i) {
    const auto at = [&](const void* data, long long stride, cudaDataType_t of_type) {
      return static_cast<const char*>(data) + i * stride * static_cast<long long>(size_of(of_type));
    };
    all.push_back({op_a == CUBLAS_OP_T, op_b == CUBLAS_OP_T, m, n, k, at(a, stride_a, type),
                   at(b, stride_b, type), const_cast<char*>(at(c, stride_c, out)), type, out, lda, ldb, ldc});
  }
  products(handle->stream, all, Units::kBf16, kBlasCall);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmGroupedBatchedEx(cublasHandle_t handle, const cublasOperation_t* op_a,
                                          const cublasOperation_t* op_b, const int* m, const int* n,
                                          const int* k, const void*, const void* const* a,
                                          cudaDataType_t type, const int* lda, const void* const* b,
                                          cudaDataType_t, const int* ldb, const void*, void* const* c,
                                          cudaDataType_t out, const int* ldc, int groups,
                                          const int* group_size, cublasComputeType_t) {
  std::vector<Gemm> all;
  std::size_t at = 0;
  for (int g = 0; g < groups; ++g)
    for (int i = 0; i < group_size[g]; ++i, ++at)
      all.push_back({op_a[g] == CUBLAS_OP_T, op_b[g] == CUBLAS_OP_T, m[g], n[g], k[g], a[at], b[at], c[at],
                     type, out, lda[g], ldb[g], ldc[g]});
  products(handle->stream, all, Units::kBf16, kBlasCall * 2);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new VirtualBlasLt;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor, cublasComputeType_t,
                                        cudaDataType_t) {
  *descriptor = new VirtualMatmul;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  delete descriptor;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatmulDescAttributes_t which, const void* value,
                                              std::size_t bytes) {
  const auto take = [&](auto& to) {
    if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(descriptor->op_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(descriptor->op_b);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return take(descriptor->fast);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return take(descriptor->scale_a);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return take(descriptor->scale_b);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return take(descriptor->mode_a);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return take(descriptor->mode_b);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns, std::int64_t ld) {
  *layout = new VirtualLayout{type, static_cast<int>(rows), static_cast<int>(columns), static_cast<int>(ld)};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new VirtualPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t, const void*,
                                                    std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  // Dimensions of fp8 products are multiples of 16.
  const bool scaled = !descriptor->blocks() ||
                      (generation() >= 10 && descriptor->mode_b == descriptor->mode_a && a->rows % 32 == 0);
  *found = scaled && a->rows % 16 == 0 && a->columns % 16 == 0 && b->rows % 16 == 0 ? 1 : 0;
  results->algo.number = 1;
  return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t descriptor, const void*, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void*, const void*, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t*, void*,
                              std::size_t, cudaStream_t stream) {
  const bool turn_a = descriptor->op_a == CUBLAS_OP_T, turn_b = descriptor->op_b == CUBLAS_OP_T;
  if (descriptor->blocks() && (!descriptor->scale_a || !descriptor->scale_b))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  // Scales of one are all that the suite takes.
  constexpr std::uint8_t kOne = 127;
  if (effects() && descriptor->blocks() && (*descriptor->scale_a != kOne || *descriptor->scale_b != kOne))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  products(stream,
           {{turn_a, turn_b, layout_d->rows, layout_d->columns, turn_a ? layout_a->rows : layout_a->columns,
             a, b, d, layout_a->type, layout_d->type, layout_a->ld, layout_b->ld, layout_d->ld}},
           descriptor->blocks() ? Units::kMxFp8
           : descriptor->fast   ? Units::kFp8Fast
                                : Units::kFp8,
           kBlasCall);
  return CUBLAS_STATUS_SUCCESS;
}
