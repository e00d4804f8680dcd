// What a GPU costs beside its kernels, from rows to a profile.
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

// Puts the median of every number that was measured into the profile. Its scatter is small beside what was
// known before, so that nothing of that stays.
std::vector<MachineNumber> set_machine_numbers(models::Profile& profile,
                                               const std::vector<Measurements::MachineRow>& rows);

}  // namespace moesim::calibration
