// Tables of collective benchmarks on their way to measurements: rows as their tool prints them, operation,
// ranks, GPU. Text and JSON logs have their own readers; this file alone decides which rows are valid. Size,
// count, time and the two bandwidths of a row determine each other, which reveals a row of another operation
// or number of ranks.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/rows/import_logs.h"
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
  std::string algorithm = {};  // of CollectiveRow

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

inline constexpr double kMostSeconds = 1e5;  // seconds of a call; more is a wrong unit

// A rank as listed by the tool.
struct RankLine {
  int rank = 0;
  std::string host, device, gpu, group;
};

struct NodesOf {
  int nodes = 1, gpus_per_node = 1;
  int ranks() const { return nodes * gpus_per_node; }
};

// Ranks by number; some may be missing where a log was shortened.
struct RankLines {
  std::vector<RankLine> lines;
  bool cut = false;              // an ellipsis stood between them
  long long told = 0;            // "nranks" of NCCL's own lines; 0: no such lines
  std::optional<NodesOf> shape;  // likewise "nNodes" and "localRanks"

  // Throws InputError for a rank listed twice.
  void add(RankLine line, const SourcePlace& place);
  int ranks() const;  // from the highest number
  bool complete() const { return !cut && static_cast<int>(lines.size()) == ranks(); }
  std::vector<std::string> hosts() const;  // in the order of their first ranks
};

class CollectiveTables {
 public:
  CollectiveTables(const std::string& file, const ImportFacts& facts);

  // Sets the name of the open table, or of the next one.
  void name(const std::string& test) { name_ = test; }
  // Likewise; throws InputError where the open table already has another name.
  void name_last(const std::string& test, const SourcePlace& place);
  RankLines& ranks() { return ranks_; }
  void set_library(std::string library) { library_ = std::move(library); }
  void set_library_code(long long code);  // NCCL_VERSION_CODE
  // Sets the library for files that name no version.
  void set_default_library(std::string library) { default_library_ = std::move(library); }
  // Sets the kind of network that NCCL's own lines name.
  void set_network(std::string kind) { network_ = std::move(kind); }
  void set_shape(NodesOf shape) { shape_ = shape; }
  // Names what the log holds instead of measured rows.
  void leave_out(std::string what) { left_out_ = std::move(what); }

  void add(LoggedRow row) { rows_.push_back(std::move(row)); }
  // Turns the rows into measurements and clears the name: the next table is of another test. Throws
  // InputError for missing or contradictory values.
  void finish();

  void note(std::string text) { result_.notes.push_back(std::move(text)); }
  // Returns everything; throws InputError at `last_line` where there is nothing.
  Imported imported(long last_line);

 private:
  std::string test() const;
  RankRange range_of(sim::CollectiveOp op) const;
  NodesOf shape_of(sim::CollectiveOp op) const;
  std::optional<NodesOf> given_shape(const RankRange& range) const;
  void check_hosts(const NodesOf& shape, const RankRange& range) const;
  std::string gpu() const;
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const;

  std::string file_;
  ImportFacts facts_;
  std::string name_, network_, library_, default_library_ = "NCCL (not recorded)";
  RankLines ranks_;
  std::optional<NodesOf> shape_;  // where the tool states it
  std::vector<LoggedRow> rows_;
  std::string left_out_;  // the last table left out
  Imported result_;
};

}  // namespace moesim::calibration
