// The layer of each dispatcher as Chrome trace events and as a report.
#include <algorithm>
#include <cstddef>

#include <nlohmann/json.hpp>

#include "models/hardware/cluster.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/timeline_json.h"
#include "tools/moesim/verbs/compare_layer.h"

namespace moesim::tools {

namespace {

std::vector<TimelineView> views_of(const replay::LayerComparison& comparison, const TimelineBounds& bounds) {
  std::vector<TimelineView> views;
  TimelineBounds share = bounds;
  share.most_slices /= comparison.forecasts.size();
  for (const replay::DispatcherForecast& forecast : comparison.forecasts)
    views.push_back(timeline_view(forecast, share));
  return views;
}

}  // namespace

std::string layer_timeline(const replay::LayerComparison& comparison, const CommonOptions& common,
                           const TimelineBounds& bounds) {
  return timeline_json(views_of(comparison, bounds),
                       layer_json(comparison, LayerDetail::kNone, common)["inputs"]);
}

void write_layer_report(const std::string& path, const replay::LayerComparison& comparison,
                        const CommonOptions& common, TimelineBounds bounds) {
  ReportExtras extras;
  bounds.most_slices = kReportSlices;
  extras.timelines = views_of(comparison, bounds);
  // The winner is the one to show first.
  std::rotate(extras.timelines.begin(), extras.timelines.begin() + comparison.winner,
              extras.timelines.begin() + comparison.winner + 1);
  for (const replay::DispatcherForecast& forecast : comparison.forecasts)
    extras.matrices.push_back(traffic_matrix(forecast));
  std::rotate(extras.matrices.begin(), extras.matrices.begin() + comparison.winner,
              extras.matrices.begin() + comparison.winner + 1);
  extras.gpus_per_node = comparison.scenario.cluster->gpus_per_node;
  write_report(path, "compare", layer_json(comparison, LayerDetail::kRanks, common), extras);
}

}  // namespace moesim::tools
