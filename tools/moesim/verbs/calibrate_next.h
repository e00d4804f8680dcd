// `moesim calibrate next`: the rows whose measurement would settle a scenario's decision.
#pragma once

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

Run declare_next(CLI::App& app);

}  // namespace moesim::tools
