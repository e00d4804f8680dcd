// A row of a collective benchmark as its tool prints it. Size, count, time and the two bandwidths determine
// each other, which reveals a row of another operation or number of ranks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/input_error.h"
#include "sim/graph/collective.h"

namespace moesim::calibration {

// A printed number, standing for all numbers that round to it.
struct Rounded {
  double value = 0;
  double half = 0;  // half a unit of its last digit

  // Parses a printed number ("12.90", "1.2e+05"); nullopt for other text.
  static std::optional<Rounded> parse(std::string_view text);
  double low() const { return value - half; }
  double high() const { return value + half; }
};

struct LoggedRow {
  SourcePlace place;
  double bytes = 0;             // "size"
  std::optional<double> count;  // elements; their meaning depends on the operation
  std::string type;
  std::optional<std::string> redop;  // "sum", ...; "none": no reduction; nullopt: not printed
  Rounded time, algbw, busbw;        // in `time_unit` seconds, GB/s
  double time_unit = 1e-6;

  double seconds() const { return time.value * time_unit; }
};

// Returns the operation of any of its names: "all_reduce", "AllReduce", "nccl_allreduce", "all_reduce_perf",
// "alltoall".
std::optional<sim::CollectiveOp> op_named(std::string_view name);

// Returns the one collective that a file name or text names, as nccl-tests does ("all_reduce", "reduce",
// "alltoallv"); empty for none or several. `text`: words in any case and with any separators.
std::string test_named(std::string_view text);

// Returns the size of "float", "half", ... as NCCL's tests name them; 0: unknown.
int element_size(std::string_view type);

// The number of ranks that the columns imply.
struct RankRange {
  double low = 1, high = 1e9;
  bool contains(double ranks) const { return low <= ranks && ranks <= high; }
  std::string text() const;  // "16", "71 to 73", "65 or more"
};

// Returns the ranks of a row of that operation: its size is count x ranks elements (or, for reductions and
// broadcasts, count), and busbw / algbw follows NCCL's tests (doc/PERFORMANCE.md of nccl-tests): 2 (n-1) / n
// for all_reduce, (n-1) / n for operations that gather or scatter, 1 for the others. Old versions give
// all_gather and reduce_scatter a factor of 1 and bandwidths of (n-1) / n of the size. Throws InputError for
// columns that no number of ranks explains.
RankRange ranks_of(const LoggedRow& row, sim::CollectiveOp op);

// Throws InputError where the row's columns contradict `op` on `ranks` ranks: count, reduction, bandwidth,
// and their ratio. `said_by`: source of the ranks, "the rank lines".
void check_row(const LoggedRow& row, sim::CollectiveOp op, int ranks, const std::string& said_by);

}  // namespace moesim::calibration
