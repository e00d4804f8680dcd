// Timelines of simulated iterations.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/check.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/show/traffic_matrix.h"

namespace moesim::tools {

namespace {

using sim::TaskId;

// Returns the most informative ranks when not all can be shown: the one that ends last, those that compute
// and wait most and least, then an even choice.
std::vector<int> telling_ranks(const sim::Timeline& timeline, std::size_t count) {
  const auto ranks = timeline.ranks();
  std::set<int> chosen{static_cast<int>(timeline.critical_rank().value())};
  const auto extremes = [&](const auto& value) {
    const auto [low, high] = std::minmax_element(
        ranks.begin(), ranks.end(), [&](const auto& a, const auto& b) { return value(a) < value(b); });
    for (const auto at : {high, low})
      if (chosen.size() < count) chosen.insert(static_cast<int>(at - ranks.begin()));
  };
  extremes([](const sim::RankSummary& r) { return r.busy; });
  extremes([](const sim::RankSummary& r) { return r.straggler_wait; });
  extremes([](const sim::RankSummary& r) { return r.bubble; });
  for (std::size_t i = 0; chosen.size() < count && i < count; ++i)
    chosen.insert(static_cast<int>(i * ranks.size() / count));
  return {chosen.begin(), chosen.end()};
}

class Builder {
 public:
  Builder(std::string title, const sim::TaskGraph& graph, const sim::Timeline& timeline,
          const TimelineBounds& bounds)
      : graph_(graph), timeline_(timeline), bounds_(bounds) {
    view_.title = std::move(title);
    view_.ranks = static_cast<int>(graph.rank_count());
    view_.end_ps = timeline.iteration().ps();
    choose_ranks();
    note_of_cause_.assign(5, TimelineView::kNone);
  }

  void leave_out(std::span<const replay::StepSpan> spans) {
    if (bounds_.microbatches.empty()) return;
    hidden_.assign(graph_.task_count(), false);
    std::set<int> all, gone;
    for (const replay::StepSpan& span : spans) {
      all.insert(span.microbatch);
      if (bounds_.holds_microbatch(span.microbatch)) continue;
      gone.insert(span.microbatch);
      for (TaskId task = span.first;; task = graph_.next_on_stream(task)) {
        hidden_[sim::index(task)] = true;
        if (task == span.last) break;
      }
    }
    if (!gone.empty())
      view_.left_out.push_back(fmt::format("{} of {} microbatches", gone.size(), all.size()));
  }

  void add_steps(std::span<const replay::StepSpan> spans) {
    std::map<int, std::size_t> track_of;
    const auto add = [&](int rank, std::string stream, const replay::StepSpan& span) {
      const auto [at, added] = track_of.try_emplace(rank, view_.tracks.size());
      if (added) view_.tracks.push_back({rank, std::move(stream), {}});
      TimelineView::Track& track = view_.tracks[at->second];
      const std::int64_t from = timeline_.start(span.first).ps(), to = timeline_.end(span.last).ps();
      const std::int64_t free = track.slices.empty() ? 0 : track.slices.back().to_ps;
      if (to <= std::max(from, free)) return;  // the other half of a fused pair
      track.slices.push_back({view_.names.add(fmt::format("{} {}", replay::name(span.kind), span.microbatch)),
                              category_of(span), std::max(from, free), to});
    };
    for (const replay::StepSpan& span : spans)
      if (shown(span.rank) && bounds_.holds_microbatch(span.microbatch)) add(span.rank, "steps", span);
  }

  TimelineView run() {
    check(timeline_.has_tasks(), "a timeline with tasks");
    const std::size_t steps = view_.tracks.size();
    for (std::size_t s = 0; s < graph_.stream_count(); ++s) {
      const sim::StreamId stream(static_cast<std::uint32_t>(s));
      if (shown(rank_of(stream))) add_stream(stream);
    }
    add_arrows();
    if (steps > 0) sort_tracks();
    add_counters();
    for (const sim::LinkUse& use : timeline_.links())
      view_.links.push_back({fmt::format("link {}", use.link.value()), use.bytes, use.utilisation});
    std::stable_sort(view_.links.begin(), view_.links.end(),
                     [](const auto& a, const auto& b) { return a.utilisation > b.utilisation; });
    join_short_slices(view_, bounds_.most_slices);
    return std::move(view_);
  }

 private:
  int rank_of(sim::StreamId stream) const { return static_cast<int>(graph_.rank_of(stream).value()); }
  bool hidden(TaskId task) const { return !hidden_.empty() && hidden_[sim::index(task)]; }
  bool shown(int rank) const { return shown_[static_cast<std::size_t>(rank)]; }

