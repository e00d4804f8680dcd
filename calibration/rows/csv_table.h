// Strict reader of comma-separated tables with '#' comment lines; every error names its line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_error.h"

namespace moesim::calibration {

// A table whose first non-comment line names the columns. Fields may be in double quotes ("" is a quote).
class CsvTable {
 public:
  // Throws InputError for a table without a header, a repeated or empty column name, a row with another
  // number of fields, an unfinished quote. `file`: for messages. `refused`: takes the errors of such rows,
  // which are then left out.
  static CsvTable parse(std::string_view text, std::string file, std::vector<InputError>* refused = nullptr);

  std::size_t rows() const { return lines_.size(); }
  const std::vector<std::string>& columns() const { return columns_; }
  bool has(std::string_view column) const;

  // Returns a field by row and column name. Throws InputError for an unknown column.
  const std::string& text(std::size_t row, std::string_view column) const;
  // Return a finite number in [low, high] (an integer without fraction). Throw InputError with the line for
  // others.
  double number(std::size_t row, std::string_view column, double low, double high) const;
  long long integer(std::size_t row, std::string_view column, long long low, long long high) const;
  std::optional<double> optional_number(std::size_t row, std::string_view column, double low,
                                        double high) const;

  SourcePlace place(std::size_t row) const { return {file_, lines_[row], 0}; }

 private:
  std::size_t column_index(std::string_view column) const;

  std::string file_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> cells_;
  std::vector<long> lines_;
};

}  // namespace moesim::calibration
