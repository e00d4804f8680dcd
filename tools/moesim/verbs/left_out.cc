#include "tools/moesim/verbs/left_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "base/statistics.h"
#include "calibration/rows/publication.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/verbs/error_figures.h"

namespace moesim::tools {

nlohmann::ordered_json left_out_json(const std::vector<calibration::Refit>& refits) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const calibration::Refit& one : refits)
    all.push_back({{"source", one.publication},
                   {"constant", one.constant},
                   {"shipped", one.shipped},
                   {"value", one.value},
                   {"rows", one.rows}});
  return all;
}

std::string left_out_text(const std::vector<calibration::Refit>& refits) {
  std::string text;
  for (const calibration::Refit& one : refits)
    text += fmt::format("without {}: {} {:.3g} for {:.3g}, {}\n", one.publication, one.constant, one.value,
                        one.shipped,
                        one.rows > 0 ? fmt::format("fitted to {} rows of others", one.rows)
                                     : std::string("its value without any row"));
  return text;
}

std::string left_out_text(const calibration::CheckReport& report) {
  std::map<std::array<std::string, 3>, std::vector<const calibration::CheckedRow*>> groups;
  for (const calibration::CheckedRow& row : report.rows)
    groups[{calibration::publication_of(row.origin.source), row.op, row.scope}].push_back(&row);
  Table table({{"left out", Table::Align::kLeft},
               {"operation", Table::Align::kLeft},
               {"where", Table::Align::kLeft},
               {"rows"},
               {"median |error|"},
               {"bias"},
               {"in interval"}});
  for (const auto& [key, rows] : groups) {
    std::vector<double> errors, magnitudes;
    for (const calibration::CheckedRow* row : rows) {
      errors.push_back(row->error());
      magnitudes.push_back(std::abs(row->error()));
    }
    const auto covered =
        std::ranges::count_if(rows, [](const calibration::CheckedRow* row) { return row->covered(); });
    table.row({key[0], key[1], key[2], fmt::format("{}", rows.size()), percent(median(magnitudes)).substr(1),
               percent(median(errors)), fmt::format("{}", covered)});
  }
  return table.text() + "\n";
}

}  // namespace moesim::tools
