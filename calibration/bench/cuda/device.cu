#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "device.h"
#include "ranks.h"

namespace moesim::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns a normal random number for a counter (splitmix64, Box-Muller).
__device__ float normal_of(unsigned long long counter) {
  unsigned long long z = counter * 0x9e3779b97f4a7c15ULL + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  const float u = static_cast<float>(static_cast<unsigned>(z >> 40) + 1) / 16777217.0f;
  const float v = static_cast<float>(static_cast<unsigned>(z & 0xffffffu)) / 16777216.0f;
  return sqrtf(-2 * logf(u)) * cosf(6.283185307f * v);
}

template <class T>
__global__ void fill_normal(T* data, std::size_t count, unsigned seed) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
    data[i] = T(normal_of((static_cast<unsigned long long>(seed) << 40) + i));
}

__global__ void hold_sm(long long nanoseconds) { spin(nanoseconds); }

// ---- the check of products ----

constexpr int kFold = 64;  // columns that are added up, with signs

__device__ float sign_of(int column) {
  const unsigned mixed = (static_cast<unsigned>(column) + 1u) * 2654435761u;
  return (mixed >> 16) & 1u ? 1.0f : -1.0f;
}

// folded[line + group * lines] = sum of +-matrix(line, column) over the columns of the group, and of their
// squares; an element stands at line * line_step + column * column_step.
template <class T>
__global__ void fold(const T* matrix, float* folded, float* squares, int lines, int columns,
                     long long line_step, long long column_step) {
  const int line = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) % lines,
            group = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / static_cast<unsigned>(lines));
  if (group * kFold >= columns) return;
  float sum = 0, square = 0;
  const int end = group * kFold + kFold < columns ? group * kFold + kFold : columns;
  for (int column = group * kFold; column < end; ++column) {
    const float value = static_cast<float>(matrix[line * line_step + column * column_step]);
    sum += sign_of(column) * value;
    square += value * value;
  }
  const std::size_t at =
      static_cast<std::size_t>(group) * static_cast<std::size_t>(lines) + static_cast<std::size_t>(line);
  folded[at] = sum;
  squares[at] = square;
}

template <class T>
__global__ void compare_folded(const T* a, const float* b, const float* b_squares, const float* c,
                               const float* c_squares, int* wrong, int rows, int groups, int depth,
                               long long row_step, long long depth_step, float rounding, float adding) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) % rows,
            group = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / static_cast<unsigned>(rows));
  if (group >= groups) return;
  const std::size_t at =
      static_cast<std::size_t>(group) * static_cast<std::size_t>(rows) + static_cast<std::size_t>(row);
  float sum = 0, terms = 0;  // and the squares of all terms that were added
  for (int k = 0; k < depth; ++k) {
    const std::size_t of_b =
        static_cast<std::size_t>(group) * static_cast<std::size_t>(depth) + static_cast<std::size_t>(k);
    const float value = static_cast<float>(a[row * row_step + k * depth_step]);
    sum += value * b[of_b];
    terms += value * value * b_squares[of_b];
  }
  const float off = fabsf(c[at] - sum);
  if (!(off <= rounding * sqrtf(c_squares[at]) + adding * sqrtf(terms) + 1e-5f * fabsf(sum) + 1e-3f))
    atomicAdd(wrong, 1);
}

template <class T>
bool right_of(const Product& p, float rounding, float adding, cudaStream_t stream) {
  constexpr unsigned kThreads = 256;
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  const int groups = (p.columns + kFold - 1) / kFold;
  const std::size_t of_b = size(p.depth) * size(groups), of_c = size(p.rows) * size(groups);
  const Buffer b(of_b * sizeof(float)), b_squares(of_b * sizeof(float)), c(of_c * sizeof(float)),
      c_squares(of_c * sizeof(float));
  Mismatches wrong;
  const auto blocks = [](std::size_t threads) { return (threads + kThreads - 1) / kThreads; };
  launch(fold<T>, blocks(of_b), kThreads, 0, stream, static_cast<const T*>(p.b), b.as<float>(),
         b_squares.as<float>(), p.depth, p.columns, p.turn_b ? static_cast<long long>(p.ldb) : 1,
         p.turn_b ? 1 : static_cast<long long>(p.ldb));
  launch(fold<__nv_bfloat16>, blocks(of_c), kThreads, 0, stream, static_cast<const __nv_bfloat16*>(p.c),
         c.as<float>(), c_squares.as<float>(), p.rows, p.columns, 1, static_cast<long long>(p.ldc));
  launch(compare_folded<T>, blocks(of_c), kThreads, 0, stream, static_cast<const T*>(p.a), b.as<float>(),
         b_squares.as<float>(), c.as<float>(), c_squares.as<float>(), wrong.counter(), p.rows, groups,
         p.depth, p.turn_a ? static_cast<long long>(p.lda) : 1, p.turn_a ? 1 : static_cast<long long>(p.lda),
         rounding, adding);
  return wrong.count(stream) == 0;
}

