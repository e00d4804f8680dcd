#include "tools/moesim/show/timeline_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/input_error.h"

namespace moesim::tools {

std::uint32_t TextPool::add(std::string_view text) {
  const auto at = index_.find(text);
  if (at != index_.end()) return at->second;
  const auto number = static_cast<std::uint32_t>(list_.size());
  list_.emplace_back(text);
  index_.emplace(list_.back(), number);
  return number;
}

std::size_t TimelineView::slice_count() const {
  std::size_t count = 0;
  for (const Track& track : tracks) count += track.slices.size();
  return count;
}

std::vector<std::pair<int, int>> parse_ranges(const std::string& option, const std::string& text) {
  std::vector<std::pair<int, int>> ranges;
  const auto fail = [&]() -> void {
    throw InputError(fmt::format("{}: found {}, expected numbers and ranges from 0, as 0-3,8", option, text));
  };
  const auto number = [&](std::string_view digits) {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value < 0 || digits.empty()) fail();
    return value;
  };
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view piece = std::string_view(text).substr(at, comma - at);
    const std::size_t dash = piece.find('-');
    const int from = number(piece.substr(0, dash));
    const int to = dash == std::string_view::npos ? from : number(piece.substr(dash + 1));
    if (to < from) fail();
    ranges.emplace_back(from, to);
    at = comma + 1;
  }
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

namespace {

bool holds(const std::vector<std::pair<int, int>>& ranges, int value) {
  return ranges.empty() || std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
           return range.first <= value && value <= range.second;
         });
}

}  // namespace

bool TimelineBounds::holds_rank(int rank) const { return holds(ranks, rank); }
bool TimelineBounds::holds_microbatch(int microbatch) const { return holds(microbatches, microbatch); }

void TimelineOptions::declare(CLI::App& app) {
  app.add_option("--timeline-ranks,--ranks", ranks,
                 "Ranks in the timeline, as 0-3,8 [as many as stay readable; all up to some hundred]")
      ->type_name("LIST");
  app.add_option("--timeline-microbatches", microbatches, "Microbatches in the timeline, as 0-1 [all]")
      ->type_name("LIST");
}

TimelineBounds TimelineOptions::bounds(std::size_t most_slices, bool drawn) const {
  if (!drawn && !(ranks.empty() && microbatches.empty()))
    throw InputError(fmt::format("{}: found no timeline, expected --timeline or --report beside it",
                                 ranks.empty() ? "--timeline-microbatches" : "--timeline-ranks"));
  TimelineBounds out;
  if (!ranks.empty()) out.ranks = parse_ranges("--timeline-ranks", ranks);
  if (!microbatches.empty()) out.microbatches = parse_ranges("--timeline-microbatches", microbatches);
  out.most_slices = most_slices;
  return out;
}

void join_short_slices(TimelineView& view, std::size_t most) {
  using Slice = TimelineView::Slice;
  if (view.slice_count() <= most) return;
  const std::size_t before = view.slice_count();
  std::int64_t shortest = std::max<std::int64_t>(1, view.end_ps >> 20);
  for (; view.slice_count() > most && shortest < view.end_ps; shortest *= 2) {
    for (TimelineView::Track& track : view.tracks) {
      std::vector<Slice> kept;
      // A run of short slices without visible gaps becomes one slice of its longest category.
      for (std::size_t i = 0; i < track.slices.size();) {
        std::size_t end = i + 1;
        const auto is_short = [&](std::size_t s) {
          return track.slices[s].to_ps - track.slices[s].from_ps < shortest;
        };
        if (is_short(i))
          while (end < track.slices.size() && is_short(end) &&
                 track.slices[end].from_ps - track.slices[end - 1].to_ps < shortest &&
                 track.slices[end].to_ps - track.slices[i].from_ps < 8 * shortest)
            ++end;
        if (end == i + 1) {
          kept.push_back(track.slices[i]);
        } else {
          std::array<std::int64_t, sim::kCategories> time{};
          for (std::size_t s = i; s < end; ++s)
            time[static_cast<std::size_t>(track.slices[s].category)] +=
                track.slices[s].to_ps - track.slices[s].from_ps;
          const auto longest =
              static_cast<sim::Category>(std::max_element(time.begin(), time.end()) - time.begin());
          kept.push_back(
              {view.names.add(fmt::format("short operations, most of them {}", sim::name(longest))), longest,
               track.slices[i].from_ps, track.slices[end - 1].to_ps});
        }
        i = end;
      }
      track.slices = std::move(kept);
    }
  }
  view.left_out.push_back(fmt::format("{} of {} slices, shorter than {:.3g} us, were joined with neighbours",
                                      before - view.slice_count(), before,
                                      static_cast<double>(shortest) / 2 * 1e-6));
}

}  // namespace moesim::tools
