// From measured rows of one GPU to a profile: every law fitted. What is missing is derived from a
// relative (derive.h).
#pragma once

#include <functional>
#include <string>

#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

struct FitProfileOptions {
  bool leave_out_shapes = true;  // estimate `systematic` of GEMM and FFN laws by leaving shapes out
  bool networks = true;          // fit laws between nodes too; shipped profiles leave them to fit_networks
  std::string provenance;
  std::function<void(const std::string&)> progress;  // told what is being fitted; may be empty
};

// Fits all rows of `measurements` that are of this device. Rows of its family (Blackwell) help where a rank
// count was not measured. No row of the device at all gives a profile of data-sheet limits only.
models::Profile fit_profile(const Device& device, const Measurements& measurements,
                            const FitProfileOptions& options = {});

}  // namespace moesim::calibration
