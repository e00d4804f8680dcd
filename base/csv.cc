#include "base/csv.h"

#include <cstddef>

#include <boost/algorithm/string/replace.hpp>

#include "base/text.h"

namespace moesim {

std::string csv_cell(std::string_view text) {
  std::string cell = one_line(text);
  // A spreadsheet evaluates text with these first characters as a formula, unless it is a number.
  const std::string_view number =
      trim(cell.ends_with('%') ? std::string_view(cell).substr(0, cell.size() - 1) : std::string_view(cell));
  const bool sign = number.starts_with('+') || number.starts_with('-');
  const bool formula = cell.starts_with('=') || cell.starts_with('@') ||
                       (sign && number.size() > 1 && !parse_number(number.substr(1)));
  if (formula) cell.insert(0, 1, '\'');
  if (cell.find_first_of(",\"") == std::string::npos) return cell;
  boost::replace_all(cell, "\"", "\"\"");
  return '"' + cell + '"';
}

std::vector<std::string> csv_cells(std::string_view line, const SourcePlace& place) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"')
      cells.back() += line[++i];
    else if (quoted && c == '"')
      quoted = false;
    else if (!quoted && c == '"' && trim(cells.back()).empty())
      quoted = true;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += c;
  }
  if (quoted) throw InputError(place, "an unfinished quote", "a closing '\"' on the same line");
  return cells;
}

}  // namespace moesim
