// Costs of launches and waits, and the mutual slowdown of products and copies.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "device.h"
#include "products.h"

namespace moesim::bench {
namespace {

__global__ void nothing(int) {}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Stream {
  cudaStream_t get = nullptr;
  Stream() { require(cudaStreamCreateWithFlags(&get, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(get); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

struct Pinned {
  int* value = nullptr;
  Pinned() { require(cudaMallocHost(reinterpret_cast<void**>(&value), sizeof(int)), "cudaMallocHost"); }
  ~Pinned() { cudaFreeHost(value); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
};

void launch_nothing(cudaStream_t stream) { launch(nothing, 1, 1, 0, stream, 0); }

// The median of what `once` measures, and its spread.
Timing repeated(int repeats, const std::function<double()>& once) {
  once();  // warm-up
  std::vector<double> all;
  for (int i = 0; i < repeats; ++i) all.push_back(once());
  std::sort(all.begin(), all.end());
  const std::size_t n = all.size();
  return {all[n / 2], (all[3 * n / 4] - all[n / 4]) / all[n / 2], repeats, 1, false};
}

// Host time of one launch while the queue is not full.
void host_launch(benchmark::State& state) {
  constexpr int kLaunches = 200;
  const Stream stream;
  report(&state, repeated(21, [&] {
    require(cudaStreamSynchronize(stream.get), "sync");
    const auto start = Clock::now();
    for (int i = 0; i < kLaunches; ++i) launch_nothing(stream.get);
    return seconds_since(start) / kLaunches;
  }));
}

// GPU idle time while the host waits for a few bytes: from the end of a kernel until the host's next call
// arrives, without the host's time for that call. The kernel is long enough that the host waits before it
// ends; it does not count.
void host_sync(benchmark::State& state) {
  constexpr double kKernel = 2e-4;
  const Stream stream;
  const Buffer value(4);
  const Pinned pinned;
  cudaEvent_t ended, next;
  require(cudaEventCreate(&ended), "cudaEventCreate");
  require(cudaEventCreate(&next), "cudaEventCreate");
  report(&state, repeated(51, [&] {
    hold(stream.get, kKernel);
    require(cudaEventRecord(ended, stream.get), "cudaEventRecord");
    require(cudaMemcpyAsync(pinned.value, value.as<void>(), sizeof(int), cudaMemcpyDeviceToHost, stream.get),
            "copy");
    require(cudaStreamSynchronize(stream.get), "sync");
    const auto start = Clock::now();
    require(cudaEventRecord(next, stream.get), "cudaEventRecord");
    const double call = seconds_since(start);
    wait_for(next, "host sync");
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, ended, next), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3 - call;
  }));
  cudaEventDestroy(next);
  cudaEventDestroy(ended);
}

void smallest_kernel(benchmark::State& state) {
  const Stream stream;
  run_timed(state, stream.get, 1, [&](int) { launch_nothing(stream.get); });
}

// A copy of a few bytes to the host, with nothing to wait for.
void d2h_copy(benchmark::State& state) {
  const Stream stream;
  const Buffer value(4);
  const Pinned pinned;
  report(&state, repeated(101, [&] {
    require(cudaStreamSynchronize(stream.get), "sync");
    const auto start = Clock::now();
    require(cudaMemcpyAsync(pinned.value, value.as<void>(), sizeof(int), cudaMemcpyDeviceToHost, stream.get),
            "copy");
    require(cudaStreamSynchronize(stream.get), "sync");
    return seconds_since(start);
  }));
}

// NCCL's overhead: one rank, from launch to end.
void nccl_single_rank(benchmark::State& state) {
  ncclUniqueId id;
  ncclComm_t comm;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  require(ncclCommInitRank(&comm, 1, id, 0), "ncclCommInitRank");
  const Stream stream;
  const Buffer in(4096), out(4096);
  run_timed(state, stream.get, 1, [&](int) {
    require(ncclAllReduce(in.as<void>(), out.as<void>(), 1024, ncclFloat, ncclSum, comm, stream.get),
            "ncclAllReduce");
  });
  ncclCommDestroy(comm);
}

// Holds an SM for a while: a block takes all of its shared memory.
__global__ void hold_sms(long long nanoseconds, int) { spin(nanoseconds); }

// Copies as a collective does, by few blocks that hold their SMs: a copy by all SMs would take the memory's whole rate,
// which no link reaches.
constexpr int kCarriers = 20;
__global__ void carry(const uint4* from, uint4* to, std::size_t words) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < words;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
    to[i] = from[i];
}

// Returns the shared memory that a block of this kernel may take, all of it.
std::size_t all_shared(const void* kernel) {
  int shared = 0;
  require(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "shared memory");
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "shared memory");
  return static_cast<std::size_t>(shared);
}

enum class Timed { kProduct, kCopy };
enum class Beside { kNothing, kOther, kSms };

// Products of 8192, which take many waves of blocks, and copies of 64 MiB on two streams. What is beside the timed ones lasts twice as long as
// these, and no longer: a queue that fills up would make the host wait.
class Overlap {
 public:
  Overlap() {
    require(cublasCreate(&blas_), "cublasCreate");
    require(cublasSetStream(blas_, compute_.get), "cublasSetStream");
  }
  ~Overlap() { cublasDestroy(blas_); }
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

  void measure(benchmark::State& state, Timed what, Beside beside, int sms) {
    const double product = alone(Timed::kProduct), copy = alone(Timed::kCopy);
    const double one = what == Timed::kProduct ? product : copy,
                 other = what == Timed::kProduct ? copy : product;
    const int calls = std::max(2, static_cast<int>(std::lround(4e-3 / one)));
    const int others = static_cast<int>(std::ceil(2.5 * one * calls / other)) + 1;
    if (others > kMostBeside || calls > kMostBeside) {
      state.SkipWithError("skipped: what runs beside does not fit the launch queue");
      return;
    }
    report(&state, repeated(15, [&] {
      if (beside == Beside::kOther)
        for (int i = 0; i < others; ++i) queue(what == Timed::kProduct ? Timed::kCopy : Timed::kProduct);
      if (beside == Beside::kSms) hold_some(sms, 3 * one * calls + 1e-3);
      const double seconds = run(what, calls);
      require(cudaDeviceSynchronize(), "sync");
      return seconds;
    }));
  }

 private:
  static constexpr int kSize = 8192, kMostBeside = 400;

  void queue(Timed what) {
    if (what == Timed::kCopy)
      launch(carry, kCarriers, 512, shared_, copies_.get, from_.as<uint4>(), to_.as<uint4>(),
             from_.bytes() / sizeof(uint4));
    else
      multiply(blas_, {false, false, kSize, kSize, kSize, a_.as<void>(), b_.as<void>(), c_.as<void>(), kSize,
                       kSize, kSize});
  }
  // Seconds of one of so many.
  double run(Timed what, int calls) {
    const cudaStream_t stream = what == Timed::kCopy ? copies_.get : compute_.get;
    cudaEvent_t begin, end;
    require(cudaEventCreate(&begin), "cudaEventCreate");
    require(cudaEventCreate(&end), "cudaEventCreate");
    queue(what);  // the first waits for the host's launch
    require(cudaEventRecord(begin, stream), "cudaEventRecord");
    for (int i = 0; i < calls; ++i) queue(what);
    require(cudaEventRecord(end, stream), "cudaEventRecord");
    wait_for(end, "overlap");
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return static_cast<double>(milliseconds) * 1e-3 / calls;
  }
  double alone(Timed what) {
    run(what, 3);
    return run(what, 5);
  }
  void hold_some(int sms, double seconds) {
    launch(hold_sms, static_cast<std::size_t>(sms), 1, all_shared(reinterpret_cast<const void*>(hold_sms)),
           copies_.get, static_cast<long long>(seconds * 1e9), 0);
  }

  const std::size_t shared_ = all_shared(reinterpret_cast<const void*>(carry));
  Stream compute_, copies_;
  cublasHandle_t blas_ = nullptr;
  const std::size_t count_ = static_cast<std::size_t>(kSize) * kSize;
  const Buffer a_ = normal(Element::kBf16, count_, 1), b_ = normal(Element::kBf16, count_, 2), c_{a_.bytes()},
               from_{64u << 20}, to_{64u << 20};
};

void overlap(benchmark::State& state, Timed what, Beside beside, int sms = 0) {
  if (has_room(&state, std::size_t{1} << 30)) Overlap().measure(state, what, beside, sms);
}

}  // namespace

void register_latencies(std::vector<Case>& cases) {
  add_case(cases, "latency/launch", 0.2, host_launch);
  add_case(cases, "latency/host_sync", 0.2, host_sync);
  add_case(cases, "latency/smallest_kernel", 0.3, smallest_kernel);
  add_case(cases, "latency/d2h_copy", 0.2, d2h_copy);
  add_case(cases, "latency/nccl_single_rank", 0.6, nccl_single_rank);
  const auto add = [&](const std::string& name, Timed what, Beside beside, int sms) {
    add_case(cases, "overlap/" + name, 0.4,
             [=](benchmark::State& state) { overlap(state, what, beside, sms); });
  };
  add("product_alone", Timed::kProduct, Beside::kNothing, 0);
  add("product_beside_copies", Timed::kProduct, Beside::kOther, 0);
  add("copies_alone", Timed::kCopy, Beside::kNothing, 0);
  add("copies_beside_products", Timed::kCopy, Beside::kOther, 0);
  for (const int sms : {8, 20, 32, 64})
    add("product_beside_kernel/sms:" + std::to_string(sms), Timed::kProduct, Beside::kSms, sms);
}

}  // namespace moesim::bench
