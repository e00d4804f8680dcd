// Numbers of a profile that are no laws: measured, recorded, or stated in a file of constants.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
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

// Sets the constant "exposed_call/<operation>" (us): recorded time of a call that the host had to launch,
// minus the transfer by the profile's own law; median and scatter over the exposed calls of this GPU. Only
// calls that are mostly launch count: in longer transfers, members that finish early hide a part of it.
// Leaves a profile without the laws unchanged.
void fit_call_overheads(models::Profile& profile, const Measurements& measurements);

// "moesim.constants/1": single numbers with sources for profiles that no fit of this folder produces, kept
// separately so that they survive every refit.
//
//   { "schema": "moesim.constants/1",
//     "profiles": { "h800-sxm": { "gradient_prescale": { "value": 1.003, "sigma": 0.01, "unit": "ms/GB",
//                                                        "source": "..." } } } }

// Constants by profile name and constant name.
using ConstantsByProfile = std::map<std::string, std::map<std::string, models::Constant>>;

// Throws InputError with the line for an unknown key, a constant without source or unit, a negative sigma, or
// a name that is not a profile of devices.h.
ConstantsByProfile parse_constants(std::string_view json, const std::string& file);

// Sets the constants of `profile` from `constants`; a fitted one of the same name stays.
// "communication_under_compute" sets the profile's overlap.
void add_constants(models::Profile& profile, const ConstantsByProfile& constants);

}  // namespace moesim::calibration