  void choose_ranks() {
    const std::size_t R = graph_.rank_count();
    shown_.assign(R, false);
    if (!bounds_.ranks.empty()) {
      for (std::size_t r = 0; r < R; ++r) shown_[r] = bounds_.holds_rank(static_cast<int>(r));
    } else {
      const std::size_t per_rank =
          std::max<std::size_t>(1, graph_.task_count() * 2 / std::max<std::size_t>(1, R));
      const std::size_t count = std::clamp<std::size_t>(bounds_.most_slices / per_rank, 4, R < 4 ? 4 : R);
      if (count >= R)
        shown_.assign(R, true);
      else
        for (const int rank : telling_ranks(timeline_, count)) shown_[static_cast<std::size_t>(rank)] = true;
    }
    const auto count = static_cast<std::size_t>(std::count(shown_.begin(), shown_.end(), true));
    if (count < R) view_.left_out.push_back(fmt::format("{} of {} ranks", R - count, R));
  }

  static sim::Category category_of(const replay::StepSpan& span) {
    using replay::StepKind;
    switch (span.kind) {
      case StepKind::forward:
        return sim::Category::attention;
      case StepKind::backward:
        return sim::Category::expert;
      case StepKind::loss:
        return sim::Category::loss;
      case StepKind::optimizer:
        return sim::Category::optimizer;
      default:
        return replay::is_p2p(span.kind)             ? sim::Category::p2p
               : replay::is_gradient_sync(span.kind) ? sim::Category::grad_sync
                                                     : sim::Category::other;
    }
  }

  // Tasks that start together (a send and a receive) overlap; the second ones go to a separate track.
  void put(std::size_t track, std::size_t& beside, const TimelineView::Slice& slice) {
    if (slice.to_ps <= slice.from_ps) return;
    auto& mine = view_.tracks[track].slices;
    if (mine.empty() || mine.back().to_ps <= slice.from_ps) {
      mine.push_back(slice);
      return;
    }
    if (beside == kNoTrack) {
      beside = view_.tracks.size();
      const TimelineView::Track& own = view_.tracks[track];
      view_.tracks.push_back({own.rank, own.stream + ", beside", {}});
    }
    auto& other = view_.tracks[beside].slices;
    TimelineView::Slice rest = slice;
    if (!other.empty()) rest.from_ps = std::max(rest.from_ps, other.back().to_ps);
    if (rest.from_ps < rest.to_ps) other.push_back(rest);
  }

  void add_stream(sim::StreamId stream) {
    if (!graph_.first_of(stream).valid()) return;
    const std::size_t track = view_.tracks.size();
    std::size_t beside = kNoTrack;
    view_.tracks.push_back({rank_of(stream), std::string(sim::name(graph_.kind_of(stream))), {}});
    track_of_stream_[stream] = track;
    for (TaskId task = graph_.first_of(stream); task.valid(); task = graph_.next_on_stream(task)) {
      if (hidden(task)) continue;
      const sim::Label& label = graph_.label(task);
      const std::uint32_t name = view_.names.add(label.name);
      const std::int64_t start = timeline_.start(task).ps(), end = timeline_.end(task).ps();
      if (graph_.kind(task) != sim::TaskKind::member) {
        put(track, beside, {name, label.category, start, end, note_of(timeline_.cause(task))});
        continue;
      }
      const sim::CollectiveId collective = graph_.collective(task);
      const std::int64_t begin = timeline_.begin(collective).ps();
      if (begin > start) {
        const TaskId last = timeline_.last_arrival(collective);
        put(track, beside,
            {view_.names.add(fmt::format("wait for rank {}", graph_.rank(last).value())),
             sim::Category::straggler_wait, start, begin,
             view_.notes.add(fmt::format("before {}", label.name))});
      }
      put(track, beside, {name, label.category, begin, end, note_of(sim::Cause::rendezvous)});
    }
  }

  std::uint32_t note_of(sim::Cause cause) {
    std::uint32_t& note = note_of_cause_[static_cast<std::size_t>(cause)];
    if (note == TimelineView::kNone) {
      static constexpr const char* kText[] = {"waited for nothing", "waited for the operation before it",
                                              "waited for another stream", "waited for the host",
                                              "waited for the last member to come"};
      note = view_.notes.add(kText[static_cast<std::size_t>(cause)]);
    }
    return note;
  }

