// Extracts measured collectives from a realistic recording.
#pragma once

#include <string>

#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"

namespace moesim::tools {

// Returns the durations of collectives in a realistic recording, from the calls inside its forward and
// backward steps. The member that arrives last does not wait, so an instance's duration is that of its
// fastest member; instances of one call and group are averaged.
//
// * Exchanges of rows right after the experts' products give `collectives`: there the host is ahead of the
//   GPU, the call's start event waits behind the products, and the duration is the transfer. Uneven splits
//   are completed from the rows that each rank holds (replay/recording/recorded_routing.h) and written as the
//   equal all-to-all that takes as long.
// * All other calls give `exposed_calls`: the GPU waits while the host launches them, so that the duration is
//   launch and transfer together and says nothing about the links.
//
// `facts`: GPU (required), source, library; gpus_per_node (0 = 8) tells which groups lie inside a node.
// Throws InputError for a scaling recording (its communication moved no data), one without collectives,
// members that disagree.
calibration::Measurements import_recording(const std::string& folder, const calibration::ImportFacts& facts);

}  // namespace moesim::tools
