// Tables of a collectives' benchmark on their way to measurements: which operation, which ranks, which GPU. A
// log is read by one reader, JSON by another; what is right is decided here, once.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/rows/import_logs.h"
#include "calibration/rows/logged_row.h"

namespace moesim::calibration {

inline constexpr double kMostSeconds = 1e5;  // of a call; more is a wrong unit

// A rank as the tool lists it.
struct RankLine {
  int rank = 0;
  std::string host, device, gpu, group;
};

// Ranks by their numbers; some may be left out where a log was cut for a document.
struct RankLines {
  std::vector<RankLine> lines;
  bool cut = false;    // an ellipsis stood between them
  long long told = 0;  // "nranks" of NCCL's own lines; 0: there are none

  // Throws InputError for a rank that stands there twice.
  void add(RankLine line, const SourcePlace& place);
  int ranks() const;  // by the highest number
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

  // What is said of the table that comes next, or that is open.
  void name(const std::string& test) { name_ = test; }
  // Throws InputError where the open table already has another name.
  void name_last(const std::string& test, const SourcePlace& place);
  RankLines& ranks() { return ranks_; }
  void set_library(std::string library) { library_ = std::move(library); }
  void set_library_code(long long code);  // NCCL_VERSION_CODE
  // Where nothing names a version.
  void set_default_library(std::string library) { default_library_ = std::move(library); }
  void set_shape(NodesOf shape) { shape_ = shape; }

  void add(LoggedRow row) { rows_.push_back(std::move(row)); }
  // Turns the rows into measurements. The name goes with them: a table behind is of another test. Throws
  // InputError for what is missing or contradicts.
  void finish();

  void note(std::string text) { result_.notes.push_back(std::move(text)); }
  // All of it; throws InputError where there is nothing, at `last_line`.
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
  std::string left_out_;  // the last table that was
  Imported result_;
};

// "NVIDIA H100 80GB HBM3" as profiles call it; the text itself for a GPU that is not known.
std::string canonical_gpu(std::string_view name);

}  // namespace moesim::calibration
