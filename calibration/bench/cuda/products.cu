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

}  // namespace moesim::bench
