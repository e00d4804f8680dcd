// What a memory-bound kernel takes: bytes moved over the bandwidth that its access pattern reaches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "models/hardware/estimate.h"
#include "models/hardware/profile.h"

namespace moesim::models {

// Access patterns of docs/spec.md 1.5. Bytes are counted by the caller as that table does.
enum class KernelClass : std::uint8_t {
  kCopy,         // contiguous copy, pad, stack, memset
  kElementwise,  // activation, cast, multiply
  kGatherRows,   // permute, index_select, unpermute with a fused sum
  kScatterRows,  // unsort by index_put without accumulation
  kScatterAdd,   // atomics: zeros + index_add
  kScatterAddDeterministic,
  kSort,       // one radix pass over keys and values; the caller multiplies the bytes by the passes
  kHistogram,  // histc, bincount, column sums of a mask
  kSelect,     // masked_select, nonzero
  kReduce,     // row sums, norms, softmax
};
inline constexpr std::size_t kKernelClasses = 10;
// Log standard deviation of a class that a profile has no law for: its share of the bandwidth was judged.
inline constexpr double kUnmeasuredKernelSigma = 0.25;

std::string_view name_of(KernelClass kernel);
// Share of the measured HBM bandwidth that a class is taken to reach where nobody measured it.
double judged_share(KernelClass kernel);
std::optional<KernelClass> parse_kernel_class(std::string_view name);

class KernelModel {
 public:
  explicit KernelModel(const Profile& profile);

  // Seconds on the GPU of `launches` kernels that together read and write this many bytes. At least the
  // smallest kernel's time per launch, at most the data-sheet bandwidth. 0 bytes still cost their launches.
  double seconds(KernelClass kernel, double bytes_read, double bytes_written, int launches = 1) const {
    const Rate& rate = rates_[static_cast<std::size_t>(kernel)];
    return launches * rate.floor + (bytes_read + bytes_written) * rate.seconds_per_byte;
  }
  Estimate estimate(KernelClass kernel, double bytes_read, double bytes_written, int launches = 1) const;

  double launch_seconds() const { return launch_; }        // host time of one launch
  double host_sync_seconds() const { return host_sync_; }  // blocking copy to the host and back to launching

 private:
  struct Rate {
    double floor = 0;
    double seconds_per_byte = 0;
    double sigma = 0;
  };
  std::array<Rate, kKernelClasses> rates_{};
  double launch_ = 0;
  double host_sync_ = 0;
};

}  // namespace moesim::models
