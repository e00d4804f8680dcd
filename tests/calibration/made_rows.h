// Rows made from a law's own formula, which a fit finds again.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "base/random.h"
#include "calibration/rows/measurements.h"

namespace moesim::calibration {

inline Origin of_a_law() { return {{}, "H100-SXM5-80GB", "a law"}; }

// A factor that scatters by 1 %.
inline double noise(Random& random) { return std::exp(0.01 * random.normal()); }

// One row for every rank count and power of two from 512 bytes to 512 MiB, inside one node.
inline std::vector<CollectiveRow> rows_of_law(sim::CollectiveOp op, const std::vector<int>& counts,
                                              const std::function<double(int, double)>& seconds) {
  std::vector<CollectiveRow> rows;
  for (const int n : counts)
    for (int power = 9; power <= 29; ++power) {
      const double bytes = std::ldexp(1.0, power);
      CollectiveRow row;
      row.origin = of_a_law();
      row.op = op;
      row.gpus_per_node = n;
      row.bytes = bytes;
      row.seconds = seconds(n, bytes);
      row.library = "NCCL 2.29.2";
      row.datatype = "half";
      rows.push_back(row);
    }
  return rows;
}

}  // namespace moesim::calibration
