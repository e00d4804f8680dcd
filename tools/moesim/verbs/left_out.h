// Output of --leave-out source.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "calibration/check/check.h"
#include "calibration/training/step_constants.h"

namespace moesim::tools {

// Shows the constants refitted without a publication.
nlohmann::ordered_json left_out_json(const std::vector<calibration::Refit>& refits);
std::string left_out_text(const std::vector<calibration::Refit>& refits);

// Shows the errors of every publication that was left out of a fit, by kind of row.
std::string left_out_text(const calibration::CheckReport& report);

}  // namespace moesim::tools
