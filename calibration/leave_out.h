// Honest errors: refit without some rows, forecast exactly these.
#pragma once

#include <string>

#include "calibration/check.h"
#include "calibration/measurements.h"

namespace moesim::calibration {

// What is left out, one group after another, for every GPU:
//   "sizes"   one message size of the collectives inside a node (not the smallest and largest: extrapolation)
//   "ranks"   one GPU count of the collectives inside a node
//   "nodes"   one node count of the collectives across nodes of one machine
//   "shapes"  one (n, k) of dense GEMMs; one (hidden, intermediate, experts) of expert FFNs
//   "gpus"    a whole GPU, forecast from its data sheet and its relative's rows: collectives inside a domain,
//   GEMMs
// Groups that would leave nothing to fit from are not tried. Throws InputError for another word.
CheckReport leave_out(const Measurements& measurements, const std::string& what);

}  // namespace moesim::calibration
