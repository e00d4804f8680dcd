// moesim-layer-cuda: a training step of one mixture-of-experts layer on a GPU, checked, timed and written as
// a recording. It has been compiled, and has not run on a GPU yet (calibration/bench/README.md).
#include <algorithm>
#include <cstring>
#include <numeric>

#include <cub/cub.cuh>

#include "gpu.h"
#include "layer/layer_device.h"
#include "layer/program.h"
#include "products.h"

namespace moesim::bench {
namespace {

constexpr unsigned kThreads = 256, kAllLanes = 0xffffffffu;

template <class W>
__global__ void __launch_bounds__(kThreads) each_item(W work, std::size_t items) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < items;
       i += stride)
    work.template item<Bf16>(i);
}

__device__ float from_lane(float value, int step) { return __shfl_xor_sync(kAllLanes, value, step); }
__device__ Best from_lane(Best value, int step) {
  return {__shfl_xor_sync(kAllLanes, value.score, step), __shfl_xor_sync(kAllLanes, value.expert, step)};
}

// All lanes of a warp have the same `i` and go through the same rounds.
template <class W>
__global__ void __launch_bounds__(kThreads) each_warp(W work, std::size_t count) {
  const std::size_t thread = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x / kLanes;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  for (std::size_t i = thread / kLanes; i < count; i += stride)
    for (int round = 0; round < work.rounds(); ++round) {
      typename W::Value value = work.template lane<Bf16>(i, round, lane);
      for (int step = kLanes / 2; step > 0; step /= 2) value = W::join(value, from_lane(value, step));
      if (lane == 0) work.template finish<Bf16>(i, round, value);
      __syncwarp();  // the next round reads what this one wrote
    }
}

// Blocks for so many threads; each goes on with a stride where there are more.
unsigned blocks_for(std::size_t threads) {
  constexpr std::size_t kMost = 1u << 20;
  return static_cast<unsigned>(std::min((threads + kThreads - 1) / kThreads, kMost));
}

