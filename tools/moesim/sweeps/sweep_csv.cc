#include "tools/moesim/sweeps/sweep_csv.h"

#include <nlohmann/json.hpp>

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
