// From measured rows of one GPU to a profile: every law fitted, what is missing derived from a relative and
// marked.
#pragma once

#include <functional>
#include <string>

#include "calibration/devices.h"
#include "calibration/measurements.h"
#include "models/profile.h"

namespace moesim::calibration {

struct FitProfileOptions {
  bool leave_out_shapes = true;  // estimate `systematic` of GEMM and FFN laws by leaving shapes out
  std::string provenance;
  std::function<void(const std::string&)> progress;  // told what is being fitted; may be empty
};

// Fits all rows of `measurements` that are of this device. Rows of its family (Blackwell) help where a rank
// count was not measured. No row of the device at all gives a profile of data-sheet limits only.
models::Profile fit_profile(const Device& device, const Measurements& measurements,
                            const FitProfileOptions& options = {});

// Adds to `profile` every law that it lacks and `relative` has, scaled to its device and marked as derived.
void derive_missing(models::Profile& profile, const models::Profile& relative);

}  // namespace moesim::calibration
