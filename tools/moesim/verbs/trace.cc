// `moesim trace`: examines, checks and converts recordings.
#include "tools/moesim/verbs/trace.h"

#include <memory>
#include <vector>

#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/show/options.h"

namespace moesim::tools {

Verb trace_verb() {
  return {"trace", "info, check, convert and synthesize recordings",
          "  moesim trace info traces/samples/synthetic/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/scaling\n"
          "  moesim trace check profiler_log/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024 --format json",
          [](CLI::App& trace) -> Run {
            const auto commands = std::make_shared<std::vector<TraceCommand>>(
                std::vector<TraceCommand>{declare_trace_info(trace), declare_trace_check(trace),
                                          declare_trace_convert(trace), declare_trace_synthesize(trace)});
            for (const TraceCommand& each : *commands) {
              each.command->fallthrough();  // --format and similar may follow
              each.command->allow_extras();
            }
            trace.require_subcommand(0, 1);
            return [commands](const CommonOptions& options) {
              std::vector<std::string> names;
              for (const TraceCommand& each : *commands) {
                if (each.command->parsed()) return each.run(options);
                names.push_back(each.command->get_name());
              }
              throw InputError({"moesim trace"}, "no command", "one of " + join(names, ", "));
            };
          }};
}

}  // namespace moesim::tools
