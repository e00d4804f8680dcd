#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "gpu.h"

namespace moesim::bench {
namespace {

// nvmlProcessInfo_t of NVML's public interface.
struct ProcessInfo {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

// The few calls of NVIDIA's management library that say how the GPU is; it belongs to the driver.
struct Management {
  using Device = void*;
  int (*init)() = nullptr;
  int (*device)(const char*, Device*) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*most)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;
  Device handle = nullptr;

  Management() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return;
    const auto find = [&](auto& call, const char* name) {
      call = reinterpret_cast<std::decay_t<decltype(call)>>(dlsym(library, name));
      return call != nullptr;
    };
    const bool all = find(init, "nvmlInit_v2") && find(device, "nvmlDeviceGetHandleByPciBusId_v2") &&
                     find(clock, "nvmlDeviceGetClockInfo") && find(most, "nvmlDeviceGetMaxClockInfo") &&
                     find(power, "nvmlDeviceGetPowerUsage") && find(temperature, "nvmlDeviceGetTemperature");
    find(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (!all || init() != 0 || device(place_of_gpu().c_str(), &handle) != 0) handle = nullptr;
  }
};

const Management& management() {
  static const Management one;
  return one;
}

}  // namespace

void fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
  std::exit(1);
}

std::string place_of_gpu() {
  int device = 0;
  char text[32] = "";
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDeviceGetPCIBusId(text, sizeof text, device), "cudaDeviceGetPCIBusId");
  return text;
}

Condition condition() {
  const Management& m = management();
  Condition now;
  if (!m.handle) return now;
  constexpr int kSm = 1, kMemory = 2, kGpuTemperature = 0;  // nvmlClockType_t, nvmlTemperatureSensors_t
  unsigned value = 0;
  if (m.clock(m.handle, kSm, &value) == 0) now.sm_mhz = value;
  if (m.most(m.handle, kSm, &value) == 0) now.most_sm_mhz = value;
  if (m.clock(m.handle, kMemory, &value) == 0) now.memory_mhz = value;
  if (m.power(m.handle, &value) == 0) now.watts = value * 1e-3;
  if (m.temperature(m.handle, kGpuTemperature, &value) == 0) now.celsius = value;
  return now;
}

std::vector<unsigned> processes_on_gpu() {
  const Management& m = management();
  std::array<ProcessInfo, 64> all{};
  unsigned count = static_cast<unsigned>(all.size());
  std::vector<unsigned> pids;
  if (!m.handle || !m.processes || m.processes(m.handle, &count, all.data()) != 0) return pids;
  for (unsigned i = 0; i < count && i < all.size(); ++i) pids.push_back(all[i].pid);
  return pids;
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
