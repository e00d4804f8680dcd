// A GPU that does not exist: the calls of the CUDA runtime, cuBLAS(Lt), NCCL and NVML that calibration/bench
// makes, with a clock that only these calls move. Streams are in order, the launch queue is finite, the host
// pays for what it calls, the L2 keeps what fits, the clock falls under load. The laws are those of laws.h.
//
// VIRTUAL_GPU="key=value,..." says what the machine is: gpus, name, memory (GB), effects (1: kernels,
// products and collectives really compute; 0: only their time passes), and which fault is planted:
//   wrong=gemm|collective|kernel  one element of a result is wrong
//   dead=R, hang=R      rank R exits, or stops, at its twentieth collective
//   nccl=1              the twentieth collective returns ncclSystemError
//   throttled=SHARE     the clock stays at that share of the most
//   peers=0             GPUs cannot reach each other's memory
//   foreign=PID         another process computes on the GPU
// VIRTUAL_GPU_CLOCK=FILE takes the virtual seconds of every process, a line each, when it ends.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <nccl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "laws.h"

using namespace moesim::virtual_gpu;

// ---- the machine ----

namespace {

std::string setting(const char* key, const char* otherwise) {
  const char* all = std::getenv("VIRTUAL_GPU");
  const std::string text = std::string(",") + (all ? all : "") + ",", want = std::string(",") + key + "=";
  const std::size_t at = text.find(want);
  if (at == std::string::npos) return otherwise;
  const std::size_t from = at + want.size();
  return text.substr(from, text.find(',', from) - from);
}
std::string name_of_gpu() { return setting("name", "NVIDIA H100 80GB HBM3"); }
// The major number of the compute capability.
int generation() { return name_of_gpu().find("B200") != std::string::npos ? 10 : 9; }
double number(const char* key, double otherwise) {
  const std::string text = setting(key, "");
  return text.empty() ? otherwise : std::strtod(text.c_str(), nullptr);
}

const bool effects = number("effects", 0) != 0;
const double capacity = number("memory", kMemory / 1e9) * 1e9;
const std::string wrong = setting("wrong", "");

double host = 1;  // virtual seconds of this process

struct LastWord {
  ~LastWord() {
    const char* file = std::getenv("VIRTUAL_GPU_CLOCK");
    if (std::FILE* to = file ? std::fopen(file, "a") : nullptr) {
      std::fprintf(to, "%.3f\n", host);
      std::fclose(to);
    }
  }
} last_word;

// ---- the clock of the SMs: half a second of products heats the chip, then it runs slower ----

double heat = 0, heated_at = 0;
void load(double now, double seconds) {
  constexpr double kTau = 0.7;
  heat *= std::exp(-std::max(0.0, now - heated_at) / kTau);
  heat += (1 - heat) * (1 - std::exp(-seconds / kTau));
  heated_at = now + seconds;
}
double clock_share(double now) {
  const double throttled = number("throttled", 1);
  const double x = heat * std::exp(-std::max(0.0, now - heated_at) / 0.7);
  return throttled * (1 - (1 - kHotClock) * std::clamp((x - 0.5) / 0.3, 0.0, 1.0));
}

// ---- memory ----

std::map<const char*, std::size_t> blocks;  // of this process's GPU
double used = 0;

// From an address to the end of its allocation.
std::size_t bytes_behind(const void* memory) {
  const char* at = static_cast<const char*>(memory);
  auto found = blocks.upper_bound(at);
  if (found == blocks.begin()) return 0;
  --found;
  const std::size_t offset = static_cast<std::size_t>(at - found->first);
  return offset < found->second ? found->second - offset : 0;
}

// In its small form results are computed, so inputs that rotate through the L2 are few.
const double l2_bytes = effects ? 1e6 : kL2;

// The contents of the L2 by pieces of touched memory, least recently used first.
class Cache {
 public:
  struct Traffic {
    double misses = 0, hits = 0;
    void operator+=(const Traffic& other) { misses += other.misses, hits += other.hits; }
  };
  Traffic touch(const void* memory, std::size_t size) {
    const double bytes = static_cast<double>(size);
    Traffic traffic;
    const auto found = where_.find(memory);
    if (found != where_.end()) {
      traffic.hits = std::min(bytes, found->second->second);
      held_ -= found->second->second;
      pieces_.erase(found->second);
    }
    traffic.misses = bytes - traffic.hits;
    const double stays = std::min(bytes, l2_bytes);
    where_[memory] = pieces_.insert(pieces_.end(), {memory, stays});
    held_ += stays;
    while (held_ > l2_bytes) {
      const double gone = std::min(pieces_.front().second, held_ - l2_bytes);
      held_ -= gone;
      if ((pieces_.front().second -= gone) > 0) break;
      where_.erase(pieces_.front().first);
      pieces_.pop_front();
    }
    return traffic;
  }

