// What a few rows of one's own are worth, on published tables: every machine once as if it were one's own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "calibration/check/check.h"
#include "calibration/rows/measurements.h"

namespace moesim::calibration {

inline constexpr std::size_t kOwnRows = 12;

// A machine that published rows, forecast from those of all others.
struct OwnRowsCase {
  std::string gpu, machine;  // "H100-SXM5-80GB", "together-nccl-tests NCCL 2.27"
  std::string base;          // the profile of the others: a GPU's, or a network's
  std::string nearest;       // the network whose laws the few rows chose, where they were asked
  bool same_kind = true;     // others were measured on the same network, or the same GPU
  CheckReport before;        // its rows but kOwnRows of them, by the others' laws
  CheckReport after;         // the same rows, when those few have moved the laws
};

// Machines with at least so many rows beside their own ones, each operation (`by_law`), or all operations of
// a machine together: then the few rows are spread over them. Collectives inside a node and between nodes,
// and dispatch kernels.
// The base is the machine's own network or GPU, or with `choose` the network that its few rows choose.
std::vector<OwnRowsCase> own_rows_cases(const Measurements& all, bool by_law, bool choose = false);

}  // namespace moesim::calibration