class CudaDevice : public LayerDevice {
 public:
  CudaDevice() {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) fail("device", "found no GPU, expected one");
    require(cudaGetDeviceProperties(&properties_, 0), "cudaGetDeviceProperties");
    require(cudaStreamCreate(&stream_), "cudaStreamCreate");
    require(cublasCreate(&blas_), "cublasCreate");
    require(cublasSetStream(blas_, stream_), "cublasSetStream");
    require(cudaMallocHost(&pinned_, kPiece * kPieces), "cudaMallocHost");
  }
  ~CudaDevice() override {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaFreeHost(pinned_);
    cublasDestroy(blas_);
    cudaStreamDestroy(stream_);
  }

  std::string kind() const override { return "cuda"; }
  std::string name() const override { return properties_.name; }
  std::string clock() const override { return "CUDA events"; }
  std::vector<std::string> about() const override {
    int driver = 0, runtime = 0;
    std::size_t blas = 0;
    require(cudaDriverGetVersion(&driver), "driver version");
    require(cudaRuntimeGetVersion(&runtime), "runtime version");
    for (const auto part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) {
      int number = 0;
      require(cublasGetProperty(part, &number), "cuBLAS version");
      blas = blas * 100 + static_cast<std::size_t>(number);
    }
    return {"CUDA driver " + std::to_string(driver) + ", runtime " + std::to_string(runtime) + ", cuBLAS " +
            std::to_string(blas)};
  }
  Readings readings() const override {
    const Condition now = condition();
    if (now.sm_mhz <= 0) return {};
    return {{"sm_MHz", now.sm_mhz},
            {"most_sm_MHz", now.most_sm_mhz},
            {"memory_MHz", now.memory_mhz},
            {"power_W", now.watts},
            {"temperature_C", now.celsius}};
  }
  Element element() const override { return Element::kBf16; }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    const std::size_t size = std::max<std::size_t>(bytes, 256);
    require(cudaMalloc(&memory, size), "cudaMalloc");
    zero(memory, size);
    return memory;
  }
  void release(void* memory) override { cudaFree(memory); }
  // Small things go through pinned memory: a copy from any other waits for the stream before it begins.
  void upload(void* to, const void* from, std::size_t bytes) override {
    if (bytes > kPiece) {
      require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "upload");
      return;
    }
    void* piece = next_piece();
    std::memcpy(piece, from, bytes);
    require(cudaMemcpyAsync(to, piece, bytes, cudaMemcpyHostToDevice, stream_), "upload");
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    void* piece = bytes > kPiece ? to : next_piece();
    require(cudaMemcpyAsync(piece, from, bytes, cudaMemcpyDeviceToHost, stream_), "download");
    wait();
    if (piece != to) std::memcpy(to, piece, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copy");
  }
  void zero(void* memory, std::size_t bytes) override {
    require(cudaMemsetAsync(memory, 0, bytes, stream_), "zero");
  }

  void run(const Work& work) override {
    std::visit([this](const auto& one) { launch(one); }, work);
  }
  void product(const Product& product, Into into) override {
    multiply(blas_, product, into == Into::kFloats ? CUDA_R_32F : CUDA_R_16BF, into == Into::kAddElements);
  }
  void grouped(const std::vector<Product>& products) override {
    const GroupedCall call(products);
    // One room for all calls: the stream has the product before behind it when these pointers arrive.
    void* room = room_for(pointers_, call.pointer_bytes());
    upload(room, call.pointers(), call.pointer_bytes());
    call.run(blas_, room);
  }
  void sort(const int* keys, int* sorted, int* order, int count, int values) override {
    if (numbers_.bytes() < static_cast<std::size_t>(count) * sizeof(int)) {
      std::vector<int> numbers(static_cast<std::size_t>(count));
      std::iota(numbers.begin(), numbers.end(), 0);
      upload(room_for(numbers_, numbers.size() * sizeof(int)), numbers.data(), numbers.size() * sizeof(int));
      wait();
    }
    int bits = 1;
    while (bits < 31 && (1 << bits) < values) ++bits;
    std::size_t bytes = 0;
    const auto pairs = [&](void* scratch) {
      require(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted, numbers_.as<int>(), order, count,
                                              0, bits, stream_),
              "sort");
    };
    pairs(nullptr);
    pairs(room_for(scratch_, bytes));
  }

  void wait() override {
    require(cudaStreamSynchronize(stream_), "stream");
    piece_ = 0;  // nothing is on its way any more
  }
  void mark(std::size_t number) override {
    while (events_.size() <= number) {
      events_.emplace_back();
      require(cudaEventCreate(&events_.back()), "cudaEventCreate");
    }
    require(cudaEventRecord(events_[number], stream_), "cudaEventRecord");
  }
  double seconds(std::size_t from, std::size_t to) override {
    float milliseconds = 0;
    require(cudaEventSynchronize(events_.at(to)), "cudaEventSynchronize");
    require(cudaEventElapsedTime(&milliseconds, events_.at(from), events_.at(to)), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  template <class W>
  void launch(const W& work) {
    if constexpr (W::kWarp) {
      if (const std::size_t count = work.count(); count > 0)
        moesim::bench::launch(each_warp<W>, blocks_for(count * kLanes), kThreads, 0, stream_, work, count);
    } else {
      if (const std::size_t items = work.template items<Bf16>(); items > 0)
        moesim::bench::launch(each_item<W>, blocks_for(items), kThreads, 0, stream_, work, items);
    }
  }

  // Pinned memory that no copy on its way uses.
  void* next_piece() {
    if (piece_ == kPieces) wait();
    return static_cast<char*>(pinned_) + kPiece * piece_++;
  }

  // Memory that grows; what used it before is done when it moves.
  void* room_for(Memory& memory, std::size_t bytes) {
    if (memory.bytes() < bytes || !memory) {
      wait();
      memory = Memory(*this, bytes);
    }
    return memory.get();
  }

  static constexpr std::size_t kPiece = 64 << 10, kPieces = 64;
  cudaDeviceProp properties_{};
  void* pinned_ = nullptr;
  std::size_t piece_ = 0;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  std::vector<cudaEvent_t> events_;
  Memory pointers_, numbers_, scratch_;
};

}  // namespace
}  // namespace moesim::bench

int main(int argc, char** argv) {
  using namespace moesim::bench;
  return run_program(
      {"moesim-layer-cuda", false, [](const DeviceChoice&) { return std::make_unique<CudaDevice>(); }}, argc,
      argv);
}
