// Matrix products on the virtual GPU, which cuBLAS and CUTLASS share.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "laws.h"

namespace moesim::virtual_gpu {

// In column-major terms, as calibration/bench/cuda/products.h.
struct Gemm {
  bool turn_a, turn_b;
  int m, n, k;
  const void *a, *b;
  void* c;
  cudaDataType_t in, out;
  int lda, ldb, ldc;
  float beta = 0;
};

// Queues one launch of all products, for which the host takes `call` seconds.
void products(cudaStream_t stream, const std::vector<Gemm>& all, Units units, double call);

}  // namespace moesim::virtual_gpu
