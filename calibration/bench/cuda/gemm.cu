// Dense and grouped matrix products: cuBLAS(Lt) bf16, tf32 and fp8; per-expert loop, strided batch and the
// grouped call.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "device.h"
#include "products.h"

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

// Whether corners and the middle of C are what the host computes from A and B.
bool right(const Product& p, Element in) {
  const auto element = [](const void* data, bool along, int ld, int outer, int depth, Element type) {
    // op(A)[outer, .] and op(B)[., outer] are columns or rows of what is stored.
    return values(data, type, along ? static_cast<std::size_t>(outer) * ld : static_cast<std::size_t>(outer),
                  along ? 1 : static_cast<std::size_t>(ld), static_cast<std::size_t>(depth));
  };
  const std::pair<int, int> places[] = {
      {0, 0}, {p.rows - 1, p.columns - 1}, {p.rows / 2, p.columns / 3}, {p.rows - 1, 0}};
  for (const auto& [row, column] : places) {
    const auto a = element(p.a, p.turn_a, p.lda, row, p.depth, in);
    // B is stored depth first where it is not turned.
    const auto b = element(p.b, !p.turn_b, p.ldb, column, p.depth, in);
    double sum = 0, squares = 0;
    for (std::size_t k = 0; k < a.size(); ++k) {
      sum += static_cast<double>(a[k]) * b[k];
      squares += static_cast<double>(a[k]) * a[k] * b[k] * b[k];
    }
    const double c =
        values(p.c, Element::kBf16, static_cast<std::size_t>(column) * p.ldc + static_cast<std::size_t>(row),
               1, 1)[0];
    // Rounding to bf16, and sums in another order; fp8 units keep fewer bits of the sum.
    const double tolerance =
        (in == Element::kFp8 ? 0.02 : 0.005) * (std::abs(sum) + std::sqrt(squares)) + 1e-3;
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
                         CUDA_R_16BF, n, x[i].as<void>(), CUDA_R_16BF, k, &zero, y.as<void>(), CUDA_R_16BF, n,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
  };
  call(0);
  require(cudaStreamSynchronize(handles().stream), "dense product");
  if (!right({false, false, n, m, k, w[0].as<void>(), x[0].as<void>(), y.as<void>(), n, k, n},
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
    if (right({true, false, n, m, k, w[0].as<void>(), x[0].as<void>(), y.as<void>(), k, k, n}, Element::kFp8))
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
  std::function<void(int)> call;
  const GroupedCall grouped(products);
  const Buffer pointers(grouped.pointer_bytes());
  require(
      cudaMemcpy(pointers.as<void>(), grouped.pointers(), grouped.pointer_bytes(), cudaMemcpyHostToDevice),
      "pointers");
  if (backend == "loop") {
    call = [&](int) {
      for (const Product& p : products) multiply(handles().blas, p, CUDA_R_16BF, false);
    };
  } else if (batched) {
    const Product& p = products.front();
    const int count = static_cast<int>(products.size());
    const auto stride = [&](const void* first, const void* second) {
      return static_cast<const __nv_bfloat16*>(second) - static_cast<const __nv_bfloat16*>(first);
    };
    const Product& next = products[count > 1 ? 1 : 0];
    const long long sa = stride(p.a, next.a), sb = stride(p.b, next.b), sc = stride(p.c, next.c);
    call = [&, p, count, sa, sb, sc](int) {
      require(cublasGemmStridedBatchedEx(handles().blas, turn(p.turn_a), turn(p.turn_b), p.rows, p.columns,
                                         p.depth, &one, p.a, CUDA_R_16BF, p.lda, sa, p.b, CUDA_R_16BF, p.ldb,
                                         sb, &zero, p.c, CUDA_R_16BF, p.ldc, sc, count, CUBLAS_COMPUTE_32F,
                                         CUBLAS_GEMM_DEFAULT),
              "batched product");
    };
  } else {
    call = [&](int) { grouped.run(handles().blas, pointers.as<void>()); };
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
