// `moesim calibrate refine`: a few rows of one's own machine move a built-in profile.
#pragma once

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

Run declare_refine(CLI::App& app);

}  // namespace moesim::tools
