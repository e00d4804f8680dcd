// "moesim.constants/1": single numbers with sources for profiles that no fit of this folder produces, kept
// separately so that they survive every refit.
//
//   { "schema": "moesim.constants/1",
//     "profiles": { "h800-sxm": { "gradient_prescale": { "value": 1.003, "sigma": 0.01, "unit": "ms/GB",
//                                                        "source": "..." } } } }
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "models/hardware/profile.h"

namespace moesim::calibration {

// Constants by profile name and constant name.
using ConstantsByProfile = std::map<std::string, std::map<std::string, models::Constant>>;

// Throws InputError with the line for an unknown key, a constant without source or unit, a negative sigma, or
// a name that is not a profile of devices.h.
ConstantsByProfile parse_constants(std::string_view json, const std::string& file);

// Sets the constants of `profile` from `constants`; a fitted one of the same name stays.
// "communication_under_compute" sets the profile's overlap.
void add_constants(models::Profile& profile, const ConstantsByProfile& constants);

}  // namespace moesim::calibration
