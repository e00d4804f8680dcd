// Fits network profiles to measured rows between nodes: the laws of every network over rows of all GPUs, and
// one pooled network for networks that were not measured.
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
  std::function<void(const std::string&)> progress;  // called with the law being fitted; may be empty
};

// Returns one profile for each of networks() and models::kLineRate. `profile_of` returns the profile of a GPU
// (for the part inside a node). Every law starts from that of all networks pooled with equal weights, and
// moves as far as its own rows require; parameters that a network's rows cannot distinguish stay. Rows
// flagged as suspect are counted and left out.
std::vector<models::NetworkProfile> fit_networks(
    const Measurements& measurements, const std::function<const models::Profile&(const Device&)>& profile_of,
    const FitNetworksOptions& options = {});

}  // namespace moesim::calibration
