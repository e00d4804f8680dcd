// Dense and grouped matrix products: bf16 by cuBLAS, as a loop over experts, a strided batch and the grouped call,
// and by CUTLASS where it was built in; fp8 and MXFP8 by cuBLASLt, as a loop.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cutlass_grouped.h"
#include "device.h"
#include "products.h"

namespace moesim::bench {
namespace {

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

// Copies of x[m,k], w[k,n] and y[m,n] that rotate.
struct Inputs {
  Inputs(Element type, int m, int n, int k, Cache cache)
      : rows(static_cast<std::size_t>(m) * static_cast<std::size_t>(k) * bytes_of(type)),
        inputs(rows + static_cast<std::size_t>(k) * static_cast<std::size_t>(n) * bytes_of(type)),
        all(inputs + static_cast<std::size_t>(m) * static_cast<std::size_t>(n) * 2, cache) {
    for (std::size_t i = 0; i < all.all().size(); ++i)
      fill(all.all()[i].as<void>(), type, inputs / bytes_of(type), static_cast<unsigned>(i));
    require(cudaDeviceSynchronize(), "normal numbers");
  }
  static std::size_t bytes(Element type, int m, int n, int k) {
    const double one =
        (static_cast<double>(m) * k + static_cast<double>(k) * n) * static_cast<double>(bytes_of(type));
    return static_cast<std::size_t>(3 * (one + 2.0 * m * n)) + (std::size_t{256} << 20);
  }
  const void* x(int turn) const { return all.at<void>(turn); }
  const void* w(int turn) const { return all.at<char>(turn) + rows; }
  void* y(int turn) const { return all.at<char>(turn) + inputs; }

