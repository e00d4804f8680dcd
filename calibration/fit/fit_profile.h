// Fits all laws of a profile to measured rows of one GPU and derives missing laws from a relative (derive.h).
#pragma once

#include <functional>
#include <string>

#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

struct FitProfileOptions {
  bool leave_out_shapes = true;  // estimate `systematic` of GEMM and FFN laws by leaving out shapes
  bool networks = true;          // fit laws between nodes too; built-in profiles leave them to fit_networks
  std::string provenance;
  std::function<void(const std::string&)> progress;  // called with the law being fitted; may be empty
};

// Fits all rows of `measurements` of this device. Rows of its family (Blackwell) help where a rank count was
// not measured. Without any row of the device, returns a profile of data-sheet limits only.
models::Profile fit_profile(const Device& device, const Measurements& measurements,
                            const FitProfileOptions& options = {});

}  // namespace moesim::calibration