class Event {
 public:
  Event() { require(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }
  void record(cudaStream_t stream) const { require(cudaEventRecord(event_, stream), "cudaEventRecord"); }

 private:
  cudaEvent_t event_ = nullptr;
};

double seconds_between(const Event& begin, const Event& end) {
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

double quantile(const std::vector<double>& sorted, double at) {
  const double place = at * static_cast<double>(sorted.size() - 1);
  const std::size_t low = static_cast<std::size_t>(place);
  const double above = place - static_cast<double>(low);
  return sorted[low] + above * (sorted[std::min(low + 1, sorted.size() - 1)] - sorted[low]);
}

constexpr int kStop = -1;
std::vector<Followed>& followed() {
  static std::vector<Followed> cases;
  return cases;
}

}  // namespace

void require(ncclResult_t status, const char* what) {
  if (status != ncclSuccess) fail(what, ncclGetErrorString(status));
}

std::size_t bytes_of(Element type) { return type == Element::kFp8 ? 1 : type == Element::kBf16 ? 2 : 4; }

void fill(void* data, Element type, std::size_t count, unsigned seed) {
  const std::size_t blocks = std::min<std::size_t>((count + 255) / 256, 4096);
  switch (type) {
    case Element::kBf16:
      launch(fill_normal<__nv_bfloat16>, blocks, 256, 0, nullptr, static_cast<__nv_bfloat16*>(data), count,
             seed);
      break;
    case Element::kFp8:
      launch(fill_normal<__nv_fp8_e4m3>, blocks, 256, 0, nullptr, static_cast<__nv_fp8_e4m3*>(data), count,
             seed);
      break;
    case Element::kFloat:
      launch(fill_normal<float>, blocks, 256, 0, nullptr, static_cast<float*>(data), count, seed);
      break;
  }
}

Buffer normal(Element type, std::size_t count, unsigned seed) {
  Buffer buffer(count * bytes_of(type));
  fill(buffer.as<void>(), type, count, seed);
  require(cudaDeviceSynchronize(), "normal numbers");
  return buffer;
}

std::vector<float> values(const void* data, Element type, std::size_t first, std::size_t count) {
  const std::size_t size = bytes_of(type);
  std::vector<unsigned char> raw(count * size);
  require(cudaMemcpy(raw.data(), static_cast<const unsigned char*>(data) + first * size, raw.size(),
                     cudaMemcpyDeviceToHost),
          "values");
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    const void* at = raw.data() + i * size;
    if (type == Element::kBf16)
      result[i] = __bfloat162float(*static_cast<const __nv_bfloat16*>(at));
    else if (type == Element::kFp8)
      result[i] = static_cast<float>(*static_cast<const __nv_fp8_e4m3*>(at));
    else
      result[i] = *static_cast<const float*>(at);
  }
  return result;
}

namespace {

std::size_t copies_for(std::size_t bytes, Cache cache) {
  if (cache == Cache::kWarm) return 1;
  int device = 0, l2 = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device), "L2 size");
  return 2 * static_cast<std::size_t>(l2) / std::max<std::size_t>(bytes, 1) + 2;
}

}  // namespace

Rotation::Rotation(std::size_t bytes, Cache cache) {
  const std::size_t copies = copies_for(bytes, cache);
  for (std::size_t i = 0; i < copies; ++i) all_.emplace_back(bytes);
}

