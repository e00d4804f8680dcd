// Cells of comma-separated lines (RFC 4180, without line breaks in cells).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/input_error.h"

namespace moesim {

// Returns foreign text as a CSV cell: on one line, quoted where necessary, with an apostrophe before text
// that a spreadsheet would evaluate as a formula.
std::string csv_cell(std::string_view text);

// Splits a line into cells. A cell that begins with a quote, after blanks, ends with the next single quote;
// "" inside stands for one. Throws InputError at `place` for an unclosed quote.
std::vector<std::string> csv_cells(std::string_view line, const SourcePlace& place);

}  // namespace moesim
