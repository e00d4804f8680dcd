// Derives rank counts that were not measured where physics gives more than interpolation between two counts.
#pragma once

#include <vector>

#include "calibration/fit/fit_collectives.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"

namespace moesim::calibration {

// Returns points of further rank counts for one operation of one device and library.
//
// * all_reduce: two ranks use a ring, eight the switch (NVLS); integers are never reduced in the switch and
//   show the ring at every count. Between the two NCCL takes the better of the ring (integer rows scaled by
//   the ratio at two ranks) and the switch, whose traffic per link is (1 + 1/n) S.
// * Blackwell: its GPUs run one library on one kind of GPU and switch; where one of them has measured a count
//   (4 on GB200, 2 and 8 on the others), its curve stands in, with the excess over latency scaled to the
//   bandwidth of the device at the largest size.
//
// `rows`: the measured rows; `integer`: integer all_reduces of the same device and library; `all`: every row.
std::vector<CurvePoint> missing_rank_counts(const std::vector<CollectiveRow>& rows,
                                            const std::vector<CollectiveRow>& integer,
                                            const std::vector<CollectiveRow>& all, const Device& device);

}  // namespace moesim::calibration