 private:
  std::list<std::pair<const void*, double>> pieces_;
  std::unordered_map<const void*, std::list<std::pair<const void*, double>>::iterator> where_;
  double held_ = 0;
};
Cache l2;

}  // namespace

// ---- streams ----

struct VirtualStream {
  double ready = 0;           // when all that was queued is done
  std::deque<double> queued;  // ends of what is queued
  enum class Kind { kNone, kCompute, kCopy } last_kind = Kind::kNone;
  std::deque<std::pair<double, double>> busy;  // of the last kind
};
struct VirtualEvent {
  double at = 0;
};

namespace {

using Kind = VirtualStream::Kind;
VirtualStream null_stream;
std::vector<VirtualStream*> streams = {&null_stream};
VirtualStream& of(cudaStream_t stream) { return stream ? *stream : null_stream; }

// Seconds of work that is slowed while another stream does the other kind of work.
double slowed(const VirtualStream& own, double start, double seconds, Kind kind) {
  const double factor = kind == Kind::kCompute ? kComputeUnderCopies
                        : kind == Kind::kCopy  ? kCopiesUnderCompute
                                               : 1;
  if (factor == 1) return seconds;
  double now = start, left = seconds;
  for (const VirtualStream* other : streams) {
    if (other == &own || other->last_kind == Kind::kNone || other->last_kind == kind) continue;
    for (const auto& [from, to] : other->busy) {
      if (to <= now) continue;
      if (from > now) {
        const double free = std::min(left, from - now);
        now += free, left -= free;
      }
      if (left <= 0) break;
      const double beside = std::min(left * factor, to - now);
      now += beside, left -= beside / factor;
      if (left <= 0) break;
    }
  }
  return now + left - start;
}

// Queues work; the host waits where the queue is full.
void queue(VirtualStream& stream, double call, double seconds, Kind kind = Kind::kNone) {
  constexpr std::size_t kDepth = 1024;
  host += call;
  while (!stream.queued.empty() && stream.queued.front() <= host) stream.queued.pop_front();
  if (stream.queued.size() >= kDepth) {
    host = std::max(host, stream.queued.front());
    stream.queued.pop_front();
  }
  const double start = std::max(stream.ready, host + kSubmit);
  const double takes = slowed(stream, start, seconds, kind);
  if (stream.last_kind != kind) stream.busy.clear();
  stream.last_kind = kind;
  while (!stream.busy.empty() && stream.busy.front().second < host - 1) stream.busy.pop_front();
  stream.busy.emplace_back(start, start + takes);
  if (kind == Kind::kCompute) load(start, takes);
  stream.ready = start + takes;
  stream.queued.push_back(stream.ready);
}

void wait_for(double time) {
  if (time > host + 1e6) {  // never: a collective whose other ranks do not come
    std::fprintf(stderr, "virtual GPU: waits for what never ends\n");
    pause();
  }
  host = std::max(host, time) + kWake;
}

// ---- the threads of a block: one after another on one stack, until one waits for the others; the next ones
// then go on with a stack of their own ----

struct Fiber {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(64 << 10);
  bool waits = false;
  unsigned thread = 0;
};
std::vector<std::unique_ptr<Fiber>> fibers;
Fiber* running = nullptr;
ucontext_t scheduler;
const std::function<void()>* running_body = nullptr;
unsigned next_thread = 0;
std::vector<std::vector<char>> offered;  // by thread

void fiber_main() {
  Fiber& me = *running;
  while (next_thread < blockDim.x) {
    me.thread = next_thread++;
    threadIdx = dim3(me.thread, 0, 0);
    (*running_body)();
  }
  me.waits = false;
}

void resume(Fiber& fiber) {
  running = &fiber;
  threadIdx = dim3(fiber.thread, 0, 0);
  fiber.waits = false;
  swapcontext(&scheduler, &fiber.context);
}

void run_block(const std::function<void()>& body) {
  running_body = &body;
  next_thread = 0;
  std::size_t count = 0;
  while (next_thread < blockDim.x) {
    if (fibers.size() <= count) fibers.push_back(std::make_unique<Fiber>());
    Fiber& fiber = *fibers[count++];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, fiber_main, 0);
    resume(fiber);
  }
  for (bool more = true; more;) {
    more = false;
    for (std::size_t i = 0; i < count; ++i)
      if (fibers[i]->waits) {
        resume(*fibers[i]);
        more = true;
      }
  }
}

}  // namespace

