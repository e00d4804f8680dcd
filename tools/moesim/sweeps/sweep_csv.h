// Cells of comma-separated lines (RFC 4180, without line breaks in cells).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/input_error.h"

namespace moesim::tools {

// Throws InputError at `place` for a quote that is not closed.
std::vector<std::string> csv_cells(std::string_view line, const SourcePlace& place);

}  // namespace moesim::tools
