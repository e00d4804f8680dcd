// The passes of a training step, stage by stage.
#include <fmt/format.h>

#include <algorithm>

#include "tools/moesim/show/timeline_view.h"

namespace moesim::tools {

namespace {

using Kind = models::PipelineSlot::Kind;

// The colours of a replay's steps.
sim::Category category_of(Kind kind) {
  return kind == Kind::kForward ? sim::Category::attention : sim::Category::expert;
}

}  // namespace

TimelineView pipeline_view(const models::Answer& forecast, const TimelineBounds& bounds) {
  TimelineView view;
  view.title = forecast.dispatcher;
  view.of = "stage";
  std::size_t hidden = 0;
  for (const models::SlotTrace& slot : forecast.slots) {
    view.ranks = std::max(view.ranks, slot.stage + 1);
    view.end_ps = std::max(view.end_ps, slot.to);
    if (view.tracks.empty() || view.tracks.back().rank != slot.stage)
      view.tracks.push_back({slot.stage, "passes", {}});
    if (!bounds.holds_microbatch(slot.slot.microbatch)) {
      ++hidden;
      continue;
    }
    const std::string name =
        fmt::format("{} {}{}", models::name_of(slot.slot.kind), slot.slot.microbatch,
                    slot.slot.chunk > 0 ? fmt::format(", chunk {}", slot.slot.chunk) : "");
    view.tracks.back().slices.push_back(
        {view.names.add(name), category_of(slot.slot.kind), slot.from, slot.to});
  }
  if (hidden > 0) view.left_out.push_back(fmt::format("{} of {} passes", hidden, forecast.slots.size()));
  join_short_slices(view, bounds.most_slices);
  return view;
}

}  // namespace moesim::tools
