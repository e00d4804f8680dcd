// Rows per local expert in published FFN benchmarks, from the description of their collection.
#pragma once

#include <cstdint>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/costs/expert_ffn.h"

namespace moesim::calibration {

// Number of routings drawn for a row with random routing; a fixed routing needs 1.
inline constexpr int kRoutingDraws = 3;

// Returns one or more equally likely lists of M_e, one per local expert.
//   balanced: token t takes experts (t + i * ceil(E / K)) mod E, i < K (few tokens: spread over the stride);
//   power_law_a: expert loads are drawn with density x^-a between 1 and 0.8 T (0.01 and 2 with fewer
//     rows than experts), scaled to T*K rows, rounded, no expert above T; with EP the rank with most rows is
//     timed.
// Facts from the collector of the rows (ai-dynamo/aiconfigurator, collector). Throws InputError for another
// routing name.
std::vector<std::vector<std::int64_t>> expert_rows(const FfnRow& row);

// Returns the layer of a row for the FFN law. Under EP the benchmark keeps the tokens that have an expert
// here, with all their choices: the number of kept tokens is that of the local rows, at most all.
models::FfnShape ffn_shape(const FfnRow& row, const std::vector<std::vector<std::int64_t>>& draws);

}  // namespace moesim::calibration
