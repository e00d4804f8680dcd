// Cells of the rows of sweeps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moesim::tools {

// The cells of a sweep's row, CSV or a JSON line, in the order of the columns; "" for what a row has not.
std::vector<std::string> row_cells(std::string_view line, const std::vector<std::string>& columns);

}  // namespace moesim::tools
