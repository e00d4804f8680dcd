// A timeline as Chrome trace events: opens in ui.perfetto.dev and chrome://tracing.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "sim/task_graph.h"
#include "sim/timeline.h"

namespace moesim::tools {

// A process per rank, a track per stream, one slice per task (a transfer is preceded by a slice "wait for
// rank N" while it waits), flow arrows from the last arrival of a collective to its other members. Needs
// Detail::full. Trace-event times are microseconds; `metadata` stands under "otherData".
std::string timeline_json(const sim::TaskGraph& graph, const sim::Timeline& timeline,
                          const nlohmann::ordered_json& metadata);

}  // namespace moesim::tools