dim3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads() {
  Fiber& me = *running;
  me.waits = true;
  swapcontext(&me.context, &scheduler);
}

namespace moesim::virtual_gpu {

void exchange(void* value, std::size_t bytes, unsigned from) {
  const unsigned me = running->thread;
  if (offered.size() <= std::max(me, from)) offered.resize(std::max(me, from) + 1u);
  const char* raw = static_cast<const char*>(value);
  offered[me].assign(raw, raw + bytes);
  __syncthreads();
  std::memcpy(value, offered[from].data(), bytes);
  __syncthreads();
}

cudaError_t run_kernel(const cudaLaunchConfig_t& config, const std::vector<Argument>& memory,
                       const std::function<void()>& body) {
  Cache::Traffic traffic;
  for (const Argument& one : memory) {
    // Up to the end of the allocation, or to the next argument in it.
    std::size_t bytes = bytes_behind(one.memory);
    for (const Argument& other : memory)
      if (other.memory > one.memory)
        bytes = std::min(bytes, static_cast<std::size_t>(static_cast<const char*>(other.memory) -
                                                         static_cast<const char*>(one.memory)));
    for (int i = 0; i < one.times; ++i) traffic += l2.touch(one.memory, bytes);
  }
  queue(of(config.stream), kLaunch, memory_seconds(traffic.misses, traffic.hits));
  if (!effects) return cudaSuccess;
  blockDim = config.blockDim, gridDim = config.gridDim;
  for (unsigned block = 0; block < gridDim.x; ++block) {
    blockIdx = dim3(block, 0, 0);
    run_block(body);
  }
  static int kernels = 0;
  if (wrong == "kernel" && !memory.empty() && memory.back().written && memory.size() == 3 && ++kernels == 1) {
    // In the middle, where a look at the ends does not find it.
    const std::size_t bytes = bytes_behind(memory.back().memory);
    const_cast<char*>(static_cast<const char*>(memory.back().memory))[bytes / 2 / 16 * 16 + 1] ^= 0x55;
  }
  return cudaSuccess;
}

cudaError_t hold_stream(const cudaLaunchConfig_t& config, long long nanoseconds) {
  queue(of(config.stream), kLaunch, static_cast<double>(nanoseconds) * 1e-9);
  return cudaSuccess;
}

}  // namespace moesim::virtual_gpu

// Every reader of the clock gets the virtual time.
std::chrono::steady_clock::time_point std::chrono::_V2::steady_clock::now() noexcept {
  host += 2e-8;
  return time_point(duration(static_cast<rep>(host * 1e9)));
}

