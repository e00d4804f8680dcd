// The commands of `moesim trace`: each declares its options and returns its function.
#pragma once

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

Run declare_trace_info(CLI::App& app);
Run declare_trace_check(CLI::App& app);
Run declare_trace_convert(CLI::App& app);
Run declare_trace_synthesize(CLI::App& app);

}  // namespace moesim::tools
