// The table of a sweep: what was put in, and behind it what was found, a row per answer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/cell.h"

namespace moesim::tools {

enum class RowFormat : std::uint8_t { kCsv, kJsonLines };

// How people see cells of a column: as they are, with a number of digits, as a share, in bytes, or in
// microseconds that all rows show in one unit.
enum class CellStyle : std::uint8_t { kText, kWhole, kThree, kFour, kPercent, kGigabytes, kTime };

// A column, described once for the files, the summary, the front and the page.
struct SweepColumn {
  std::string name;         // JSON path
  bool text = false;        // even where it looks like a number
  Digits digits = {};       // of numbers
  std::string head = name;  // for people
  CellStyle style = CellStyle::kText;
  std::string told = {};  // of the best: "{} tokens/s/GPU"
};

using Cells = std::vector<Cell>;

// A column of a kind of sweep, and how its cell follows from an answer.
template <class Answer>
struct FoundColumn {
  SweepColumn column;
  std::function<Cell(const Answer&)> cell;
};

template <class Answer>
Cells cells_of(const std::vector<FoundColumn<Answer>>& columns, const Answer& answer) {
  Cells cells;
  cells.reserve(columns.size());
  for (const auto& one : columns) cells.push_back(one.cell(answer));
  return cells;
}

template <class Answer>
std::vector<SweepColumn> columns_of(const std::vector<FoundColumn<Answer>>& found) {
  std::vector<SweepColumn> columns;
  columns.reserve(found.size());
  for (const auto& one : found) columns.push_back(one.column);
  return columns;
}

// A row in memory: a cell per column of the table, as printed.
struct SweepRow {
  std::uint64_t scenario = 0;
  std::size_t bytes = 0;  // of its text
  Cells cells;
};

class SweepTable {
 public:
  // `found`: columns behind those of the paths. An axis that is called like one of them stands in its place.
  // Behind all is "error".
  SweepTable(RowFormat format, const std::vector<ScenarioPath>& axes, std::vector<SweepColumn> found);

  RowFormat format() const { return format_; }
  std::string header() const;  // "" for JSON lines
  const std::vector<SweepColumn>& columns() const { return columns_; }
  std::optional<std::size_t> find(std::string_view name) const;
  std::size_t at(std::string_view name) const;    // of a column that is there
  std::size_t inputs() const { return inputs_; }  // the first columns: the number and the axes before `found`
  const std::vector<std::string>& axes() const { return axes_; }  // columns that are swept over

  // The cell as it stands in the file, without quotes.
  std::string text(std::size_t column, const Cell& cell) const {
    return cell_text(cell, columns_[column].digits);
  }

  // Appends the line of a row of point `index` to `out` and returns the row. `values` are those of the axes,
  // `found` are the cells of the found columns; those left out at the end are empty.
  SweepRow write(std::string& out, std::uint64_t index, const std::vector<PathValue>& values,
                 const Cells& found, const std::string& error = "") const;
  // The row of a point that has no answer at all.
  SweepRow write_error(std::string& out, std::uint64_t index, const std::vector<PathValue>& values,
                       const std::string& error) const;

  // Reads the rows of whole lines that write() made; a header is skipped.
  using Take = std::function<void(SweepRow&&)>;
  void read(std::string_view lines, const Take& take) const;
  // Throws InputError where the file cannot be read.
  void read_file(const std::string& path, const Take& take) const;

  // The number of the point that a row (without its line end) belongs to; nullopt for what is no row.
  static std::optional<std::uint64_t> index_of(std::string_view row);

 private:
  RowFormat format_;
  std::vector<SweepColumn> columns_;
  std::vector<std::string> axes_;
  std::size_t inputs_ = 1;
  std::vector<std::optional<std::size_t>> found_column_;  // of each axis, where it stands in one of `found`
};

}  // namespace moesim::tools
