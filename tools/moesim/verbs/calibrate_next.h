// `moesim calibrate next`: the rows whose measurement would settle a scenario's decision.
#pragma once

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

Run declare_next(CLI::App& app);
nlohmann::ordered_json schema_of_calibrate_next();

}  // namespace moesim::tools
