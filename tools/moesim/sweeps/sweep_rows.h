// One scenario of a sweep as rows of a table: a row per dispatcher, columns named like the JSON paths of
// `moesim compare`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/questions/scenario_paths.h"
#include "tools/moesim/questions/whatif_evaluate.h"

namespace moesim::tools {

enum class RowFormat : std::uint8_t { kCsv, kJsonLines };

struct RowColumns {
  RowFormat format = RowFormat::kCsv;
  std::vector<ScenarioPath> paths;
  bool intervals = false;  // time_us.low, time_us.high and winner.probability
  bool breakdown = false;
  bool cost = false;
};

class SweepRows {
 public:
  explicit SweepRows(RowColumns columns);

  std::string header() const;                                       // "" for JSON lines
  const std::vector<std::string>& names() const { return names_; }  // of the columns
  // Rows of scenario `index`; `values` are those of the paths.
  void append(std::string& out, std::uint64_t index, const std::vector<PathValue>& values,
              const Evaluation& evaluation) const;
  // The one row of a scenario that could not be forecast at all.
  void append_error(std::string& out, std::uint64_t index, const std::vector<PathValue>& values,
                    const std::string& error) const;

  // The number of the scenario that a row (without its line end) belongs to; nullopt for what is no row.
  static std::optional<std::uint64_t> index_of(std::string_view row);

 private:
  class Row;
  void begin(Row& row, std::uint64_t index, const std::vector<PathValue>& values) const;

  RowColumns columns_;
  std::vector<std::string> names_;
  // Of the paths: its value is what the column of the answer's dispatcher says.
  std::optional<std::size_t> dispatcher_;
};

}  // namespace moesim::tools
