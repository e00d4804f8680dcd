// Fits the collective laws of models/costs/size_curve.h and models/costs/network_law.h to nccl-tests rows of
// one GPU.
#pragma once

#include <string>
#include <vector>

#include "calibration/fit/least_squares.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/cluster.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Fits law "size-curve" of one operation inside a scale-up domain: latency linear in the ranks, then knots
// where the slope changes by more than the rows scatter. Knots need every rank count measured at the same
// sizes; missing sizes are interpolated. Rows of one operation, at least two sizes.
models::ParameterSet fit_size_curve(const std::vector<CollectiveRow>& rows);

// Time of one rank count at one size.
struct CurvePoint {
  int ranks;
  double bytes;
  double seconds;
};

// Likewise from points (which may include derived rank counts); `scatter`: log standard deviation of the rows
// behind them.
models::ParameterSet curve_through(const std::vector<CurvePoint>& points, double scatter);

// Returns the median time per (rank count, size), sorted.
std::vector<CurvePoint> medians(const std::vector<CollectiveRow>& rows);

// Fits law "network" of one operation on one machine; `cluster` gives its ports. Fits only parameters that
// the rows can distinguish.
models::ParameterSet fit_network(const models::Cluster& cluster, const std::vector<CollectiveRow>& rows);

inline constexpr double kNetworksDiffer = 0.4;  // log standard deviation of a parameter between networks

// A row, the ports that it was measured on, and its weight.
struct NetworkRow {
  const models::Cluster* cluster;
  const CollectiveRow* row;
  double weight;
};
// Likewise for rows of several machines, with all parameters of the law: each stays near its value in `prior`
// (or near common figures) as far as the rows allow.
models::ParameterSet fit_networks_law(sim::CollectiveOp op, const std::vector<NetworkRow>& rows,
                                      const models::ParameterSet* prior);
// Returns log(model / measured) of every row, weighted.
std::vector<double> network_residuals(const models::ParameterSet& set, sim::CollectiveOp op,
                                      const std::vector<NetworkRow>& rows);

// Fits names, values, covariance and residual of a set whose parameters all have priors.
void fit_with_priors(models::ParameterSet& set, const std::vector<FittedParameter>& parameters,
                     const LawResiduals& residuals);

// Returns points of further rank counts for one operation of one device and library, where physics gives more
// than interpolation between two measured counts.
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
