// The commands of `moesim trace`: each declares itself on the trace subcommand and returns its function.
#pragma once

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

struct TraceCommand {
  CLI::App* command = nullptr;
  Run run;
};

TraceCommand declare_trace_info(CLI::App& trace);
TraceCommand declare_trace_check(CLI::App& trace);
TraceCommand declare_trace_convert(CLI::App& trace);
TraceCommand declare_trace_synthesize(CLI::App& trace);

}  // namespace moesim::tools
