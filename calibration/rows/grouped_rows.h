// The products of a row of grouped GEMMs, from its kind: "grouped dgrad half" is our benchmark's backend,
// pass and skew; other tables name a kernel and mean balanced forward products.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/device_work.h"

namespace moesim::calibration {

models::GemmPass pass_of(const GroupedGemmRow& row);
models::GemmBackend backend_of(const GroupedGemmRow& row);
// Returns the key of the law that prices the row: one launch for all experts has its own, a loop over experts
// and a strided batch run the library's dense kernel. Throws InputError for an unknown element type.
std::string grouped_law_key(const GroupedGemmRow& row);
// Returns rows of every expert: equal; or for "half" half of all on the first, half of the rest on the next
// and so on, the remainder on the first (calibration/bench/cuda/gemm.cu).
std::vector<std::int64_t> experts_of(const GroupedGemmRow& row);

}  // namespace moesim::calibration
