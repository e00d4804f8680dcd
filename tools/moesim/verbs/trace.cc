// `moesim trace`: examines, checks and converts recordings.
#include "tools/moesim/verbs/trace.h"

namespace moesim::tools {

Verb trace_verb() {
  return {
      "trace", "info, check, convert and synthesize recordings",
      "  moesim trace info traces/samples/synthetic/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/scaling\n"
      "  moesim trace check profiler_log/pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024 --format json",
      [](CLI::App& trace) -> Run {
        return declare_commands(
            trace,
            {{"info", "what a recording is: side, topology, operations, what is missing", declare_trace_info},
             {"check", "exit 1 when a replay of the recording would stumble", declare_trace_check},
             {"convert",
              "write a recording, CMD files or traces of the PyTorch profiler or of Chakra, as CMD files; "
              "routers' choices as a dispatching file",
              declare_trace_convert},
             {"synthesize", "make recordings from the models, to try things out", declare_trace_synthesize,
              "  moesim trace synthesize --out synthetic --routing zipf:1.2 --seed 7\n"
              "  moesim trace synthesize --out synthetic --model qwen3-30b-a3b --pp 4 --ep 2 --dp 4 --seq "
              "2048"}});
      }};
}

}  // namespace moesim::tools
