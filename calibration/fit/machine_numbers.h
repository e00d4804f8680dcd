// Sets a profile's costs outside of kernels from measured rows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

struct MachineNumber {
  std::string what;
  double before = 0, after = 0;
  std::size_t rows = 0;
};

// Sets every measured number of the profile to its median. The scatter is small against the prior
// uncertainty, which is therefore dropped.
std::vector<MachineNumber> set_machine_numbers(models::Profile& profile,
                                               const std::vector<Measurements::MachineRow>& rows);

}  // namespace moesim::calibration
