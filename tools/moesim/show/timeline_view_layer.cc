// The layer of a dispatcher as a timeline.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "tools/moesim/show/timeline_view.h"

namespace moesim::tools {

namespace {

using models::OpKind;

constexpr std::array<const char*, models::kStreams> kStreamNames{"compute", "communication", "copy",
                                                                 "shared expert", "host"};

class Builder {
 public:
  Builder(const models::Answer& forecast, const TimelineBounds& bounds)
      : forecast_(forecast), bounds_(bounds), ranks_(forecast.program().ranks()) {
    view_.title = forecast.dispatcher;
    view_.ranks = ranks_;
    choose_ranks();
    for (int r = 0; r < ranks_; ++r)
      if (shown_[static_cast<std::size_t>(r)])
        for (const char* stream : kStreamNames) view_.tracks.push_back({r, stream, {}});
    sent_.resize(static_cast<std::size_t>(ranks_));
  }

  TimelineView run() {
    for (const models::PassTrace& pass : forecast_.layer) add_pass(pass);
    for (TimelineView::Track& track : view_.tracks) settle(track);
    for (std::size_t first = 0; first < view_.tracks.size(); first += models::kStreams) add_causes(first);
    add_counters();
    drop_empty_tracks();
    join_short_slices(view_, bounds_.most_slices);
    return std::move(view_);
  }

 private:
  void choose_ranks() {
    shown_.assign(static_cast<std::size_t>(ranks_), true);
    std::size_t ops = 1;
    for (const models::PassTrace& pass : forecast_.layer) ops += pass.pass().size();
    const std::size_t most = std::max<std::size_t>(4, bounds_.most_slices / ops);
    if (!bounds_.ranks.empty()) {
      for (int r = 0; r < ranks_; ++r) shown_[static_cast<std::size_t>(r)] = bounds_.holds_rank(r);
    } else if (static_cast<std::size_t>(ranks_) > most) {
      // The rank that ends last, those with most and least to compute, then an even choice.
      const auto& rows = forecast_.program().computed_rows;
      const auto [low, high] = std::minmax_element(rows.begin(), rows.end());
      std::set<int> chosen{forecast_.critical_rank, static_cast<int>(high - rows.begin()),
                           static_cast<int>(low - rows.begin())};
      for (std::size_t i = 0; i < most && chosen.size() < most; ++i)
        chosen.insert(static_cast<int>(i * static_cast<std::size_t>(ranks_) / most));
      for (int r = 0; r < ranks_; ++r) shown_[static_cast<std::size_t>(r)] = chosen.contains(r);
    }
    const auto count = static_cast<int>(std::count(shown_.begin(), shown_.end(), true));
    if (count < ranks_) view_.left_out.push_back(fmt::format("{} of {} ranks", ranks_ - count, ranks_));
    track_.assign(static_cast<std::size_t>(ranks_), 0);
    std::size_t next = 0;
    for (int r = 0; r < ranks_; ++r)
      if (shown_[static_cast<std::size_t>(r)])
        track_[static_cast<std::size_t>(r)] = models::kStreams * next++;
  }

  std::size_t track_of(int rank, models::Stream stream) const {
    return track_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(stream);
  }

  void add_pass(const models::PassTrace& part) {
    const models::Program& program = *part.program;
    const std::vector<models::Op>& pass = part.pass();
    const sim::LockstepTrace& trace = part.trace;
    if (trace.ranks != static_cast<std::size_t>(ranks_)) return;
    for (std::size_t i = 0; i < pass.size(); ++i) {
      const models::Op& op = pass[i];
      if (op.kind == OpKind::kAllocate || op.kind == OpKind::kFree || op.fused) continue;
      const std::uint32_t name = view_.names.add(op.name);
      for (int r = 0; r < ranks_; ++r) {
        const std::size_t at = i * trace.ranks + static_cast<std::size_t>(r);
        view_.end_ps = std::max(view_.end_ps, trace.end[at]);
        if (!shown_[static_cast<std::size_t>(r)]) continue;
        auto& slices = view_.tracks[track_of(r, op.stream)].slices;
        if (trace.begin[at] > trace.start[at])
          slices.push_back({view_.names.add("wait"), sim::Category::straggler_wait, trace.start[at],
                            trace.begin[at], view_.notes.add(fmt::format("before {}", op.name))});
        if (trace.end[at] > trace.begin[at])
          slices.push_back({name, op.category, trace.begin[at], trace.end[at]});
      }
      const bool whole =
          op.kind == OpKind::kCollective && program.ranks() % program.group_size(op.group) == 0;
      if (whole) add_collective(program, op, trace, i, name);
    }
  }

  // Adds the causes of waits, arrows from the member that arrived last, and the sent bytes of each member.
  void add_collective(const models::Program& program, const models::Op& op, const sim::LockstepTrace& trace,
                      std::size_t i, std::uint32_t name) {
    const std::size_t R = trace.ranks;
    const auto at = [&](int rank) { return i * R + static_cast<std::size_t>(rank); };
    for (int group = 0; group < program.group_count(op.group); ++group) {
      int last = program.rank_of(op.group, group, 0);
      for (int m = 1; m < program.group_size(op.group); ++m) {
        const int rank = program.rank_of(op.group, group, m);
        if (trace.start[at(rank)] > trace.start[at(last)]) last = rank;
      }
      const std::uint32_t wait = view_.names.add(fmt::format("wait for rank {}", last));
      for (int m = 0; m < program.group_size(op.group); ++m) {
        const int rank = program.rank_of(op.group, group, m);
        if (!shown_[static_cast<std::size_t>(rank)]) continue;
        const std::int64_t begin = trace.begin[at(rank)], end = trace.end[at(rank)];
        if (end > begin) {
          const double rate =
              static_cast<double>(program.value(op.tx, rank)) / static_cast<double>(end - begin) * 1e3;
          sent_[static_cast<std::size_t>(rank)].push_back({begin, rate});
          sent_[static_cast<std::size_t>(rank)].push_back({end, -rate});
        }
        if (rank == last || begin == trace.start[at(rank)]) continue;
        auto& slices = view_.tracks[track_of(rank, op.stream)].slices;
        const std::size_t own = slices.size() - (end > begin ? 2 : 1);
        slices[own].name = wait;
        if (shown_[static_cast<std::size_t>(last)])
          view_.arrows.push_back({static_cast<std::uint32_t>(track_of(last, op.stream)),
                                  static_cast<std::uint32_t>(track_of(rank, op.stream)), begin, begin, name});
      }
    }
  }

