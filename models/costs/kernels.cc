#include "models/costs/kernels.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace moesim::models {
namespace {

constexpr std::array<std::string_view, kKernelClasses> kNames = {
    "copy", "elementwise", "gather_rows", "scatter_rows", "scatter_add", "scatter_add_deterministic",
    "sort", "histogram",   "select",      "reduce"};

// Share of the measured HBM bandwidth where a profile has no measurement of the class. Streaming kernels
// reach it; a radix pass reads and scatters; atomics pay a read-modify-write. A kernel without a fit says so
// (`sigma`).
constexpr std::array<double, kKernelClasses> kDefaultShare = {1.0, 0.95, 0.8, 0.8, 0.5,
                                                              0.6, 0.45, 0.5, 0.6, 0.9};

}  // namespace

std::string_view name_of(KernelClass kernel) { return kNames[static_cast<std::size_t>(kernel)]; }

double judged_share(KernelClass kernel) { return kDefaultShare[static_cast<std::size_t>(kernel)]; }

std::optional<KernelClass> parse_kernel_class(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<KernelClass>(i);
  return std::nullopt;
}

KernelModel::KernelModel(const Profile& profile) {
  const DeviceLimits& device = profile.device();
  const double measured = device.hbm_bandwidth * device.hbm_efficiency;
  launch_ = profile.launch().kernel;
  host_sync_ = profile.launch().host_sync;
  for (std::size_t i = 0; i < kKernelClasses; ++i) {
    Rate& rate = rates_[i];
    double share = kDefaultShare[i];
    rate.floor = profile.launch().kernel_floor;
    rate.sigma = kUnmeasuredKernelSigma;
    if (const ParameterSet* set = profile.find("kernel/" + std::string(kNames[i]))) {
      share = set->get("share", share) / set->factor;
      rate.floor = set->get("floor", rate.floor);
      rate.sigma = std::hypot(set->residual, set->systematic);
    }
    // Never faster than the data sheet's bandwidth.
    rate.seconds_per_byte = measured > 0 ? 1 / std::min(measured * share, device.hbm_bandwidth) : 0;
  }
}

Estimate KernelModel::estimate(KernelClass kernel, double bytes_read, double bytes_written,
                               int launches) const {
  return Estimate::log_normal(seconds(kernel, bytes_read, bytes_written, launches),
                              rates_[static_cast<std::size_t>(kernel)].sigma);
}

}  // namespace moesim::models
