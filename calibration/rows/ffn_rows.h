// Rows per local expert of the published FFN benchmarks, from the description of how they were collected.
#pragma once

#include <cstdint>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/costs/expert_ffn.h"

namespace moesim::calibration {

// Number of routings that stand for a row: 1 where the routing is fixed, kDraws where it was drawn.
inline constexpr int kRoutingDraws = 3;

// One or more equally likely lists of M_e, one per local expert.
//   balanced: token t takes experts (t + i * ceil(E / K)) mod E, i < K (few tokens: spread over the stride);
//   power_law_a: expert loads are drawn with density x^-a between 1 and 0.8 T (0.01 and 2 where fewer rows
//   than
//     experts), scaled to T*K rows, rounded, no expert above T; with EP the rank with most rows is timed.
// Facts from the collector that made the rows (ai-dynamo/aiconfigurator, collector). Throws InputError for
// another routing name.
std::vector<std::vector<std::int64_t>> expert_rows(const FfnRow& row);

// The layer of a row as the FFN law takes it. Under EP the benchmark keeps the tokens that have an expert
// here, with all their choices: kept tokens are as many as there are local rows, at most all.
models::FfnShape ffn_shape(const FfnRow& row, const std::vector<std::vector<std::int64_t>>& draws);

}  // namespace moesim::calibration
