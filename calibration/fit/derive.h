// Derives laws that were not measured on a GPU from a relative, corrected by the few rows that exist.
#pragma once

#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/gpu_family.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Adds to `profile` every law that it lacks and `relative` has, scaled to its device. Laws of collectives
// inside a domain for which `measured` has rows (too few for a fit) are fitted in two numbers, the time of
// small messages and the rate of the links; that rate serves the other operations too. Laws without rows are
// marked as derived, and the profile's gaps list both kinds.
void derive_missing(models::Profile& profile, const models::Profile& relative,
                    const Measurements& measured = {});

// Converts a size curve to other links. `share`: share of a link's rate that collectives reach.
//
// A chip that differs only in slower links (H800 is an H100): its own copying and the links work in parallel,
// T^p = own^p + link^p with p = 4, where the link part is first removed from the relative's time. A different
// chip also copies at another rate: the large-message time of every knot then scales with the ratio of the
// link rates.
models::ParameterSet on_other_links(const models::ParameterSet& set, const models::DeviceLimits& from,
                                    const models::DeviceLimits& to, double wire_factor, double share);

// The law of a collective's key ("collective/all_gather/scaleup") on cards of one node without links of their own.
models::ParameterSet pcie_law(const std::string& key, double link_bandwidth, models::GpuFamily::Links links);

}  // namespace moesim::calibration
