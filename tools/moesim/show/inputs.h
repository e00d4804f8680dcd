// What a result was computed from: everything needed to run it again, with the SHA-256 of every input file.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "models/workload/scenario.h"
#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

// {"command": [...], "seed": n, "files": what was read so far, by path: {"sha256": ...}}.
nlohmann::ordered_json describe_inputs(const CommonOptions& options);
// The same with "scenario", complete, and "settings": every setting that is not its default, and its origin.
nlohmann::ordered_json describe_inputs(const CommonOptions& options, const models::Scenario& scenario);
// The same "files".
nlohmann::ordered_json files_read();

}  // namespace moesim::tools
