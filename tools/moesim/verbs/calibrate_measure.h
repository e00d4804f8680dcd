// The `measure` part of `moesim calibrate`.
#pragma once

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

Run declare_measure(CLI::App& app);

}  // namespace moesim::tools