  // Segments of different microbatches may interleave on a stream (batch-level overlap).
  static void settle(TimelineView::Track& track) {
    std::stable_sort(track.slices.begin(), track.slices.end(),
                     [](const auto& a, const auto& b) { return a.from_ps < b.from_ps; });
    std::int64_t free = 0;
    for (TimelineView::Slice& slice : track.slices) {
      slice.from_ps = std::max(slice.from_ps, free);
      slice.to_ps = std::max(slice.to_ps, slice.from_ps);
      free = slice.to_ps;
    }
    std::erase_if(track.slices, [](const auto& slice) { return slice.to_ps <= slice.from_ps; });
  }

  // Sets the causes of the waits of a rank's slices, whose tracks begin at `first`: slices that ended when
  // they began.
  void add_causes(std::size_t first) {
    constexpr std::int64_t kSame = 1000;                     // ps
    std::vector<std::pair<std::int64_t, std::size_t>> ends;  // of its slices, with their stream
    for (std::size_t s = 0; s < models::kStreams; ++s)
      for (const TimelineView::Slice& slice : view_.tracks[first + s].slices)
        ends.emplace_back(slice.to_ps, s);
    std::sort(ends.begin(), ends.end());
    const auto ended = [&](std::int64_t when, bool on_host) {
      for (auto at = std::lower_bound(ends.begin(), ends.end(), std::pair(when - kSame, std::size_t{0}));
           at != ends.end() && at->first <= when + kSame; ++at)
        if ((at->second == static_cast<std::size_t>(models::Stream::kHost)) == on_host) return true;
      return false;
    };
    for (std::size_t s = 0; s < models::kStreams; ++s) {
      std::int64_t before = -kSame - 1;
      bool waited = false;
      for (TimelineView::Slice& slice : view_.tracks[first + s].slices) {
        const char* cause = nullptr;
        if (slice.from_ps - before <= kSame)
          cause = waited ? "waited for the last member to come" : "waited for the operation before it";
        else if (ended(slice.from_ps, false))
          cause = "waited for another stream";
        else if (ended(slice.from_ps, true))
          cause = "waited for the host";
        else if (slice.from_ps == 0)
          cause = "waited for nothing";
        if (slice.note == TimelineView::kNone && cause != nullptr) slice.note = view_.notes.add(cause);
        before = slice.to_ps;
        waited = slice.category == sim::Category::straggler_wait;
      }
    }
  }

  void add_counters() {
    TimelineView::Counter memory{forecast_.memory.rank, "memory [GB]", {}};
    for (const auto& [time_us, point] : forecast_.memory_over_time)
      memory.points.emplace_back(static_cast<std::int64_t>(time_us * 1e6), point.bytes * 1e-9);
    if (!memory.points.empty()) view_.counters.push_back(std::move(memory));
    for (std::size_t r = 0; r < sent_.size(); ++r) {
      if (sent_[r].empty()) continue;
      std::stable_sort(sent_[r].begin(), sent_[r].end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      TimelineView::Counter counter{static_cast<int>(r), "sending [GB/s]", {}};
      double rate = 0;
      for (std::size_t i = 0; i < sent_[r].size(); ++i) {
        rate += sent_[r][i].second;
        if (i + 1 < sent_[r].size() && sent_[r][i + 1].first == sent_[r][i].first) continue;
        if (rate < 1e-6) rate = 0;  // rounding of sums of differences
        counter.points.emplace_back(sent_[r][i].first, rate);
      }
      view_.counters.push_back(std::move(counter));
    }
  }

  void drop_empty_tracks() {
    std::vector<std::uint32_t> place(view_.tracks.size());
    std::vector<TimelineView::Track> kept;
    for (std::size_t t = 0; t < view_.tracks.size(); ++t) {
      place[t] = static_cast<std::uint32_t>(kept.size());
      if (!view_.tracks[t].slices.empty()) kept.push_back(std::move(view_.tracks[t]));
    }
    for (TimelineView::Arrow& arrow : view_.arrows) {
      arrow.from_track = place[arrow.from_track];
      arrow.to_track = place[arrow.to_track];
    }
    view_.tracks = std::move(kept);
  }

  const models::Answer& forecast_;
  const TimelineBounds& bounds_;
  int ranks_;
  TimelineView view_;
  std::vector<bool> shown_;
  std::vector<std::size_t> track_;                                  // by rank: its first track
  std::vector<std::vector<std::pair<std::int64_t, double>>> sent_;  // by rank: changes of its rate
};

}  // namespace

TimelineView timeline_view(const models::Answer& forecast, const TimelineBounds& bounds) {
  return Builder(forecast, bounds).run();
}

}  // namespace moesim::tools
