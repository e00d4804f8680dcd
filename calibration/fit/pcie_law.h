// Collectives among cards of one node that have no links of their own: PCIe and the host carry them.
//
// A GPU reaches share(n) of its PCIe link, one way, when n GPUs of the node move at once: the root ports, the
// links between sockets and the memory of the host are shared. Published rates of boxes with PCIe 4 and 5 fit
//   share(n) = pair (2 / n)^e
// with an exponent for rings (all-reduce, all-gather, reduce-scatter) and one for exchanges, and a factor for
// cards without peer-to-peer access, whose copies pass the host's memory. The time of small messages grows
// with n. Boxes differ by more than cards do, so the law's scatter is that of the boxes.
#pragma once

#include <string>

#include "models/hardware/gpu_family.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

struct PcieShares {
  double pair = 0;  // share of the link that two GPUs reach
  double ring = 0, exchange = 0;
  double through_memory = 1;                 // factor of cards without peer-to-peer access
  double latency = 0, latency_per_rank = 0;  // seconds
  double sigma = 0;                          // log standard deviation of published boxes around the law

  double share(bool exchanges, double ranks, models::GpuFamily::Links links) const;
};

// Fitted to the published rates, once.
const PcieShares& pcie_shares();

// The law of a collective's key ("collective/all_gather/scaleup") on cards with such links.
models::ParameterSet pcie_law(const std::string& key, double link_bandwidth, models::GpuFamily::Links links);

}  // namespace moesim::calibration