  std::size_t rows, inputs;  // bytes
  Rotation all;
};

// y[m,n] = x[m,k] w[k,n] in row-major terms; cuBLAS is column-major, so it computes y^T = w^T x^T.
void dense_bf16(benchmark::State& state, int m, int n, int k, Cache cache, double heated) {
  if (!has_room(&state, Inputs::bytes(Element::kBf16, m, n, k))) return;
  const Inputs in(Element::kBf16, m, n, k, cache);
  const auto product = [&](int turn) {
    return Product{false, false, n, m, k, in.w(turn), in.x(turn), in.y(turn), n, k, n};
  };
  const auto call = [&](int turn) { multiply(handles().blas, product(turn)); };
  call(0);
  if (!right(product(0), Element::kBf16, handles().stream)) {
    state.SkipWithError("wrong result");
    return;
  }
  heat(heated);
  run_product(state, handles().stream, 1, heated > 0 ? Clocks::kSustained : Clocks::kBurst, call);
}

constexpr const char* kNoKernel = "skipped: cuBLASLt has no fp8 kernel for this shape";

constexpr const char* kCutlass = "cutlass";

// The major number.
int compute_capability() {
  int major = 0;
  require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "compute capability");
  return major;
}

// Reports whether the GPU multiplies fp8.
bool has_fp8(benchmark::State& state) {
  const bool has = compute_capability() >= 9;
  if (!has) state.SkipWithError("skipped: no fp8 matrix units");
  return has;
}

void dense_fp8(benchmark::State& state, Scales scales, int m, int n, int k, Cache cache, double heated) {
  if (!has_fp8(state) ||
      !has_room(&state, Inputs::bytes(Element::kFp8, m, n, k) + Fp8Product::bytes(n, m, k, scales)))
    return;
  // fp8 products want K-major operands: w is stored transposed.
  const Inputs in(Element::kFp8, m, n, k, cache);
  const Fp8Product product(handles().lt, n, m, k, true, scales);
  if (!product.known()) {
    state.SkipWithError(kNoKernel);
    return;
  }
  const auto call = [&](int turn) { product.run(in.w(turn), in.x(turn), in.y(turn), handles().stream); };
  call(0);
  if (!right({true, false, n, m, k, in.w(0), in.x(0), in.y(0), k, k, n}, Element::kFp8, handles().stream)) {
    state.SkipWithError("wrong result");
    return;
  }
  heat(heated);
  run_product(state, handles().stream, 1, heated > 0 ? Clocks::kSustained : Clocks::kBurst, call);
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
  const auto room = [](std::size_t rows_of, int columns) {
    return rows_of * static_cast<std::size_t>(columns) * 2;
  };
  if (!has_room(&state, room(padded, k) + room(padded, n) + room(static_cast<std::size_t>(groups) * k, n) +
                            (std::size_t{256} << 20)))
    return;
  if (backend == "grouped" && !kHasGrouped) {
    state.SkipWithError("skipped: built with a cuBLAS older than 12.5, which has no grouped call");
    return;
  }
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
  std::unique_ptr<CutlassGrouped> cutlass;
  const GroupedCall grouped(products);
  const Buffer pointers(grouped.pointer_bytes());
  require(
      cudaMemcpy(pointers.as<void>(), grouped.pointers(), grouped.pointer_bytes(), cudaMemcpyHostToDevice),
      "pointers");
  if (backend == "loop") {
    call = [&](int) {
      for (const Product& p : products) multiply(handles().blas, p);
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
  } else if (backend == kCutlass) {
    cutlass = cutlass_grouped(products, compute_capability());
    if (!cutlass) {
      state.SkipWithError("skipped: the suite has no CUTLASS kernel for this compute capability");
      return;
    }
    call = [&](int) { cutlass->run(handles().stream); };
  } else {
    call = [&](int) { grouped.run(handles().blas, pointers.as<void>()); };
  }
  call(0);
  for (const Product& p : products)
    if (!right(p, Element::kBf16, handles().stream)) {
      state.SkipWithError("wrong result");
      return;
    }
  run_product(state, handles().stream, backend == "loop" ? static_cast<int>(products.size()) : 1,
              Clocks::kBurst, call);
}

// One product an expert, as Transformer Engine runs grouped linear layers in fp8: forward with fast accumulation,
// gradients without. Every pass reads operands that are contiguous along its depth, of which frameworks keep copies,
// and rows padded to whole blocks.
void grouped_fp8(benchmark::State& state, Scales scales, Pass pass, bool skewed, int groups, int mean, int n,
                 int k) {
  if (!has_fp8(state)) return;
  constexpr int kPadded = 32;
  std::vector<Product> products;
  std::size_t in = 0, out = 0, kept = 0;
  for (const int rows : rows_per_expert(groups, mean, skewed)) {
    if (rows == 0) continue;
    const int m = (rows + kPadded - 1) / kPadded * kPadded;
    const Product p = product_of(pass, m, n, k, nullptr, nullptr, nullptr);
    products.push_back(
        {true, false, p.rows, p.columns, p.depth, nullptr, nullptr, nullptr, p.depth, p.depth, p.rows});
    in += (static_cast<std::size_t>(p.rows) + static_cast<std::size_t>(p.columns)) *
          static_cast<std::size_t>(p.depth);
    out += static_cast<std::size_t>(p.rows) * static_cast<std::size_t>(p.columns) * 2;
    kept += Fp8Product::bytes(p.rows, p.columns, p.depth, scales);
  }
  if (!has_room(&state, in + out + kept + (std::size_t{256} << 20))) return;
  const Buffer inputs = normal(Element::kFp8, in, 1), outputs(out);
  std::vector<std::unique_ptr<Fp8Product>> calls;
  std::size_t read = 0, written = 0;
  for (Product& p : products) {
    const auto operand = [&](int lines) {
      const void* at = inputs.as<char>() + read;
      read += static_cast<std::size_t>(lines) * static_cast<std::size_t>(p.depth);
      return at;
    };
    p.a = operand(p.rows);
    p.b = operand(p.columns);
    p.c = outputs.as<char>() + written;
    written += static_cast<std::size_t>(p.rows) * static_cast<std::size_t>(p.columns) * 2;
    calls.push_back(std::make_unique<Fp8Product>(handles().lt, p.rows, p.columns, p.depth,
                                                 pass == Pass::kForward, scales));
    if (!calls.back()->known()) {
      state.SkipWithError(kNoKernel);
      return;
    }
  }
  const auto call = [&](int) {
    for (std::size_t i = 0; i < calls.size(); ++i)
      calls[i]->run(products[i].a, products[i].b, products[i].c, handles().stream);
  };
  call(0);
  for (const Product& p : products)
    if (!right(p, Element::kFp8, handles().stream)) {
      state.SkipWithError("wrong result");
      return;
    }
  run_product(state, handles().stream, static_cast<int>(products.size()), Clocks::kBurst, call);
}

}  // namespace

void register_gemms(std::vector<Case>& cases) {
  struct Shape {
    int n, k;
  };
  constexpr Shape kShapes[] = {{1536, 2048},  {4096, 4096}, {14336, 4096},
                               {4096, 14336}, {2048, 7168}, {7168, 2048}};
  constexpr int kRows[] = {1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
  std::vector<const char*> types{"bf16", "fp8"};
  if (has_block_scales()) types.push_back("mxfp8");
  const auto scales_of = [](const std::string& type) {
    return type == "mxfp8" ? Scales::kBlocks : Scales::kTensor;
  };
  const auto add = [&](const Shape s, int m, const std::string& type, bool hot, Cache cache) {
    const std::string name = "gemm/m:" + std::to_string(m) + "/n:" + std::to_string(s.n) +
                             "/k:" + std::to_string(s.k) + "/dtype:" + type +
                             "/library:cublas/clocks:" + (hot ? "sustained" : "burst") +
                             (cache == Cache::kWarm ? "/cache:warm" : "");
    add_case(cases, name, hot ? 0.6 : 0.3,
             [m, s, type, hot, cache, scales = scales_of(type)](benchmark::State& state) {
               // The first of the hot ones heats the GPU, the others keep it hot.
               static bool is_hot = false;
               const double heated = !hot ? 0 : is_hot ? 0.5 : 2;
               is_hot = hot;
               if (type == "bf16")
                 dense_bf16(state, m, s.n, s.k, cache, heated);
               else
                 dense_fp8(state, scales, m, s.n, s.k, cache, heated);
             });
  };
  const bool brief = limits().brief;
  for (const Shape s : kShapes)
    for (const int m : kRows) {
      // Two of the shapes, every second number of rows.
      if (brief && ((s.n != 4096 && s.n != 7168) ||
                    (std::find(std::begin(kRows), std::end(kRows), m) - kRows) % 2 != 0))
        continue;
      for (const char* type : types) add(s, m, type, false, Cache::kCold);
    }
  for (const int m : {1, 16, 64, 256}) add(kShapes[0], m, "bf16", false, Cache::kWarm);
  constexpr Shape kExperts[] = {{28672, 4096}, {4096, 14336}, {4096, 7168}};
  const std::pair<const char*, Pass> passes[] = {
      {"fwd", Pass::kForward}, {"dgrad", Pass::kDgrad}, {"wgrad", Pass::kWgrad}};
  const auto add_grouped = [&](const std::string& type, const std::string& backend) {
    for (const auto& pass : passes)
      for (const bool skewed : {false, true})
        for (const Shape s : kExperts)
          for (const int m : {16, 256, 2048}) {
            if (brief &&
                (skewed || (type == "bf16" && backend != "grouped") || (type != "bf16" && m != 2048)))
              continue;
            const std::string name = "grouped_gemm/groups:8/m:" + std::to_string(m) +
                                     "/n:" + std::to_string(s.n) + "/k:" + std::to_string(s.k) +
                                     "/dtype:" + type + "/backend:" + backend + "/pass:" + pass.first +
                                     "/skew:" + (skewed ? "half" : "none");
            add_case(cases, name, 0.3,
                     [=, of = pass.second, scales = scales_of(type)](benchmark::State& state) {
                       if (type == "bf16")
                         grouped_bf16(state, backend, of, skewed, 8, m, s.n, s.k);
                       else
                         grouped_fp8(state, scales, of, skewed, 8, m, s.n, s.k);
                     });
          }
  };
  for (const char* backend : {"grouped", "loop", "batched"}) add_grouped("bf16", backend);
  if (kHasCutlass) add_grouped("bf16", kCutlass);
  // cuBLAS's grouped call has no fp8.
  for (const char* type : types)
    if (std::string(type) != "bf16") add_grouped(type, "loop");
  // Only long kernels throttle.
  for (const Shape s : kShapes)
    for (const int m : {4096, 8192, 16384})
      for (const char* type : types)
        if (!brief || (s.n == 4096 && m == 8192)) add(s, m, type, true, Cache::kCold);
}

}  // namespace moesim::bench
