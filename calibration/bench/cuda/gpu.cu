#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "gpu.h"

namespace moesim::bench {
namespace {

// The few calls of NVIDIA's management library that say how the GPU is; it belongs to the driver.
struct Management {
  using Device = void*;
  int (*init)() = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*most)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  Device handle = nullptr;

  Management() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return;
    const auto find = [&](auto& call, const char* name) {
      call = reinterpret_cast<std::decay_t<decltype(call)>>(dlsym(library, name));
      return call != nullptr;
    };
    const bool all = find(init, "nvmlInit_v2") && find(device, "nvmlDeviceGetHandleByIndex_v2") &&
                     find(clock, "nvmlDeviceGetClockInfo") && find(most, "nvmlDeviceGetMaxClockInfo") &&
                     find(power, "nvmlDeviceGetPowerUsage") && find(temperature, "nvmlDeviceGetTemperature");
    if (!all || init() != 0 || device(0, &handle) != 0) handle = nullptr;
  }
};

}  // namespace

void fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
  std::exit(1);
}

Condition condition() {
  static const Management management;
  Condition now;
  if (!management.handle) return now;
  constexpr int kSm = 1, kMemory = 2, kGpuTemperature = 0;  // nvmlClockType_t, nvmlTemperatureSensors_t
  unsigned value = 0;
  if (management.clock(management.handle, kSm, &value) == 0) now.sm_mhz = value;
  if (management.most(management.handle, kSm, &value) == 0) now.most_sm_mhz = value;
  if (management.clock(management.handle, kMemory, &value) == 0) now.memory_mhz = value;
  if (management.power(management.handle, &value) == 0) now.watts = value * 1e-3;
  if (management.temperature(management.handle, kGpuTemperature, &value) == 0) now.celsius = value;
  return now;
}

void require(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(what, cudaGetErrorString(status));
}

void require(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(what, cublasGetStatusString(status));
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  require(cudaMalloc(&data_, std::max<std::size_t>(bytes, 256)), "cudaMalloc");
}

Buffer::~Buffer() {
  if (data_) cudaFree(data_);
}

}  // namespace moesim::bench
