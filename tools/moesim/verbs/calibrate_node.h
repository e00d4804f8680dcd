// `moesim calibrate node`: from the bare node to a cluster file in one command.
#pragma once

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

Run declare_node(CLI::App& app);

}  // namespace moesim::tools
