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

nlohmann::ordered_json schema_of_trace_info();
nlohmann::ordered_json schema_of_trace_check();
nlohmann::ordered_json schema_of_trace_convert();
nlohmann::ordered_json schema_of_trace_synthesize();

}  // namespace moesim::tools
