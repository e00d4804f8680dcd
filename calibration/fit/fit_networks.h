// From measured rows between nodes to network profiles: the laws of every network, whatever GPU its rows come
// from, and one of all networks at once for those that nobody measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/network.h"

namespace moesim::calibration {

struct FitNetworksOptions {
  std::string provenance;
  std::function<void(const std::string&)> progress;  // told what is being fitted; may be empty
};

// One profile for each of networks() and models::kLineRate. `profile_of` gives the profile of a GPU (what
// stays inside a node comes from there). Every law starts from that of all networks together, each network
// with the same weight, and moves as far as its own rows say; what no row of a network tells apart stays
// there. Rows that the data set flags as suspect are counted and left out.
std::vector<models::NetworkProfile> fit_networks(
    const Measurements& measurements, const std::function<const models::Profile&(const Device&)>& profile_of,
    const FitNetworksOptions& options = {});

}  // namespace moesim::calibration
