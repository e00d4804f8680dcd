// A comparison as Chrome trace events and as a report.
#include <algorithm>
#include <cstddef>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "models/hardware/cluster.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/timeline_json.h"

namespace moesim::tools {

namespace {

// Shows the winner first.
std::vector<const models::Answer*> winner_first(const models::Comparison& c) {
  std::vector<const models::Answer*> all;
  for (const models::Answer& a : c.answers)
    if (a.ok()) all.push_back(&a);
  const auto at = std::find(all.begin(), all.end(), c.winner());
  if (at != all.end()) std::rotate(all.begin(), at, at + 1);
  return all;
}

std::vector<TimelineView> views_of(const std::vector<const models::Answer*>& answers,
                                   const TimelineBounds& bounds) {
  std::vector<TimelineView> views;
  TimelineBounds share = bounds;
  share.most_slices /= std::max<std::size_t>(1, answers.size());
  for (const models::Answer* answer : answers)
    if (!answer->slots.empty()) views.push_back(pipeline_view(*answer, share));
  for (const models::Answer* answer : answers) views.push_back(timeline_view(*answer, share));
  return views;
}

}  // namespace

std::string comparison_timeline(const models::Comparison& c, const CommonOptions& common,
                                const TimelineBounds& bounds) {
  std::vector<const models::Answer*> answers;
  for (const models::Answer& a : c.answers)
    if (a.ok()) answers.push_back(&a);
  return timeline_json(views_of(answers, bounds), comparison_json(c, Detail::kNone, common)["inputs"]);
}

std::string comparison_report(const models::Comparison& c, const CommonOptions& common, TimelineBounds bounds,
                              const std::vector<Around>& around) {
  ReportExtras extras;
  bounds.most_slices = kReportSlices;
  const std::vector<const models::Answer*> answers = winner_first(c);
  extras.timelines = views_of(answers, bounds);
  for (const models::Answer* answer : answers)
    if (!answer->slots.empty()) extras.pipelines.push_back(pipeline_picture(*answer));
  for (const models::Answer* answer : answers) extras.matrices.push_back(traffic_matrix(*answer));
  extras.gpus_per_node = c.scenario->cluster->gpus_per_node;
  return report_text("compare", comparison_json(c, Detail::kRanks, common, around), extras);
}

}  // namespace moesim::tools
