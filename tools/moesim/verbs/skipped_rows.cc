#include "tools/moesim/verbs/skipped_rows.h"

#include <fmt/format.h>

#include <map>

#include <nlohmann/json.hpp>

namespace moesim::tools {

nlohmann::ordered_json skipped_json(const calibration::TrainingTable& table) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const calibration::SkippedRow& s : table.skipped)
    all.push_back(
        {{"line", s.line}, {"source", s.source}, {"gpu", s.gpu}, {"model", s.model}, {"reason", s.reason}});
  return all;
}

std::string skipped_text(const calibration::TrainingTable& table) {
  std::map<std::string, int> reasons;
  for (const calibration::SkippedRow& s : table.skipped) ++reasons[s.reason];
  std::string text;
  for (const auto& [reason, count] : reasons) text += fmt::format("skipped {}: {}\n", count, reason);
  return text;
}

}  // namespace moesim::tools
