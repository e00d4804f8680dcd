// Laws that a GPU was not measured for, taken over from a relative and set right by the few rows that it has.
#pragma once

#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Adds to `profile` every law that it lacks and `relative` has, scaled to its device. Laws of collectives
// inside a domain of which `measured` has rows (too few for a law of their own) are fitted to them in two
// numbers, the time of small messages and the rate of the links; a rate found so serves the other operations
// too. What has no row is marked as derived, and the profile's gaps tell which is which. Cards that reach each
// other by PCIe take its law (pcie_law.h) for the collectives inside a node.
void derive_missing(models::Profile& profile, const models::Profile& relative,
                    const Measurements& measured = {});

// A size curve on other links. `share`: how much of a link's rate collectives reach.
//
// The same chip with slower links (H800 is an H100): its own copying and the links work side by side, T^p =
// own^p + link^p with p = 4, where the link part of the relative's time is taken out first. A chip of another
// kind copies at another rate, too: then the large-message time of every knot stretches with the ratio of the
// link rates.
models::ParameterSet on_other_links(const models::ParameterSet& set, const models::DeviceLimits& from,
                                    const models::DeviceLimits& to, double wire_factor, double share);

}  // namespace moesim::calibration
