// Inputs of a result: everything needed to compute it again, with the SHA-256 of every input file.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "models/workload/scenario.h"
#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

// Returns {"command": [...], "seed": n, "files": files read so far, by path: {"sha256": ...}}.
nlohmann::ordered_json describe_inputs(const CommonOptions& options);
// Likewise with the complete "scenario", and "settings": every setting that differs from its default, with
// its origin.
nlohmann::ordered_json describe_inputs(const CommonOptions& options, const models::Scenario& scenario);
// Returns that "files" object.
nlohmann::ordered_json files_read();

}  // namespace moesim::tools