// ---- the runtime ----

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNotReady:
      return "device not ready";
    default:
      return "invalid argument";
  }
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  host += 1e-4;
  if (used + static_cast<double>(bytes) > capacity) return cudaErrorMemoryAllocation;
  void* got =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return cudaErrorMemoryAllocation;
  *memory = got;
  blocks[static_cast<const char*>(got)] = bytes;
  used += static_cast<double>(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const auto found = blocks.find(static_cast<const char*>(memory));
  if (found == blocks.end()) return memory ? cudaErrorInvalidValue : cudaSuccess;
  cudaDeviceSynchronize();
  used -= static_cast<double>(found->second);
  munmap(memory, found->second);
  blocks.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  *memory = std::calloc(1, bytes);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = static_cast<std::size_t>(capacity - used);
  *total = static_cast<std::size_t>(capacity);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (kind == cudaMemcpyDeviceToDevice) {
    Cache::Traffic traffic = l2.touch(from, bytes);
    traffic += l2.touch(to, bytes);
    queue(of(stream), kLaunch, memory_seconds(traffic.misses, traffic.hits), Kind::kCopy);
    if (effects) std::memmove(to, from, bytes);
    return cudaSuccess;
  }
  queue(of(stream), kCopyCall, kCopy + static_cast<double>(bytes) / kLink);
  // Small ones carry counts and maps, which the suite reads in any case.
  if (effects || bytes <= (1u << 20)) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  wait_for(null_stream.ready);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  const Cache::Traffic traffic = l2.touch(memory, bytes);
  queue(of(stream), kLaunch, memory_seconds(traffic.misses, traffic.hits));
  if (effects || (value == 0 && bytes <= (1u << 20))) std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  cudaMemsetAsync(memory, value, bytes, nullptr);
  wait_for(null_stream.ready);
  return cudaSuccess;
}

namespace {

// CUDA_VISIBLE_DEVICES as numbers; names of GPUs are "GPU-0000000N".
std::vector<int> visible() {
  const int gpus = static_cast<int>(number("gpus", 1));
  std::vector<int> all;
  const char* said = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!said) {
    for (int i = 0; i < gpus; ++i) all.push_back(i);
    return all;
  }
  std::string text = said;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::string one = text.substr(at, end - at);
    if (one.rfind("GPU-", 0) == 0) one = one.substr(4);
    const int gpu = std::atoi(one.c_str());
    if (one.empty() || gpu >= gpus) break;
    all.push_back(gpu);
    at = end + 1;
  }
  return all;
}
int current = 0;

void bus_id(int physical, char* text, int length) {
  std::snprintf(text, static_cast<std::size_t>(length), "00000000:%02X:00.0", 0x10 + physical);
}

}  // namespace

cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= static_cast<int>(visible().size())) return cudaErrorInvalidDevice;
  current = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(visible().size());
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "%s", name_of_gpu().c_str());
  properties->major = generation();
  properties->multiProcessorCount = 132;
  properties->l2CacheSize = static_cast<int>(kL2);
  properties->totalGlobalMem = static_cast<std::size_t>(capacity);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 132;
      break;
    case cudaDevAttrL2CacheSize:
      *value = static_cast<int>(l2_bytes);
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = generation();
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 << 10;
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  bus_id(visible().at(static_cast<std::size_t>(device)), text, length);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = number("peers", 1) != 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  double last = 0;
  for (const VirtualStream* stream : streams) last = std::max(last, stream->ready);
  wait_for(last);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new VirtualStream;
  streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  wait_for(of(stream).ready);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new VirtualEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  host += kRecord;
  event->at = std::max(of(stream).ready, host + kSubmit);
  of(stream).ready = event->at;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  wait_for(event->at);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  host += 1e-6;
  if (event->at > host + 1e6) host += 0.05;  // the patience of a host is not measured
  return event->at <= host ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (end->at > host) return cudaErrorNotReady;
  *milliseconds = static_cast<float>((end->at - begin->at) * 1e3);
  return cudaSuccess;
}

// ---- cuBLAS ----

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

struct Gemm {
  bool turn_a, turn_b;
  int m, n, k;
  const void *a, *b;
  void* c;
  cudaDataType_t in, out;
  int lda, ldb, ldc;
  float beta = 0;
};

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
  if (wrong == "gemm" && !spoiled && p.out == CUDA_R_16BF) {
    spoiled = true;
    static_cast<__nv_bfloat16*>(p.c)[size(p.n / 2) * size(p.ldc) + size(p.m / 3)] = __nv_bfloat16(1000.0f);
  }
}

