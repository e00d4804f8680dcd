// Laws of kernels of one GPU: memory-bound classes, dense and grouped products, expert FFNs.
#pragma once

#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Fits "floor" (seconds per launch) and "share" (of the measured HBM bandwidth) of law "memory-bound" to rows
// of one kernel class.
models::ParameterSet fit_kernel(const models::Profile& profile,
                                const std::vector<Measurements::KernelRow>& rows);

// Fits law "tiles" for dense products, from rows of one GPU and element type. `profile` gives the device
// limits. `systematic` comes from leaving out one (n, k) shape after another.
models::ParameterSet fit_dense_gemm(const models::Profile& profile, const std::vector<GemmRow>& rows,
                                    bool leave_out = true);

// Returns log(model / measured) of each row under the law "gemm/<dtype>" of the profile, at sustained clocks
// where the row was measured so.
std::vector<double> gemm_residuals(const models::Profile& profile, const std::vector<GemmRow>& rows);

// Fits law "expert-ffn" (models/costs/expert_ffn.h). With `leave_out`, `systematic` comes from leaving out
// one layer shape (hidden, inter, experts) after another.
models::ParameterSet fit_ffn(const models::Profile& profile, const std::vector<FfnRow>& rows,
                             const std::string& key, bool leave_out);

// Returns log(model / measured) of each row under law `key` of the profile.
std::vector<double> ffn_residuals(const models::Profile& profile, const std::vector<FfnRow>& rows,
                                  const std::string& key);

}  // namespace moesim::calibration
