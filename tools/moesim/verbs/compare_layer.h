// How a comparison of dispatchers on one MoE layer looks: JSON, CSV, and tables for people.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "replay/run/layer_comparison.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

// What is shown beside the summary: every message with its bytes per rank, every operation as the critical
// rank ran it, the share of each rank, the parts of the memory.
enum class LayerDetail : std::uint8_t { kNone, kMessages, kOperations, kRanks, kMemory };
LayerDetail layer_detail(const std::string& name);  // "messages", ...; anything else is kNone

nlohmann::ordered_json layer_json(const replay::LayerComparison& comparison, LayerDetail detail,
                                  const CommonOptions& common);
std::string layer_csv(const replay::LayerComparison& comparison, LayerDetail detail);
void print_layer(const replay::LayerComparison& comparison, LayerDetail detail);

// All dispatchers as Chrome trace events: a process per dispatcher and rank. Needs ComparisonOptions::trace.
std::string layer_timeline(const replay::LayerComparison& comparison, const CommonOptions& common,
                           const TimelineBounds& bounds);

// The comparison as one HTML page. Needs ComparisonOptions::trace.
void write_layer_report(const std::string& path, const replay::LayerComparison& comparison,
                        const CommonOptions& common, TimelineBounds bounds);

}  // namespace moesim::tools
