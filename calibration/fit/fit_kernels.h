// Fits a memory-bound kernel class (models/costs/kernels.h) to measured calls.
#pragma once

#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Fits "floor" (seconds per launch) and "share" (of the measured HBM bandwidth) of law "memory-bound" to rows
// of one kernel class.
models::ParameterSet fit_kernel(const models::Profile& profile,
                                const std::vector<Measurements::KernelRow>& rows);

}  // namespace moesim::calibration
