// Matrix products of a layer in cuBLAS terms: transposed operands and leading dimensions. One mapping for all
// measuring programs; compiles on the host and with nvcc.
#pragma once

namespace moesim::bench {

// In column-major terms: C[rows, columns] = op(A)[rows, depth] op(B)[depth, columns]; op transposes where
// set.
struct Product {
  bool turn_a, turn_b;
  int rows, columns, depth;
  const void *a, *b;
  void* c;
  int lda, ldb, ldc;
};

enum class Pass { kForward, kDgrad, kWgrad };

// Rows x[m,k], weights w[k,n] and outputs y[m,n] of one expert, all row-major. Forward writes y, dgrad x,
// wgrad w.
inline Product product_of(Pass pass, int m, int n, int k, void* x, void* w, void* y) {
  switch (pass) {
    case Pass::kForward:
      return {false, false, n, m, k, w, x, y, n, k, n};
    case Pass::kDgrad:
      return {true, false, k, m, n, w, y, x, n, n, k};
    case Pass::kWgrad:
      break;
  }
  return {false, true, n, k, m, y, x, w, n, k, n};
}

}  // namespace moesim::bench
