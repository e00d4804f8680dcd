// Which law of a profile a row belongs to: a library version, an element type or a machine can have its own,
// kept beside the profile's default under "<key>@<variant>".
#pragma once

#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/dtype.h"
#include "models/hardware/group_shape.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// "collective/all_reduce/scaleup" or ".../network".
std::string collective_key(sim::CollectiveOp op, bool network);

// Integer reductions have laws of their own (no reduction in the switch, slower arithmetic); moves have not.
bool integer_reduction(const CollectiveRow& row);

// Whether the members of a row lie in one scale-up domain of the device.
bool inside_domain(const CollectiveRow& row, const models::Profile& profile);

// How the members of a row lie on the device's scale-up domains: where a domain is a rack of nodes, on as few
// racks as hold them, equally many on each.
models::GroupShape shape_of(const CollectiveRow& row, const models::DeviceLimits& device);

// The element type of a row's text, remarks after the first word ignored ("fp16 (not stated clearly)").
// Throws InputError for an unknown one.
models::DType dtype_of(const std::string& text);

// Whether dtype_of takes it.
bool known_dtype(const std::string& text);

// Keys to try for a row, from the most special to the default.
std::vector<std::string> law_keys(const CollectiveRow& row, bool network);
std::vector<std::string> law_keys(const GemmRow& row);
std::vector<std::string> law_keys(const FfnRow& row);

}  // namespace moesim::calibration
