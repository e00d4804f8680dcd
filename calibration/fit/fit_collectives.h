// Fits the collective laws of models/costs/size_curve.h and models/costs/network_law.h to nccl-tests rows of
// one GPU.
#pragma once

#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/cluster.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Law "size-curve" of one operation inside a scale-up domain: latency linear in the ranks, then knots where
// the slope changes by more than the rows scatter. Every rank count must have been measured at the same sizes
// where knots are wanted; sizes that a count lacks are interpolated. Rows of one operation, at least two
// sizes.
models::ParameterSet fit_size_curve(const std::vector<CollectiveRow>& rows);

// Time of one rank count at one size.
struct CurvePoint {
  int ranks;
  double bytes;
  double seconds;
};

// The same from points (after an expert's derivation of a rank count that was not measured); `scatter` is the
// log standard deviation of the rows behind them.
models::ParameterSet curve_through(const std::vector<CurvePoint>& points, double scatter);

// Median time per (rank count, size) of the rows, sorted.
std::vector<CurvePoint> medians(const std::vector<CollectiveRow>& rows);

// Law "network" of one operation on one machine; `cluster` gives its ports.
models::ParameterSet fit_network(const models::Cluster& cluster, const std::vector<CollectiveRow>& rows);

}  // namespace moesim::calibration
