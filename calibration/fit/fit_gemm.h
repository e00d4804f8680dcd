// Fits the matrix-product laws of models/costs/gemm.h to measured rows of one GPU.
#pragma once

#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Fits law "tiles" for dense products, from rows of one GPU and element type. `profile` gives the device
// limits. `systematic` comes from leaving out one (n, k) shape after another.
models::ParameterSet fit_dense_gemm(const models::Profile& profile, const std::vector<GemmRow>& rows,
                                    bool leave_out = true);

// Returns log(model / measured) of each row under the law "gemm/<dtype>" of the profile, at sustained clocks
// where the row was measured so.
std::vector<double> gemm_residuals(const models::Profile& profile, const std::vector<GemmRow>& rows);

}  // namespace moesim::calibration
