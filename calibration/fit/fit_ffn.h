// Fits the expert FFN law, and with it the grouped GEMMs, to measured rows of one GPU and kernel.
#pragma once

#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Fits law "expert-ffn" (models/costs/expert_ffn.h). With `leave_out`, `systematic` comes from leaving out
// one layer shape (hidden, inter, experts) after another.
models::ParameterSet fit_ffn(const models::Profile& profile, const std::vector<FfnRow>& rows,
                             const std::string& key, bool leave_out);

// Returns log(model / measured) of each row under law `key` of the profile.
std::vector<double> ffn_residuals(const models::Profile& profile, const std::vector<FfnRow>& rows,
                                  const std::string& key);

}  // namespace moesim::calibration