void products(cudaStream_t stream, const std::vector<Gemm>& all, Units units, double call) {
  double flops = 0;
  Cache::Traffic traffic;
  for (const Gemm& p : all) {
    const auto bytes = [](int rows, int columns, cudaDataType_t type) {
      return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * size_of(type);
    };
    flops += 2.0 * p.m * p.n * p.k;
    traffic += l2.touch(p.a, bytes(p.m, p.k, p.in));
    traffic += l2.touch(p.b, bytes(p.k, p.n, p.in));
    traffic += l2.touch(p.c, bytes(p.m, p.n, p.out));
  }
  VirtualStream& on = of(stream);
  queue(on, call,
        product_seconds(flops, units, traffic.misses, traffic.hits, clock_share(std::max(host, on.ready))),
        Kind::kCompute);
  if (effects)
    for (const Gemm& p : all) compute(p);
}

}  // namespace

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
cublasStatus_t cublasGetProperty(libraryPropertyType part, int* number_of_part) {
  *number_of_part = part == MAJOR_VERSION ? 13 : 0;
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
  if (effects && descriptor->blocks() && (*descriptor->scale_a != kOne || *descriptor->scale_b != kOne))
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

// ---- NCCL: ranks are processes of this machine that meet in shared memory ----

namespace {

constexpr int kMostRanks = 64;
constexpr std::size_t kRoom = 64u << 20;  // bytes of a rank's data

struct Shared {
  pthread_mutex_t mutex;
  pthread_cond_t all_here;
  int arrived, generation, dead;
  // For this call and the next one, which a rank may reach while others still read:
  double ready[2][kMostRanks];                           // when a rank's stream reaches the call
  double host[2][kMostRanks];                            // and its host
  double inside[2][kMostRanks], between[2][kMostRanks];  // bytes a rank sends or receives
  int node[kMostRanks];
  std::size_t sends[kMostRanks][kMostRanks];  // bytes from, to
};

}  // namespace

struct VirtualComm {
  std::string name;
  int ranks = 1, rank = 0;
  int turn = 0;  // which half of the shared numbers is this call's
  Shared* shared = nullptr;
  char* data = nullptr;
  char* room(int of_rank) const { return data + static_cast<std::size_t>(of_rank) * kRoom; }
  int nodes() const {
    std::map<int, int> all;
    for (int i = 0; i < ranks; ++i) all[shared->node[i]]++;
    return static_cast<int>(all.size());
  }
  // False where a rank does not come within some seconds.
  bool meet() const {
    if (ranks == 1) return true;
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += static_cast<time_t>(number("patience", 20));
    pthread_mutex_lock(&shared->mutex);
    const int mine = shared->generation;
    bool here = !shared->dead;
    if (here && ++shared->arrived == ranks) {
      shared->arrived = 0;
      ++shared->generation;
      pthread_cond_broadcast(&shared->all_here);
    }
    while (here && shared->generation == mine)
      if (pthread_cond_timedwait(&shared->all_here, &shared->mutex, &until) != 0 &&
          shared->generation == mine) {
        shared->dead = 1;
        here = false;
      }
    pthread_mutex_unlock(&shared->mutex);
    return here;
  }
};

namespace {

struct Message {
  bool send;
  const void* from;
  void* to;
  std::size_t bytes;
  int peer;
};
int grouped = 0;
std::vector<Message> messages;
ncclComm_t message_comm = nullptr;
cudaStream_t message_stream = nullptr;

int node_of_this() {
  const char* text = std::getenv("VIRTUAL_NODE");
  return text ? std::atoi(text) : 0;
}

std::size_t bytes_of(ncclDataType_t type) { return type == ncclFloat ? 4 : type == ncclBfloat16 ? 2 : 1; }

// Whether a planted fault strikes at this call.
ncclResult_t strike(const VirtualComm& comm) {
  static int calls = 0;
  if (comm.ranks > 1 && ++calls == 20) {
    if (number("dead", -1) == comm.rank) _exit(9);
    if (number("hang", -1) == comm.rank)
      for (;;) pause();
    if (number("nccl", 0) != 0) return ncclSystemError;
  }
  return ncclSuccess;
}

// All ranks begin when the last has come, and end together.
void together(ncclComm_t comm, cudaStream_t stream, double call, const std::function<double()>& seconds,
              const std::function<void()>& effect) {
  VirtualStream& on = of(stream);
  host += call;
  const int turn = comm->turn;
  comm->turn ^= 1;
  comm->shared->host[turn][comm->rank] = host;
  comm->shared->ready[turn][comm->rank] = std::max(on.ready, host + kSubmit);
  if (!comm->meet()) {
    on.ready = 1e18;
    return;
  }
  // A process that waited for a word of another one moved no clock meanwhile.
  constexpr double kIdle = 0.1;
  const double latest = *std::max_element(comm->shared->host[turn], comm->shared->host[turn] + comm->ranks);
  if (latest > host + kIdle) host = latest;
  double start = 0;
  for (int i = 0; i < comm->ranks; ++i) start = std::max(start, comm->shared->ready[turn][i]);
  on.ready = std::max(on.ready, start);
  queue(on, 0, seconds(), Kind::kCopy);
  if (!effects) return;
  effect();
  if (!comm->meet()) on.ready = 1e18;
}

void spoil(void* out, std::size_t bytes) {
  static bool spoiled = false;
  if (wrong != "collective" || spoiled || bytes < 64) return;
  spoiled = true;
  static_cast<float*>(out)[bytes / 8] += 1;
}

void put(const VirtualComm& comm, const void* in, std::size_t bytes) {
  if (effects) std::memcpy(comm.room(comm.rank), in, std::min(bytes, kRoom));
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t status) {
  return status == ncclSystemError ? "unhandled system error"
         : status == ncclSuccess   ? "no error"
                                   : "internal error";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = 22700;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int count = 0;
  std::snprintf(id->internal, sizeof id->internal, "/moesim-virtual-%d-%d", getpid(), count++);
  const int file = shm_open(id->internal, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(sizeof(Shared) + kMostRanks * kRoom)) != 0)
    return ncclSystemError;
  Shared* shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  close(file);
  pthread_mutexattr_t mutex;
  pthread_mutexattr_init(&mutex);
  pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->mutex, &mutex);
  pthread_condattr_t condition;
  pthread_condattr_init(&condition);
  pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&shared->all_here, &condition);
  munmap(shared, sizeof(Shared));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  host += 0.3;  // rings and trees are searched for
  const int file = shm_open(id.internal, O_RDWR, 0600);
  if (file < 0 || ranks > kMostRanks) return ncclSystemError;
  *comm = new VirtualComm;
  (*comm)->name = id.internal;
  (*comm)->ranks = ranks;
  (*comm)->rank = rank;
  char* all = static_cast<char*>(mmap(nullptr, sizeof(Shared) + kMostRanks * kRoom, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_NORESERVE, file, 0));
  close(file);
  (*comm)->shared = reinterpret_cast<Shared*>(all);
  (*comm)->data = all + sizeof(Shared);
  (*comm)->shared->node[rank] = node_of_this();
  if (!(*comm)->meet()) return ncclSystemError;
  if (rank == 0) shm_unlink(id.internal);
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  munmap(comm->shared, sizeof(Shared) + kMostRanks * kRoom);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* status) {
  *status = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++grouped;
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  if (const auto status = strike(*comm); status != ncclSuccess) return status;
  const std::size_t piece = count * bytes_of(type);
  put(*comm, in, piece);
  together(
      comm, stream, kNcclCall,
      [&] {
        return collective_seconds(Collective::kAllGather, comm->nodes(), comm->ranks,
                                  static_cast<double>(piece) * comm->ranks);
      },
      [&] {
        for (int i = 0; i < comm->ranks; ++i)
          std::memcpy(static_cast<char*>(out) + static_cast<std::size_t>(i) * piece, comm->room(i), piece);
        spoil(out, piece * static_cast<std::size_t>(comm->ranks));
      });
  return ncclSuccess;
}

