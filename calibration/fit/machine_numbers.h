// Sets a profile's costs outside of kernels from measured rows.
#pragma once

#include <cstddef>
#include <optional>
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

// Log standard deviation of a machine's number before it is measured, as in the draws of a forecast.
inline constexpr double kHostSigma = 0.15;  // models/hardware/profile.cc

// Returns a number of the profile; nullopt for an unknown name.
std::optional<double> machine_number(const models::Profile& profile, const std::string& what);

// Sets every measured number of the profile to its median. The scatter is small against the prior
// uncertainty, which is therefore dropped.
std::vector<MachineNumber> set_machine_numbers(models::Profile& profile,
                                               const std::vector<Measurements::MachineRow>& rows);

}  // namespace moesim::calibration
