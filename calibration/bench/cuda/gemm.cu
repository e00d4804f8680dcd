// Dense and grouped matrix products: cuBLAS(Lt) bf16, tf32 and fp8; per-expert loop, strided batch and the
// grouped call.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "device.h"

namespace moesim::bench {
namespace {

constexpr int kCalls = 10;

struct Handles {
  cublasHandle_t blas = nullptr;
  cublasLtHandle_t lt = nullptr;
  cudaStream_t stream = nullptr;
  Handles() {
    require(cudaStreamCreate(&stream), "cudaStreamCreate");
    require(cublasCreate(&blas), "cublasCreate");
    require(cublasSetStream(blas, stream), "cublasSetStream");
    require(cublasLtCreate(&lt), "cublasLtCreate");
  }
  ~Handles() {
    cublasLtDestroy(lt);
    cublasDestroy(blas);
    cudaStreamDestroy(stream);
  }
};

Handles& handles() {
  static Handles all;
  return all;
}

// One product in cuBLAS's column-major terms: C[rows, columns] = op(A)[rows, depth] op(B)[depth, columns].
struct Product {
  cublasOperation_t op_a, op_b;
  int rows, columns, depth;
  const void *a, *b;
  void* c;
  int lda, ldb, ldc;
};

// Whether corners and the middle of C are what the host computes from A and B.
bool right(const Product& p, Element in) {
  const auto element = [](const void* data, cublasOperation_t op, int ld, int outer, int depth, Element type) {
    // op(A)[outer, .] and op(B)[., outer] are columns or rows of what is stored.
    const bool along = op == CUBLAS_OP_T;
    return values(data, type, along ? static_cast<std::size_t>(outer) * ld : static_cast<std::size_t>(outer),
                  along ? 1 : static_cast<std::size_t>(ld), static_cast<std::size_t>(depth));
  };
  const std::pair<int, int> places[] = {
      {0, 0}, {p.rows - 1, p.columns - 1}, {p.rows / 2, p.columns / 3}, {p.rows - 1, 0}};
  for (const auto& [row, column] : places) {
    const auto a = element(p.a, p.op_a, p.lda, row, p.depth, in);
    // B is stored depth first where it is not turned.
    const auto b = element(p.b, p.op_b == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N, p.ldb, column, p.depth, in);
    double sum = 0, squares = 0;
    for (std::size_t k = 0; k < a.size(); ++k) {
      sum += static_cast<double>(a[k]) * b[k];
      squares += static_cast<double>(a[k]) * a[k] * b[k] * b[k];
    }
    const double c =
        values(p.c, Element::kBf16, static_cast<std::size_t>(column) * p.ldc + static_cast<std::size_t>(row), 1, 1)[0];
    // Rounding to bf16, and sums in another order; fp8 units keep fewer bits of the sum.
    const double tolerance = (in == Element::kFp8 ? 0.02 : 0.005) * (std::abs(sum) + std::sqrt(squares)) + 1e-3;
    if (!(std::abs(c - sum) <= tolerance)) return false;
  }
  return true;
}

// y[m,n] = x[m,k] w[k,n] in row-major terms; cuBLAS is column-major, so it computes y^T = w^T x^T.
void dense_bf16(benchmark::State& state, int m, int n, int k) {
  const std::size_t copies =
      rotation((static_cast<std::size_t>(m) * k + static_cast<std::size_t>(k) * n) * 2);
  std::vector<Buffer> x, w;
  for (std::size_t i = 0; i < copies; ++i) {
    x.push_back(normal(Element::kBf16, static_cast<std::size_t>(m) * k, 2 * static_cast<unsigned>(i)));
    w.push_back(normal(Element::kBf16, static_cast<std::size_t>(k) * n, 2 * static_cast<unsigned>(i) + 1));
  }
  Buffer y(static_cast<std::size_t>(m) * n * 2);
  const float one = 1, zero = 0;
  const auto call = [&](int turn) {
    const std::size_t i = static_cast<std::size_t>(turn) % copies;
    require(cublasGemmEx(handles().blas, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, w[i].as<void>(),
                         CUDA_R_16BF, n, x[i].as<void>(), CUDA_R_16BF, k, &zero, y.as<void>(), CUDA_R_16BF,
                         n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
  };
  call(0);
  require(cudaStreamSynchronize(handles().stream), "dense product");
  if (!right({CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, w[0].as<void>(), x[0].as<void>(), y.as<void>(), n, k, n},
             Element::kBf16)) {
    state.SkipWithError("wrong result");
    return;
  }
  run_timed(state, handles().stream, kCalls, call);
}

void dense_fp8(benchmark::State& state, int m, int n, int k) {
  int major = 0;
  require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "compute capability");
  if (major < 9) {
    state.SkipWithError("skipped: no fp8 matrix units");
    return;
  }
  // fp8 products want K-major operands: w is stored transposed.
  const std::size_t copies = rotation(static_cast<std::size_t>(m) * k + static_cast<std::size_t>(k) * n);
  std::vector<Buffer> x, w;
  for (std::size_t i = 0; i < copies; ++i) {
    x.push_back(normal(Element::kFp8, static_cast<std::size_t>(m) * k, 2 * static_cast<unsigned>(i)));
    w.push_back(normal(Element::kFp8, static_cast<std::size_t>(k) * n, 2 * static_cast<unsigned>(i) + 1));
  }
  Buffer y(static_cast<std::size_t>(m) * n * 2), workspace(64u << 20);
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, d;
  require(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "matmul descriptor");
  const cublasOperation_t transpose = CUBLAS_OP_T, plain = CUBLAS_OP_N;
  require(
      cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
      "transpose");
  require(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain),
          "transpose");
  require(cublasLtMatrixLayoutCreate(&a, CUDA_R_8F_E4M3, k, n, k), "layout");
  require(cublasLtMatrixLayoutCreate(&b, CUDA_R_8F_E4M3, k, m, k), "layout");
  require(cublasLtMatrixLayoutCreate(&d, CUDA_R_16BF, n, m, n), "layout");
  cublasLtMatmulPreference_t preference;
  require(cublasLtMatmulPreferenceCreate(&preference), "preference");
  const std::size_t limit = workspace.bytes();
  require(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                               sizeof limit),
          "workspace");
  cublasLtMatmulHeuristicResult_t heuristic;
  int found = 0;
  const auto status =
      cublasLtMatmulAlgoGetHeuristic(handles().lt, operation, a, b, d, d, preference, 1, &heuristic, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    state.SkipWithError("skipped: cuBLASLt has no fp8 kernel for this shape");
  } else {
    const float one = 1, zero = 0;
    const auto call = [&](int turn) {
      const std::size_t i = static_cast<std::size_t>(turn) % copies;
      require(cublasLtMatmul(handles().lt, operation, &one, w[i].as<void>(), a, x[i].as<void>(), b, &zero,
                             y.as<void>(), d, y.as<void>(), d, &heuristic.algo, workspace.as<void>(), limit,
                             handles().stream),
              "cublasLtMatmul");
    };
    call(0);
    require(cudaStreamSynchronize(handles().stream), "fp8 product");
    if (right({CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, w[0].as<void>(), x[0].as<void>(), y.as<void>(), k, k, n},
              Element::kFp8))
      run_timed(state, handles().stream, kCalls, call);
    else
      state.SkipWithError("wrong result");
  }
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(d);
  cublasLtMatrixLayoutDestroy(b);
  cublasLtMatrixLayoutDestroy(a);
  cublasLtMatmulDescDestroy(operation);
}

enum class Pass { kForward, kDgrad, kWgrad };

// Rows x[M,K], weights w[K,N], outputs y[M,N] of one expert, all row-major.
Product product_of(Pass pass, int m, int n, int k, __nv_bfloat16* x, __nv_bfloat16* w, __nv_bfloat16* y) {
  switch (pass) {
    case Pass::kForward:
      return {CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, w, x, y, n, k, n};
    case Pass::kDgrad:
      return {CUBLAS_OP_T, CUBLAS_OP_N, k, m, n, w, y, x, n, n, k};
    case Pass::kWgrad:
      break;
  }
  return {CUBLAS_OP_N, CUBLAS_OP_T, n, k, m, y, x, w, n, k, n};
}

// Balanced, or half of the rows on the first expert and the rest falling geometrically.
std::vector<int> rows_per_expert(int groups, int mean, bool skewed) {
  std::vector<int> rows(static_cast<std::size_t>(groups), mean);
  if (!skewed) return rows;
  int left = groups * mean;
  for (int& r : rows) {
    r = std::max(left / 2, 0);
    left -= r;
  }
  rows.front() += left;
  return rows;
}

void grouped_bf16(benchmark::State& state, const std::string& backend, Pass pass, bool skewed, int groups,
                  int mean, int n, int k) {
  const std::vector<int> rows = rows_per_expert(groups, mean, skewed);
  std::size_t total = 0;
  for (const int r : rows) total += static_cast<std::size_t>(r);
  const bool batched = backend == "batched";
  const std::size_t padded = batched ? static_cast<std::size_t>(*std::max_element(rows.begin(), rows.end())) *
                                           static_cast<std::size_t>(groups)
                                     : total;
  // The experts' weights alone are larger than twice the L2: nothing has to rotate.
  const Buffer x = normal(Element::kBf16, padded * k, 1),
               w = normal(Element::kBf16, static_cast<std::size_t>(groups) * k * n, 2),
               y = normal(Element::kBf16, padded * n, 3);
  const float one = 1, zero = 0;
  std::vector<Product> products;
  std::size_t at = 0;
  for (int g = 0; g < groups; ++g) {
    const int m = batched ? static_cast<int>(padded) / groups : rows[static_cast<std::size_t>(g)];
    if (m > 0)
      products.push_back(product_of(pass, m, n, k, x.as<__nv_bfloat16>() + at * k,
                                    w.as<__nv_bfloat16>() + static_cast<std::size_t>(g) * k * n,
                                    y.as<__nv_bfloat16>() + at * n));
    at += static_cast<std::size_t>(m);
  }
  const auto single = [&](const Product& p) {
    require(cublasGemmEx(handles().blas, p.op_a, p.op_b, p.rows, p.columns, p.depth, &one, p.a, CUDA_R_16BF,
                         p.lda, p.b, CUDA_R_16BF, p.ldb, &zero, p.c, CUDA_R_16BF, p.ldc, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT),
            "expert product");
  };
  std::function<void(int)> call;
  // Arrays that the grouped call reads; pointers live on the device.
  const int count = static_cast<int>(products.size());
  std::vector<cublasOperation_t> op_a, op_b;
  std::vector<int> m_, n_, k_, lda, ldb, ldc, size(products.size(), 1);
  std::vector<float> alpha(products.size(), 1), beta(products.size(), 0);
  std::vector<const void*> a, b;
  std::vector<void*> c;
  for (const Product& p : products) {
    op_a.push_back(p.op_a);
    op_b.push_back(p.op_b);
    m_.push_back(p.rows);
    n_.push_back(p.columns);
    k_.push_back(p.depth);
    lda.push_back(p.lda);
    ldb.push_back(p.ldb);
    ldc.push_back(p.ldc);
    a.push_back(p.a);
    b.push_back(p.b);
    c.push_back(p.c);
  }
  Buffer da(a.size() * sizeof(void*)), db(b.size() * sizeof(void*)), dc(c.size() * sizeof(void*));
  require(cudaMemcpy(da.as<void>(), a.data(), a.size() * sizeof(void*), cudaMemcpyHostToDevice), "pointers");
  require(cudaMemcpy(db.as<void>(), b.data(), b.size() * sizeof(void*), cudaMemcpyHostToDevice), "pointers");
  require(cudaMemcpy(dc.as<void>(), c.data(), c.size() * sizeof(void*), cudaMemcpyHostToDevice), "pointers");
  if (backend == "loop") {
    call = [&](int) {
      for (const Product& p : products) single(p);
    };
  } else if (batched) {
    const Product& p = products.front();
    const auto stride = [&](const void* first, const void* second) {
      return static_cast<const __nv_bfloat16*>(second) - static_cast<const __nv_bfloat16*>(first);
    };
    const long long sa = count > 1 ? stride(a[0], a[1]) : 0, sb = count > 1 ? stride(b[0], b[1]) : 0,
                    sc = count > 1 ? stride(c[0], c[1]) : 0;
    call = [&, p, sa, sb, sc](int) {
      require(
          cublasGemmStridedBatchedEx(handles().blas, p.op_a, p.op_b, p.rows, p.columns, p.depth, &one, p.a,
                                     CUDA_R_16BF, p.lda, sa, p.b, CUDA_R_16BF, p.ldb, sb, &zero, p.c,
                                     CUDA_R_16BF, p.ldc, sc, count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "batched product");
    };
  } else {
    call = [&](int) {
      require(cublasGemmGroupedBatchedEx(
                  handles().blas, op_a.data(), op_b.data(), m_.data(), n_.data(), k_.data(), alpha.data(),
                  const_cast<const void* const*>(da.as<void*>()), CUDA_R_16BF, lda.data(),
                  const_cast<const void* const*>(db.as<void*>()), CUDA_R_16BF, ldb.data(), beta.data(),
                  dc.as<void*>(), CUDA_R_16BF, ldc.data(), count, size.data(), CUBLAS_COMPUTE_32F),
              "grouped product");
    };
  }
  call(0);
  require(cudaStreamSynchronize(handles().stream), "grouped product");
  const Product& last = products.back();
  if (!right(products.front(), Element::kBf16) || !right(last, Element::kBf16)) {
    state.SkipWithError("wrong result");
    return;
  }
  run_timed(state, handles().stream, kCalls, call);
}

}  // namespace

void register_gemms(std::vector<Case>& cases) {
  struct Shape {
    int n, k;
  };
  constexpr Shape kShapes[] = {{1536, 2048},  {4096, 4096}, {14336, 4096},
                               {4096, 14336}, {2048, 7168}, {7168, 2048}};
  constexpr int kRows[] = {1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
  for (const Shape s : kShapes)
    for (const int m : kRows)
      for (const bool fp8 : {false, true})
        for (const bool hot : {false, true}) {
          if (hot && m < 4096) continue;  // only long kernels throttle
          const std::string name = "gemm/m:" + std::to_string(m) + "/n:" + std::to_string(s.n) +
                                   "/k:" + std::to_string(s.k) + "/dtype:" + (fp8 ? "fp8" : "bf16") +
                                   "/library:cublas/clocks:" + (hot ? "sustained" : "burst");
          add_case(cases, name, hot ? 4 : 0.6, [m, s, fp8, hot](benchmark::State& state) {
            if (hot) heat(2);
            fp8 ? dense_fp8(state, m, s.n, s.k) : dense_bf16(state, m, s.n, s.k);
          });
        }
  constexpr Shape kExperts[] = {{28672, 4096}, {4096, 14336}, {4096, 7168}};
  const std::pair<const char*, Pass> passes[] = {
      {"fwd", Pass::kForward}, {"dgrad", Pass::kDgrad}, {"wgrad", Pass::kWgrad}};
  for (const char* backend : {"grouped", "loop", "batched"})
    for (const auto& pass : passes)
      for (const bool skewed : {false, true})
        for (const Shape s : kExperts)
          for (const int m : {16, 256, 2048}) {
            const std::string name = std::string("grouped_gemm/groups:8/m:") + std::to_string(m) +
                                     "/n:" + std::to_string(s.n) + "/k:" + std::to_string(s.k) +
                                     "/dtype:bf16/backend:" + backend + "/pass:" + pass.first +
                                     "/skew:" + (skewed ? "half" : "none");
            add_case(cases, name, 0.8, [=](benchmark::State& state) {
              grouped_bf16(state, backend, pass.second, skewed, 8, m, s.n, s.k);
            });
          }
}

}  // namespace moesim::bench
