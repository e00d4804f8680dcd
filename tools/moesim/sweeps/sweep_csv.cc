#include "tools/moesim/sweeps/sweep_csv.h"

namespace moesim::tools {

std::vector<std::string> csv_cells(std::string_view line, const SourcePlace& place) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"')
      cells.back() += line[++i];
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += c;
  }
  if (quoted) throw InputError(place, "a quote that is not closed");
  return cells;
}

}  // namespace moesim::tools
