// The products that a row of grouped ones stands for, by its kind: "grouped dgrad half" is what our bench
// says of backend, pass and skew; other tables name a kernel and mean balanced forward products.
#pragma once

#include <cstdint>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/device_work.h"

namespace moesim::calibration {

models::GemmPass pass_of(const GroupedGemmRow& row);
models::GemmBackend backend_of(const GroupedGemmRow& row);
// Rows of every expert: equally many; of "half" half of all on the first one, and of what is left half on the
// next and so on, the remainder on the first (calibration/bench/cuda/gemm.cu).
std::vector<std::int64_t> experts_of(const GroupedGemmRow& row);

}  // namespace moesim::calibration
