// `moesim calibrate node`: measures a node and writes a cluster file in one command.
#pragma once

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

Run declare_node(CLI::App& app);
nlohmann::ordered_json schema_of_calibrate_node();

}  // namespace moesim::tools
