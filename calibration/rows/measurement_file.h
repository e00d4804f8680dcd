// "moesim.measurements/1": measured rows as JSON, written by `calibrate measure` and `import`, read by `fit`.
#pragma once

#include <string>
#include <string_view>

#include "calibration/rows/measurements.h"

namespace moesim::calibration {

// Throws InputError with the line for an unknown key, or a missing or impossible value.
Measurements parse_measurement_file(std::string_view json, const std::string& file);

}  // namespace moesim::calibration
