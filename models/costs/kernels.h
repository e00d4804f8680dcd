// Time of a memory-bound kernel: bytes moved over the bandwidth that its access pattern reaches.
#pragma once

#include <array>
#include <cstddef>

#include "models/hardware/device_work.h"
#include "models/hardware/estimate.h"
#include "models/hardware/profile.h"

namespace moesim::models {

class KernelModel {
 public:
  explicit KernelModel(const Profile& profile);

  // Returns seconds on the GPU of `launches` kernels that together read and write these bytes: at least the
  // smallest kernel's time per launch, and never faster than the data-sheet bandwidth. 0 bytes still cost
  // their launches.
  double seconds(KernelClass kernel, double bytes_read, double bytes_written, int launches = 1) const {
    const Rate& rate = rates_[static_cast<std::size_t>(kernel)];
    return launches * rate.floor + (bytes_read + bytes_written) * rate.seconds_per_byte;
  }
  Estimate estimate(KernelClass kernel, double bytes_read, double bytes_written, int launches = 1) const;

 private:
  struct Rate {
    double floor = 0;
    double seconds_per_byte = 0;
    double sigma = 0;
  };
  std::array<Rate, kKernelClasses> rates_{};
};

}  // namespace moesim::models
