#include "models/costs/kernels.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace moesim::models {

KernelModel::KernelModel(const Profile& profile) {
  const DeviceLimits& device = profile.device();
  const double measured = device.hbm_bandwidth * device.hbm_efficiency;
  for (std::size_t i = 0; i < kKernelClasses; ++i) {
    Rate& rate = rates_[i];
    double share = judged_share(static_cast<KernelClass>(i));
    rate.floor = profile.launch().kernel_floor;
    rate.sigma = kUnmeasuredKernelSigma;
    if (const ParameterSet* set =
            profile.find("kernel/" + std::string(name_of(static_cast<KernelClass>(i))))) {
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
