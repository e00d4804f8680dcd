#include "tools/moesim/sweeps/sweep_csv.h"

#include <nlohmann/json.hpp>

#include "base/csv.h"

namespace moesim::tools {

std::vector<std::string> row_cells(std::string_view line, const std::vector<std::string>& columns) {
  if (!line.starts_with('{')) {
    std::vector<std::string> cells = csv_cells(line, {"row of a sweep"});
    cells.resize(columns.size());
    return cells;
  }
  const auto object = nlohmann::json::parse(line);
  std::vector<std::string> cells;
  cells.reserve(columns.size());
  for (const std::string& name : columns) {
    const auto found = object.find(name);
    cells.push_back(found == object.end() ? ""
                    : found->is_string()  ? found->get<std::string>()
                                          : found->dump());
  }
  return cells;
}

}  // namespace moesim::tools
