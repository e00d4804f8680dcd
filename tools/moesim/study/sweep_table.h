// The table of a sweep: inputs, then results, one row per answer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/cell.h"
#include "tools/moesim/show/columns.h"

namespace moesim::tools {

enum class RowFormat : std::uint8_t { kCsv, kJsonLines };

using Cells = std::vector<Cell>;

// Display of a column's cells: unchanged, with a number of digits, as a share, in bytes, or in microseconds
// with one unit for all rows.
enum class CellStyle : std::uint8_t { kText, kWhole, kThree, kFour, kPercent, kGigabytes, kTime };

// A column of a table of many answers, for the files, the summary, the front and the page.
struct SweepColumn {
  std::string name;
  Digits digits = {};       // for numbers
  std::string head = name;  // for people
  CellStyle style = CellStyle::kText;
  std::string told = {};    // for the best: "{} tokens/s/GPU"
  std::string path = name;  // in the JSON of an answer
  bool text = false;        // even where it looks like a number
  nlohmann::ordered_json schema = {};
  bool maybe = false;  // some rows have no cell
};

// The columns of `paths` ("dispatcher,days=days.value", a path with a name of its own) of answers with this schema,
// and their cells of an answer.
std::vector<SweepColumn> columns_of(const nlohmann::ordered_json& answers, std::string_view paths);
Cells cells_of(const std::vector<SweepColumn>& columns, const nlohmann::ordered_json& answer);

// The columns of `paths`, and the figures that they show.
template <class Answer>
struct SweepRows {
  SweepRows() = default;
  SweepRows(const Columns<Answer>& all, std::string_view paths) : columns(columns_of(all.schema(), paths)) {
    std::set<std::string> added;
    for (const SweepColumn& one : columns)
      for (const std::string& path : {one.path, one.path.substr(0, one.path.find('.'))})
        if (added.insert(path).second) figures.add(all.some({path}));
  }

  Columns<Answer> figures;
  std::vector<SweepColumn> columns;
};

// The schema of a row: those `usual` columns that have a cell in every row are required, or an error.
nlohmann::ordered_json row_schema(std::string_view title, const std::vector<SweepColumn>& all,
                                  const std::vector<SweepColumn>& usual);

// A row of a table: a cell per column.
struct SweepRow {
  std::uint64_t scenario = 0;
  std::size_t bytes = 0;  // of its text
  Cells cells;
};

class SweepTable {
 public:
  // `found`: columns after those of the paths. An axis with the name of such a column replaces it. The last
  // column is "error".
  SweepTable(RowFormat format, const std::vector<ScenarioPath>& axes, std::vector<SweepColumn> found);

  RowFormat format() const { return format_; }
  std::string header() const;  // "" for JSON lines
  const std::vector<SweepColumn>& columns() const { return columns_; }
  std::optional<std::size_t> find(std::string_view name) const;
  std::size_t at(std::string_view name) const;    // for an existing column
  std::size_t inputs() const { return inputs_; }  // the first columns: the number and the axes before `found`
  const std::vector<std::string>& axes() const { return axes_; }  // swept columns

  // Returns the cell as in the file, without quotes.
  std::string text(std::size_t column, const Cell& cell) const {
    return cell_text(cell, columns_[column].digits);
  }

  // Appends the line of a row of point `index` to `out`. `values`: of the axes, `found`: cells of the result
  // columns; missing ones at the end are empty.
  void write(std::string& out, std::uint64_t index, const std::vector<PathValue>& values, const Cells& found,
             const std::string& error = "") const;
  // Likewise for a point without any answer.
  void write_error(std::string& out, std::uint64_t index, const std::vector<PathValue>& values,
                   const std::string& error) const;

  // Reads the rows of whole lines that write() made; skips a header.
  using Take = std::function<void(SweepRow&&)>;
  void read(std::string_view lines, const Take& take) const;
  // Throws InputError where the file cannot be read.
  void read_file(const std::string& path, const Take& take) const;

  // Returns the number of the point of a row (without its line end); nullopt for a line that is not a row.
  static std::optional<std::uint64_t> index_of(std::string_view row);

 private:
  RowFormat format_;
  std::vector<SweepColumn> columns_;
  std::vector<std::string> axes_;
  std::size_t inputs_ = 1;
  std::vector<std::optional<std::size_t>> found_column_;  // of each axis: its position in `found`, if any
};

}  // namespace moesim::tools
