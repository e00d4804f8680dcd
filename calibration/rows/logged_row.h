// A row of a collectives' benchmark as its tool prints it, and what its columns say of the ranks: size,
// count, time and the two bandwidths follow from each other, so that a row of another operation or of another
// number of ranks gives itself away.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/input_error.h"
#include "sim/graph/collective.h"

namespace moesim::calibration {

// A printed number: it stands for all that are rounded to it.
struct Rounded {
  double value = 0;
  double half = 0;  // half of its last digit

  // Of a number as it is written ("12.90", "1.2e+05"); nullopt where it is none.
  static std::optional<Rounded> parse(std::string_view text);
  double low() const { return value - half; }
  double high() const { return value + half; }
};

struct LoggedRow {
  SourcePlace place;
  double bytes = 0;             // "size"
  std::optional<double> count;  // elements; what they are per depends on the operation
  std::string type;
  std::optional<std::string> redop;  // "sum", ...; "none": none was done; nullopt: the tool does not say
  Rounded time, algbw, busbw;        // in `time_unit` seconds, GB/s
  double time_unit = 1e-6;

  double seconds() const { return time.value * time_unit; }
};

// An operation by any of its names: "all_reduce", "AllReduce", "nccl_allreduce", "all_reduce_perf",
// "alltoall".
std::optional<sim::CollectiveOp> op_named(std::string_view name);

// The one collective that a file's name or a text names, as nccl-tests calls it ("all_reduce", "reduce",
// "alltoallv"); empty where it names none or several. `text`: words in any case, joined by anything.
std::string test_named(std::string_view text);

// "float", "half", ... as NCCL's tests call them; 0: none of them.
int element_size(std::string_view type);

// What columns say of the number of ranks.
struct RankRange {
  double low = 1, high = 1e9;
  bool contains(double ranks) const { return low <= ranks && ranks <= high; }
  std::string text() const;  // "16", "71 to 73", "65 or more"
};

// Of a row of that operation: its size is count x ranks elements (or, for reductions and broadcasts, count),
// and busbw / algbw is what NCCL's tests define (doc/PERFORMANCE.md of nccl-tests): 2 (n-1) / n of
// all_reduce, (n-1) / n of operations that gather or scatter, 1 of the others. Old versions give all_gather
// and reduce_scatter a factor of 1 and bandwidths of (n-1) / n of the size. Throws InputError for columns
// that no number of ranks explains.
RankRange ranks_of(const LoggedRow& row, sim::CollectiveOp op);

// Throws InputError where the columns of the row are not those of `op` among `ranks` ranks: count, reduction,
// bandwidth, and their ratio. `said_by`: where the ranks are from, "the rank lines".
void check_row(const LoggedRow& row, sim::CollectiveOp op, int ranks, const std::string& said_by);

}  // namespace moesim::calibration