bool has_room(benchmark::State* state, std::size_t bytes) {
  std::size_t free = 0, total = 0;
  require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (bytes + (bytes >> 6) <= free) return true;
  char text[96];
  std::snprintf(text, sizeof text, "skipped: needs %.1f GB of the GPU's memory, %.1f GB are free",
                static_cast<double>(bytes) * 1e-9, static_cast<double>(free) * 1e-9);
  if (state) state->SkipWithError(text);
  return false;
}

void wait_for(cudaEvent_t event, const char* what) {
  constexpr double kPatience = 60;
  const auto start = Clock::now();
  for (cudaError_t status; (status = cudaEventQuery(event)) != cudaSuccess;) {
    if (status != cudaErrorNotReady) require(status, what);
    if (seconds_since(start) > kPatience)
      fail(what, ranks().count > 1 ? "did not end within a minute: another process is gone or hangs"
                                   : "did not end within a minute");
  }
}

void hold(cudaStream_t stream, double seconds) {
  launch(hold_sm, 1, 1, 0, stream, static_cast<long long>(seconds * 1e9));
}

namespace {

// Waits until the SMs run as fast as they were seen to, for at most `patience` seconds, which it lowers. One
// thread runs meanwhile, since an idle GPU lowers its clocks.
void cool_down(cudaStream_t stream, double& patience) {
  constexpr double kBack = 0.99, kPause = 5e-3;
  static double most = 0;
  for (;;) {
    const double now = condition().sm_mhz;
    most = std::max(most, now);
    if (now >= kBack * most || patience <= 0) return;
    hold(stream, kPause);
    require(cudaStreamSynchronize(stream), "cooling down");
    patience -= kPause;
  }
}

}  // namespace

Timing timed(const TimedCase& one) {
  constexpr int kRepeats = 5, kMostQueued = 128, kRetries = 5;
  constexpr double kMostCooling = 1;  // seconds a case
  const Event begin, end;
  int turn = 0;
  const auto agree = [&](double seconds) { return one.together ? slowest(seconds) : seconds; };
  // Seconds of so many calls on the GPU, and of the host to launch them.
  const auto run = [&](int calls, double held) {
    if (one.together) all_agree(true);
    hold(one.stream, held);
    // The first call brings the processes' streams together and is not counted.
    if (one.together) one.work(turn++);
    begin.record(one.stream);
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) one.work(turn++);
    const double launching = seconds_since(start);
    end.record(one.stream);
    wait_for(end.get(), "a timed case");
    return std::pair(agree(seconds_between(begin, end)), agree(launching));
  };
  constexpr int kFirst = 3;
  run(kFirst, 0);  // warm-up
  const auto [first, first_launching] = run(kFirst, 2e-4);
  const double call = std::max(first / kFirst, 1e-7), launching = first_launching / kFirst;
  const double budget = limits().budget;
  // Short calls end sooner than the budget, but a longer one asks for more repeats.
  const int most_repeats = std::clamp(static_cast<int>(budget * 110), kRepeats, 101);
  Timing timing;
  timing.calls = std::clamp(static_cast<int>(budget / 8 / call), 1, std::max(1, kMostQueued / one.launches));
  timing.repeats = std::clamp(static_cast<int>(budget / (timing.calls * call)), kRepeats, most_repeats) | 1;
  double held = 1.5 * launching * timing.calls + 2e-5;
  std::vector<double> all;
  double patience = kMostCooling;
  for (int retries = 0; static_cast<int>(all.size()) < timing.repeats;) {
    if (one.burst) cool_down(one.stream, patience);
    const auto [seconds, launched] = run(timing.calls, held);
    if (launched > held && retries++ < kRetries) {
      held = 2 * launched;
      continue;
    }
    timing.launch_bound = timing.launch_bound || launched > held;
    all.push_back(seconds / timing.calls);
  }
  std::sort(all.begin(), all.end());
  timing.median = quantile(all, 0.5);
  timing.spread = (quantile(all, 0.75) - quantile(all, 0.25)) / timing.median;
  return timing;
}

