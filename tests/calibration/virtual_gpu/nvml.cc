// NVML, found as libnvidia-ml.so.1.
#include <cstdio>
#include <string>

#include "machine.h"

using namespace moesim::virtual_gpu;

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
  *milliwatts = static_cast<unsigned>(120000 + 580000 * heat());
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, VirtualProcess* processes) {
  const unsigned foreign = static_cast<unsigned>(number("foreign", 0));
  if (foreign && *count > 0) processes[0] = {foreign, 1ull << 30, 0, 0};
  *count = foreign ? 1 : 0;
  return 0;
}

}  // extern "C"
