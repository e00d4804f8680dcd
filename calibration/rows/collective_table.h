// Tables of collective benchmarks on their way to measurements: operation, ranks, GPU. Text and JSON logs
// have their own readers; this file alone decides which rows are valid.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/rows/import_logs.h"
#include "calibration/rows/logged_row.h"

namespace moesim::calibration {

inline constexpr double kMostSeconds = 1e5;  // seconds of a call; more is a wrong unit

// A rank as listed by the tool.
struct RankLine {
  int rank = 0;
  std::string host, device, gpu, group;
};

// Ranks by number; some may be missing where a log was shortened.
struct RankLines {
  std::vector<RankLine> lines;
  bool cut = false;    // an ellipsis stood between them
  long long told = 0;  // "nranks" of NCCL's own lines; 0: no such lines

  // Throws InputError for a rank listed twice.
  void add(RankLine line, const SourcePlace& place);
  int ranks() const;  // from the highest number
  bool complete() const { return !cut && static_cast<int>(lines.size()) == ranks(); }
  std::vector<std::string> hosts() const;  // in the order of their first ranks
};

struct NodesOf {
  int nodes = 1, gpus_per_node = 1;
  int ranks() const { return nodes * gpus_per_node; }
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
  void set_shape(NodesOf shape) { shape_ = shape; }

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
  std::string name_, library_, default_library_ = "NCCL (not recorded)";
  RankLines ranks_;
  std::optional<NodesOf> shape_;  // where the tool states it
  std::vector<LoggedRow> rows_;
  std::string left_out_;  // the last table left out
  Imported result_;
};

}  // namespace moesim::calibration
