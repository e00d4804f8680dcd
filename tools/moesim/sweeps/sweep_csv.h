// Cells of comma-separated lines (RFC 4180, without line breaks in cells), and of rows of sweeps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/input_error.h"

namespace moesim::tools {

// Throws InputError at `place` for a quote that is not closed.
std::vector<std::string> csv_cells(std::string_view line, const SourcePlace& place);

// The cells of a sweep's row, CSV or a JSON line, in the order of the columns; "" for what a row has not.
std::vector<std::string> row_cells(std::string_view line, const std::vector<std::string>& columns);

}  // namespace moesim::tools
