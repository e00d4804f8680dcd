// A recorded run, and the passes of a step, as timelines.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tools/moesim/show/timeline_view.h"

namespace moesim::tools {

namespace {

using replay::Step;

std::int64_t ps(double us) { return std::llround(us * 1e6); }

sim::Category category_of(const Step& step) {
  if (replay::is_p2p(step.kind)) return sim::Category::p2p;
  if (replay::is_gradient_sync(step.kind)) return sim::Category::grad_sync;
  return replay::segment_category(step, 0);
}

// The colours of a replay's steps.
sim::Category category_of(models::PipelineSlot::Kind kind) {
  return kind == models::PipelineSlot::Kind::kForward ? sim::Category::attention : sim::Category::expert;
}

// Clocks have a resolution of 0.01 ms, by which neighbours may overlap.
void put(TimelineView::Track& track, TimelineView::Slice slice) {
  if (!track.slices.empty()) slice.from_ps = std::max(slice.from_ps, track.slices.back().to_ps);
  if (slice.from_ps < slice.to_ps) track.slices.push_back(slice);
}

}  // namespace

TimelineView timeline_view(std::string title, const replay::RecordedJob& measured, int gpus_per_node,
                           const TimelineBounds& bounds) {
  TimelineView view;
  view.title = std::move(title);
  view.ranks = measured.topology.world();
  std::map<int, double> first;  // by node
  for (const replay::RankSteps& rank : measured.ranks)
    for (const Step& step : rank.steps) {
      if (step.start_us <= 0) continue;
      const auto [at, added] = first.try_emplace(rank.rank / gpus_per_node, step.start_us);
      if (!added) at->second = std::min(at->second, step.start_us);
    }
  std::set<int> all, gone;
  std::size_t hidden_ranks = 0;
  for (const replay::RankSteps& rank : measured.ranks) {
    if (!bounds.holds_rank(rank.rank)) {
      ++hidden_ranks;
      continue;
    }
    TimelineView::Track steps{rank.rank, "steps", {}}, calls{rank.rank, "compute", {}};
    const auto zero = first.find(rank.rank / gpus_per_node);
    bool second_of_pair = false;
    for (const Step& step : rank.steps) {
      const bool second = second_of_pair;
      second_of_pair = step.fused_with_next;
      all.insert(step.microbatch);
      if (zero == first.end() || step.start_us <= 0) continue;  // a line written without a clock
      const double start = step.start_us - zero->second;
      view.end_ps = std::max(view.end_ps, ps(start + step.duration_us));
      if (!bounds.holds_microbatch(step.microbatch)) {
        gone.insert(step.microbatch);
        continue;
      }
      const sim::Category whole = category_of(step);
      if (!second)
        put(steps, {view.names.add(fmt::format("{} {}", replay::name(step.kind), step.microbatch)), whole,
                    ps(start), ps(start + step.duration_us)});
      double at = start;
      for (std::size_t s = 0; s < step.segments_us.size(); ++s) {
        const sim::Category category = replay::segment_category(step, s);
        put(calls, {view.names.add(fmt::format("{} {}", replay::name(step.kind), sim::name(category))),
                    category, ps(at), ps(at + step.segments_us[s])});
        at += step.segments_us[s];
        if (s == step.calls.size()) break;
        const replay::Call& call = step.calls[s];
        put(calls, {view.names.add(fmt::format("{} {}", sim::name(call.op), replay::name(call.group))),
                    replay::call_category(step, s), ps(at), ps(at + call.recorded_us),
                    view.notes.add("as recorded, waiting included")});
        at += call.recorded_us;
      }
      if (!second && (replay::is_p2p(step.kind) || replay::is_gradient_sync(step.kind)))
        put(calls, {view.names.add(replay::name(step.kind)), whole, ps(at), ps(start + step.duration_us),
                    view.notes.add("as recorded, waiting included")});
    }
    view.tracks.push_back(std::move(steps));
    view.tracks.push_back(std::move(calls));
  }
  if (hidden_ranks > 0)
    view.left_out.push_back(fmt::format("{} of {} ranks", hidden_ranks, measured.ranks.size()));
  if (!gone.empty()) view.left_out.push_back(fmt::format("{} of {} microbatches", gone.size(), all.size()));
  join_short_slices(view, bounds.most_slices);
  return view;
}

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