namespace {

void add_up(const VirtualComm& comm, float* out, std::size_t first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < comm.ranks; ++r) sum += reinterpret_cast<const float*>(comm.room(r))[first + i];
    out[i] = sum;
  }
  spoil(out, count * sizeof(float));
}

}  // namespace

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  if (const auto status = strike(*comm); status != ncclSuccess) return status;
  const std::size_t bytes = count * bytes_of(type) * static_cast<std::size_t>(comm->ranks);
  put(*comm, in, bytes);
  together(
      comm, stream, kNcclCall,
      [&] {
        return collective_seconds(Collective::kReduceScatter, comm->nodes(), comm->ranks,
                                  static_cast<double>(bytes));
      },
      [&] { add_up(*comm, static_cast<float*>(out), static_cast<std::size_t>(comm->rank) * count, count); });
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  if (const auto status = strike(*comm); status != ncclSuccess) return status;
  const std::size_t bytes = count * bytes_of(type);
  put(*comm, in, bytes);
  together(
      comm, stream, kNcclCall,
      [&] {
        return collective_seconds(Collective::kAllReduce, comm->nodes(), comm->ranks,
                                  static_cast<double>(bytes));
      },
      [&] { add_up(*comm, static_cast<float*>(out), 0, count); });
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  messages.push_back({true, in, nullptr, count * bytes_of(type), peer});
  message_comm = comm, message_stream = stream;
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  messages.push_back({false, nullptr, out, count * bytes_of(type), peer});
  message_comm = comm, message_stream = stream;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--grouped > 0 || messages.empty()) return ncclSuccess;
  VirtualComm& comm = *message_comm;
  if (const auto status = strike(comm); status != ncclSuccess) {
    messages.clear();
    return status;
  }
  Shared& shared = *comm.shared;
  double in_node[2] = {0, 0}, off_node[2] = {0, 0};
  std::size_t at = 0;
  for (int peer = 0; peer < comm.ranks; ++peer) shared.sends[comm.rank][peer] = 0;
  for (const Message& m : messages) {
    if (m.peer != comm.rank)
      (shared.node[m.peer] == shared.node[comm.rank] ? in_node : off_node)[m.send] +=
          static_cast<double>(m.bytes);
    if (!m.send) continue;
    if (effects && at + m.bytes <= kRoom) std::memcpy(comm.room(comm.rank) + at, m.from, m.bytes);
    shared.sends[comm.rank][m.peer] = at;
    at += m.bytes;
  }
  const int turn = comm.turn;
  shared.inside[turn][comm.rank] = std::max(in_node[0], in_node[1]);
  shared.between[turn][comm.rank] = std::max(off_node[0], off_node[1]);
  together(
      message_comm, message_stream, kNcclCall,
      [&] {
        double inside = 0, between = 0;
        for (int i = 0; i < comm.ranks; ++i)
          inside = std::max(inside, shared.inside[turn][i]),
          between = std::max(between, shared.between[turn][i]);
        return collective_seconds(Collective::kExchange, comm.nodes(), comm.ranks, inside, between);
      },
      [&] {
        for (const Message& m : messages)
          if (!m.send) {
            std::memcpy(m.to, comm.room(m.peer) + shared.sends[m.peer][comm.rank], m.bytes);
            spoil(m.to, m.bytes);
          }
      });
  messages.clear();
  return ncclSuccess;
}

