// Maps rows to laws of a profile: a library version, an element type or a machine can have its own law,
// stored beside the default under "<key>@<variant>".
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

// Returns whether the row is an integer reduction, which has its own laws (no reduction in the switch, slower
// arithmetic); moves have not.
bool integer_reduction(const CollectiveRow& row);

// Returns whether the members of a row lie in one scale-up domain of the device.
bool inside_domain(const CollectiveRow& row, const models::Profile& profile);

// Returns the shape of a row's members on the device's scale-up domains: where a domain is a rack of nodes,
// on the fewest racks that hold them, equally many on each.
models::GroupShape shape_of(const CollectiveRow& row, const models::DeviceLimits& device);

// Keeps the fastest of the rows of one call whose source forced an algorithm, as NCCL would choose.
std::vector<CollectiveRow> fastest_algorithms(const std::vector<CollectiveRow>& rows);

// Returns the element type of a row's text, ignoring remarks after the first word ("fp16 (not stated
// clearly)"). Throws InputError for an unknown one.
models::DType dtype_of(const std::string& text);

// Returns whether dtype_of accepts the text.
bool known_dtype(const std::string& text);

// Return the keys to try for a row, from the most specific to the default.
std::vector<std::string> law_keys(const CollectiveRow& row, bool network);
std::vector<std::string> law_keys(const GemmRow& row);
std::vector<std::string> law_keys(const FfnRow& row);

}  // namespace moesim::calibration
