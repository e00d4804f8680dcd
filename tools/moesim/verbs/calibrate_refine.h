// `moesim calibrate refine`: refines a built-in profile with a few rows of the user's machine.
#pragma once

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

Run declare_refine(CLI::App& app);

}  // namespace moesim::tools
