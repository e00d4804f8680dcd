// Leave-one-machine-out error before and after refining: each published machine is treated once as the user's
// own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "calibration/check/check.h"
#include "calibration/rows/measurements.h"

namespace moesim::calibration {

inline constexpr std::size_t kOwnRows = 12;

// A machine with published rows, forecast from those of all others.
struct OwnRowsCase {
  std::string gpu, machine;  // "H100-SXM5-80GB", "together-nccl-tests NCCL 2.27"
  std::string base;          // the profile fitted to the others: of a GPU or of a network
  std::string nearest;       // network chosen by the few rows, with `choose`
  bool same_kind = true;     // other machines have the same network, or the same GPU
  CheckReport before;        // all its rows but kOwnRows, under the laws of the others
  CheckReport after;         // the same rows after kOwnRows of the machine have refined the laws
};

// Returns machines with at least so many rows besides the kOwnRows, for each operation (`by_law`) or for all
// operations of a machine together, over which the few rows are then spread. Collectives inside a node and
// between nodes, and dispatch kernels. The base is the machine's own network or GPU, or with `choose` the
// network that the few rows choose.
std::vector<OwnRowsCase> own_rows_cases(const Measurements& all, bool by_law, bool choose = false);

}  // namespace moesim::calibration
