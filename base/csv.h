// Cells of comma-separated lines (RFC 4180, without line breaks in cells).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/input_error.h"

namespace moesim {

// Foreign text as a cell of a CSV file: on one line, in quotes where it has to be. A spreadsheet does not
// compute it: what would be a formula gets an apostrophe in front.
std::string csv_cell(std::string_view text);

// The cells of a line. A cell that begins with a quote, after blanks, ends with the next single quote; ""
// inside stands for one. Throws InputError at `place` for a quote that is not closed.
std::vector<std::string> csv_cells(std::string_view line, const SourcePlace& place);

}  // namespace moesim
