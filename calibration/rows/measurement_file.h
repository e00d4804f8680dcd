// "moesim.measurements/1": measured rows as JSON, what `calibrate measure` and `import` write and `fit`
// reads.
#pragma once

#include <string>
#include <string_view>

#include "calibration/rows/measurements.h"

namespace moesim::calibration {

// Throws InputError with line for an unknown key, a missing or impossible value.
Measurements parse_measurement_file(std::string_view json, const std::string& file);

}  // namespace moesim::calibration
