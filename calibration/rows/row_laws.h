// Maps rows to laws of a profile, and to the calls that the laws price. A library version, an element type or
// a machine can have its own law, stored beside the default under "<key>@<variant>".
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/costs/expert_ffn.h"
#include "models/hardware/device_work.h"
#include "models/hardware/dtype.h"
#include "models/hardware/group_shape.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// "collective/all_reduce/scaleup" or ".../network".
std::string collective_key(sim::CollectiveOp op, bool network);

// Returns whether the row is an integer reduction, which has its own laws (no reduction in the switch, slower
// arithmetic); moves have not.
bool integer_reduction(const CollectiveRow& row);

// Returns the bytes of a row as a call of the simulator counts them: of an all-gather or reduce-scatter one piece.
double call_bytes(const CollectiveRow& row);

// Returns the first `most` of sources, up to their first comma unless `whole`, and how many more there are.
std::string sources_of(const std::set<std::string>& sources, std::size_t most, bool whole = true);

// Returns value(row) of every row.
template <class Rows, class Value>
std::vector<double> values_of(const Rows& rows, const Value& value) {
  std::vector<double> values;
  values.reserve(rows.size());
  for (const auto& row : rows) values.push_back(static_cast<double>(value(row)));
  return values;
}

// Returns whether the members of a row lie in one scale-up domain of the device.
bool inside_domain(const CollectiveRow& row, const models::Profile& profile);

// Returns the shape of a row's members on the device's scale-up domains: where a domain is a rack of nodes,
// on the fewest racks that hold them, equally many on each.
models::GroupShape shape_of(const CollectiveRow& row, const models::DeviceLimits& device);

// Keeps the fastest of the rows of one call whose source forced an algorithm, as NCCL would choose.
std::vector<CollectiveRow> fastest_algorithms(const std::vector<CollectiveRow>& rows);

// Returns the element type of a row's text, ignoring remarks after the first word ("fp16 (not stated
// clearly)"). Throws InputError for an unknown one.
models::DType dtype_of(const std::string& text);

// Returns whether dtype_of accepts the text.
bool known_dtype(const std::string& text);

// Return the keys to try for a row, from the most specific to the default.
std::vector<std::string> law_keys(const CollectiveRow& row, bool network);
std::vector<std::string> law_keys(const GemmRow& row);
std::vector<std::string> law_keys(const FfnRow& row);

// The products of a row of grouped GEMMs, from its kind: "grouped dgrad half" is our benchmark's backend,
// pass and skew; other tables name a kernel and mean balanced forward products.
models::GemmPass pass_of(const GroupedGemmRow& row);
models::GemmBackend backend_of(const GroupedGemmRow& row);
// Returns the key of the law that prices the row: one launch for all experts has its own, a loop over experts
// and a strided batch run the library's dense kernel. Throws InputError for an unknown element type.
std::string grouped_law_key(const GroupedGemmRow& row);
// Returns rows of every expert: equal; or for "half" half of all on the first, half of the rest on the next
// and so on, the remainder on the first (calibration/bench/cuda/gemm.cu).
std::vector<std::int64_t> experts_of(const GroupedGemmRow& row);

// Rows per local expert in published FFN benchmarks, from the description of their collection.

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