// Nodes have names of their own.
extern "C" int gethostname(char* name, std::size_t length) noexcept {
  std::snprintf(name, length, "node%d", node_of_this());
  return 0;
}

// ---- NVML, found as libnvidia-ml.so.1 ----

extern "C" {

struct VirtualProcess {
  unsigned pid;
  unsigned long long memory;
  unsigned instance, compute;
};

int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  for (int i = 0; i < static_cast<int>(number("gpus", 1)); ++i) {
    char text[32];
    bus_id(i, text, sizeof text);
    if (std::string(text) == id) {
      *device = reinterpret_cast<void*>(static_cast<std::size_t>(i) + 1);
      return 0;
    }
  }
  return 6;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  std::snprintf(text, length, "GPU-%08zu", reinterpret_cast<std::size_t>(device) - 1);
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int which, unsigned* mhz) {
  *mhz = static_cast<unsigned>(which == 1 ? kMostMhz * clock_share(host) : 2619);
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* mhz) {
  *mhz = static_cast<unsigned>(kMostMhz);
  return 0;
}
// The number of the GPU is in its temperature, so that a test sees whose sensors were read.
int nvmlDeviceGetTemperature(void* device, int, unsigned* celsius) {
  *celsius = static_cast<unsigned>(40 + reinterpret_cast<std::size_t>(device) - 1);
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = static_cast<unsigned>(120000 + 580000 * heat);
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, VirtualProcess* processes) {
  const unsigned foreign = static_cast<unsigned>(number("foreign", 0));
  if (foreign && *count > 0) processes[0] = {foreign, 1ull << 30, 0, 0};
  *count = foreign ? 1 : 0;
  return 0;
}

}  // extern "C"