void report(benchmark::State* state, const Timing& timing) {
  if (!state) return;
  const Condition now = condition();
  while (state->KeepRunning()) state->SetIterationTime(timing.median);
  state->counters["repeats"] = timing.repeats;
  state->counters["calls"] = timing.calls;
  state->counters["spread"] = timing.spread;
  if (timing.launch_bound) state->counters["launch_bound"] = 1;
  if (now.sm_mhz <= 0) return;
  state->counters["sm_MHz"] = now.sm_mhz;
  state->counters["most_sm_MHz"] = now.most_sm_mhz;
  state->counters["memory_MHz"] = now.memory_mhz;
  state->counters["power_W"] = now.watts;
  state->counters["temperature_C"] = now.celsius;
}

void run_timed(benchmark::State& state, cudaStream_t stream, int launches,
               const std::function<void(int)>& work) {
  report(&state, timed({stream, launches, false, false, work}));
}

void run_product(benchmark::State& state, cudaStream_t stream, int launches, Clocks clocks,
                 const std::function<void(int)>& work) {
  report(&state, timed({stream, launches, false, clocks == Clocks::kBurst, work}));
}

Mismatches::Mismatches() : counter_(sizeof(int)) {
  require(cudaMemset(counter_.as<void>(), 0, sizeof(int)), "cudaMemset");
  // Streams that do not wait for the default one would count before the zero is there.
  require(cudaDeviceSynchronize(), "cudaMemset");
}

int Mismatches::count(cudaStream_t stream) {
  int wrong = 0;
  require(cudaStreamSynchronize(stream), "a check");
  require(cudaMemcpy(&wrong, counter_.as<void>(), sizeof wrong, cudaMemcpyDeviceToHost), "a check");
  return wrong;
}

bool right(const Product& product, Element in, cudaStream_t stream) {
  // Six standard deviations of 64 roundings to bf16, whose numbers from 1 to 2 are 1/128 apart. Accumulators of fp8 units
  // keep about 14 bits of the largest partial sum, which says nothing of a sum that is nearly zero.
  constexpr float kRounding = 6 * 0.577f / 256, kFp8 = 0.04f;
  return in == Element::kFp8 ? right_of<__nv_fp8_e4m3>(product, kRounding, kFp8, stream)
                             : right_of<__nv_bfloat16>(product, kRounding, 0, stream);
}

void heat(double seconds) {
  if (seconds <= 0) return;
  constexpr int kSize = 4096;
  static const Buffer a = normal(Element::kBf16, kSize * kSize, 1),
                      b = normal(Element::kBf16, kSize * kSize, 2);
  static const Buffer c(a.bytes());
  cublasHandle_t handle;
  require(cublasCreate(&handle), "cublasCreate");
  const float one = 1, zero = 0;
  const auto start = Clock::now();
  while (seconds_since(start) < seconds) {
    for (int i = 0; i < 20; ++i)
      require(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, a.as<void>(),
                           CUDA_R_16BF, kSize, b.as<void>(), CUDA_R_16BF, kSize, &zero, c.as<void>(),
                           CUDA_R_16BF, kSize, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "heating product");
    require(cudaDeviceSynchronize(), "heating");
  }
  cublasDestroy(handle);
}

Limits& limits() {
  static Limits one;
  return one;
}

void add_case(std::vector<Case>& cases, const std::string& name, double seconds,
              const std::function<void(benchmark::State&)>& run) {
  static const auto start = Clock::now();
  cases.push_back({name, seconds});
  // A case times itself: one iteration of the library is one case.
  benchmark::RegisterBenchmark(name.c_str(),
                               [run](benchmark::State& state) {
                                 if (limits().all > 0 && seconds_since(start) > limits().all)
                                   state.SkipWithError("skipped: the time limit is over");
                                 else
                                   run(state);
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(1);
}

void add_followed_case(std::vector<Case>& cases, const std::string& name, double seconds,
                       const Followed& run) {
  const int which = static_cast<int>(followed().size());
  followed().push_back(run);
  add_case(cases, name, seconds, [run, which](benchmark::State& state) {
    int called = which;
    broadcast(&called, sizeof called);
    run(&state);
  });
}

void follow() {
  for (;;) {
    int which = kStop;
    broadcast(&which, sizeof which);
    if (which == kStop) return;
    followed()[static_cast<std::size_t>(which)](nullptr);
  }
}

void stop_followers() {
  int stop = kStop;
  broadcast(&stop, sizeof stop);
}

}  // namespace moesim::bench
