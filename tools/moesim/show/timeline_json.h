// Timelines as Chrome trace events, for ui.perfetto.dev and chrome://tracing.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/show/timeline_view.h"

namespace moesim::tools {

// A process per rank (and per view, side by side: "rank 3, forecast" above "rank 3, measured"; with more than
// two views, one view after the other), a track per stream, a slice per operation with the cause of its wait,
// flow arrows, counters. Names and colours depend on the category only. Times are microseconds with three
// decimals; `metadata` goes to "otherData", with what each view left out.
std::string timeline_json(std::span<const TimelineView> views, const nlohmann::ordered_json& metadata);

}  // namespace moesim::tools
