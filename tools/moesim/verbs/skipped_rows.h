// Rows of a published table that were left out, each with its reason.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "calibration/training/training_rows.h"

namespace moesim::tools {

// Returns the rows for results: line, source, gpu, model, reason.
nlohmann::ordered_json skipped_json(const calibration::TrainingTable& table);

// Returns a line per reason, with the number of rows.
std::string skipped_text(const calibration::TrainingTable& table);

}  // namespace moesim::tools