  void add_arrows() {
    for (std::size_t c = 0; c < graph_.collective_count(); ++c) {
      const sim::CollectiveId collective(static_cast<std::uint32_t>(c));
      const auto members = graph_.members(collective);
      const std::uint32_t name = view_.names.add(graph_.label(graph_.label_of(collective)).name);
      const std::int64_t begin = timeline_.begin(collective).ps();
      const auto add = [&](TaskId from, TaskId to, bool message) {
        const auto a = track_of_stream_.find(graph_.stream(from)),
                   b = track_of_stream_.find(graph_.stream(to));
        if (a == track_of_stream_.end() || b == track_of_stream_.end()) return;
        if (hidden(from) || hidden(to)) return;
        view_.arrows.push_back({static_cast<std::uint32_t>(a->second), static_cast<std::uint32_t>(b->second),
                                begin, message ? timeline_.end(to).ps() : begin, name, message});
      };
      if (graph_.shape(collective).op == sim::CollectiveOp::send_recv) {
        add(members[0], members[1], true);
        continue;
      }
      const TaskId from = timeline_.last_arrival(collective);
      if (timeline_.end(from).ps() <= begin) continue;
      for (const TaskId to : members)
        if (to != from && timeline_.end(to).ps() > begin) add(from, to, false);
    }
  }

  void sort_tracks() {
    std::vector<std::uint32_t> order(view_.tracks.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return view_.tracks[a].rank < view_.tracks[b].rank;
    });
    std::vector<std::uint32_t> place(order.size());
    std::vector<TimelineView::Track> sorted;
    for (std::size_t i = 0; i < order.size(); ++i) {
      place[order[i]] = static_cast<std::uint32_t>(i);
      sorted.push_back(std::move(view_.tracks[order[i]]));
    }
    view_.tracks = std::move(sorted);
    for (TimelineView::Arrow& arrow : view_.arrows) {
      arrow.from_track = place[arrow.from_track];
      arrow.to_track = place[arrow.to_track];
    }
  }

  void add_counters() {
    // Sent bytes of a rank, as the mean rate of each transfer.
    std::vector<std::map<std::int64_t, double>> change(graph_.rank_count());
    for (std::size_t c = 0; c < graph_.collective_count(); ++c) {
      const sim::CollectiveId collective(static_cast<std::uint32_t>(c));
      const sim::CollectiveShape shape = graph_.shape(collective);
      const auto members = graph_.members(collective);
      const std::int64_t begin = timeline_.begin(collective).ps();
      for (std::size_t m = 0; m < members.size(); ++m) {
        const auto rank = static_cast<int>(graph_.rank(members[m]).value());
        const std::int64_t end = timeline_.end(members[m]).ps();
        if (!shown(rank) || end <= begin || hidden(members[m])) continue;
        const double rate =
            bytes_sent(shape, m) / static_cast<double>(end - begin) * 1e3;  // bytes per ps to GB/s
        change[static_cast<std::size_t>(rank)][begin] += rate;
        change[static_cast<std::size_t>(rank)][end] -= rate;
      }
    }
    for (std::size_t r = 0; r < graph_.rank_count(); ++r) {
      if (!shown(static_cast<int>(r))) continue;
      if (change[r].empty()) continue;
      TimelineView::Counter counter{static_cast<int>(r), "sending [GB/s]", {}};
      double rate = 0;
      for (const auto& [when, by] : change[r]) {
        rate += by;
        if (rate < 1e-6) rate = 0;  // rounding of sums of differences
        if (counter.points.empty() || counter.points.back().second != rate)
          counter.points.emplace_back(when, rate);
      }
      view_.counters.push_back(std::move(counter));
    }
  }

  static constexpr std::size_t kNoTrack = static_cast<std::size_t>(-1);

  const sim::TaskGraph& graph_;
  const sim::Timeline& timeline_;
  const TimelineBounds& bounds_;
  TimelineView view_;
  std::vector<bool> shown_;
  std::vector<bool> hidden_;  // by task; empty: none
  std::map<sim::StreamId, std::size_t> track_of_stream_;
  std::vector<std::uint32_t> note_of_cause_;
};

}  // namespace

TimelineView timeline_view(std::string title, const sim::TaskGraph& graph, const sim::Timeline& timeline,
                           const TimelineBounds& bounds) {
  return Builder(std::move(title), graph, timeline, bounds).run();
}

TimelineView timeline_view(std::string title, const replay::Iteration& iteration,
                           const TimelineBounds& bounds) {
  Builder builder(std::move(title), iteration.graph, iteration.timeline, bounds);
  builder.leave_out(iteration.spans);
  builder.add_steps(iteration.spans);
  return builder.run();
}

}  // namespace moesim::tools
