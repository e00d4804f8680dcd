// "moesim.constants/1": single numbers with their sources that belong into profiles but that no fit of this
// folder makes, kept apart so that they survive every refit.
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

// Throws InputError with line for an unknown key, a constant without source or unit, a negative sigma, a name
// that is no profile of devices.h.
ConstantsByProfile parse_constants(std::string_view json, const std::string& file);

// Sets the constants of `profile` that stand in `constants`; one of the same name that was fitted stays.
// "communication_under_compute" goes into the profile's overlap.
void add_constants(models::Profile& profile, const ConstantsByProfile& constants);

}  // namespace moesim::calibration
