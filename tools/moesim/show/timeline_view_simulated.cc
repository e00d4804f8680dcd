// Timelines of simulated iterations, and of the layer of a dispatcher.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/check.h"
#include "tools/moesim/show/comparison_detail.h"
#include "tools/moesim/show/timeline_view.h"

namespace moesim::tools {

namespace {

using models::OpKind;
using sim::TaskId;

// What timelines of a task graph and of a layer share: the ranks to show, causes of waits, rates of sending.
class Builder {
 protected:
  Builder(std::string title, std::size_t ranks, const TimelineBounds& bounds)
      : bounds_(bounds), shown_(ranks, true), sent_(ranks) {
    view_.title = std::move(title);
    view_.ranks = static_cast<int>(ranks);
  }

  bool shown(int rank) const { return shown_[static_cast<std::size_t>(rank)]; }

  // Shows the ranks asked for; else as many as the slices of a rank allow: the `first` ones, then an even
  // choice.
  void show_ranks(std::size_t slices_per_rank, const std::vector<int>& first) {
    const std::size_t R = shown_.size();
    const std::size_t most =
        std::max<std::size_t>(4, bounds_.most_slices / std::max<std::size_t>(1, slices_per_rank));
    std::set<int> chosen;
    if (bounds_.ranks.empty() && most < R) {
      for (const int rank : first)
        if (chosen.size() < most) chosen.insert(rank);
      for (std::size_t i = 0; chosen.size() < most && i < most; ++i)
        chosen.insert(static_cast<int>(i * R / most));
    }
    for (int r = 0; r < view_.ranks; ++r)
      shown_[static_cast<std::size_t>(r)] = chosen.empty() ? bounds_.holds_rank(r) : chosen.contains(r);
    const auto count = static_cast<std::size_t>(std::count(shown_.begin(), shown_.end(), true));
    if (count < R) view_.left_out.push_back(fmt::format("{} of {} ranks", R - count, R));
  }

  std::uint32_t note_of(sim::Cause cause) {
    static constexpr const char* kText[] = {"waited for nothing", "waited for the operation before it",
                                            "waited for another stream", "waited for the host",
                                            "waited for the last member to come"};
    const auto at = static_cast<std::size_t>(cause);
    if (notes_[at] == TimelineView::kNone) notes_[at] = view_.notes.add(kText[at]);
    return notes_[at];
  }

  // Counts what a rank sends from `begin` to `end` as the mean rate of the transfer.
  void add_sent(int rank, std::int64_t begin, std::int64_t end, double bytes) {
    if (end <= begin) return;
    const double rate = bytes / static_cast<double>(end - begin) * 1e3;  // bytes per ps to GB/s
    sent_[static_cast<std::size_t>(rank)][begin] += rate;
    sent_[static_cast<std::size_t>(rank)][end] -= rate;
  }

  void add_sending() {
    for (std::size_t r = 0; r < sent_.size(); ++r) {
      if (sent_[r].empty()) continue;
      TimelineView::Counter counter{static_cast<int>(r), "sending [GB/s]", {}};
      double rate = 0;
      for (const auto& [when, by] : sent_[r]) {
        rate += by;
        if (rate < 1e-6) rate = 0;  // rounding of sums of differences
        if (counter.points.empty() || counter.points.back().second != rate)
          counter.points.emplace_back(when, rate);
      }
      view_.counters.push_back(std::move(counter));
    }
  }

  // Keeps the tracks of `order`, in this order.
  void keep_tracks(const std::vector<std::uint32_t>& order) {
    std::vector<std::uint32_t> place(view_.tracks.size());
    std::vector<TimelineView::Track> kept;
    for (const std::uint32_t track : order) {
      place[track] = static_cast<std::uint32_t>(kept.size());
      kept.push_back(std::move(view_.tracks[track]));
    }
    view_.tracks = std::move(kept);
    for (TimelineView::Arrow& arrow : view_.arrows) {
      arrow.from_track = place[arrow.from_track];
      arrow.to_track = place[arrow.to_track];
    }
  }

  const TimelineBounds& bounds_;
  TimelineView view_;

 private:
  std::vector<bool> shown_;
  std::vector<std::map<std::int64_t, double>> sent_;  // by rank: changes of its rate
  std::array<std::uint32_t, 5> notes_{TimelineView::kNone, TimelineView::kNone, TimelineView::kNone,
                                      TimelineView::kNone, TimelineView::kNone};
};

class IterationBuilder : Builder {
 public:
  IterationBuilder(std::string title, const sim::TaskGraph& graph, const sim::Timeline& timeline,
                   const TimelineBounds& bounds)
      : Builder(std::move(title), graph.rank_count(), bounds), graph_(graph), timeline_(timeline) {
    view_.end_ps = timeline.iteration().ps();
    choose_ranks();
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

  // The rank that ends last, then those that compute and wait most and least.
  void choose_ranks() {
    const auto ranks = timeline_.ranks();
    std::vector<int> first{static_cast<int>(timeline_.critical_rank().value())};
    for (const auto value :
         {&sim::RankSummary::busy, &sim::RankSummary::straggler_wait, &sim::RankSummary::bubble}) {
      const auto [low, high] = std::ranges::minmax_element(ranks, {}, value);
      for (const auto at : {high, low}) first.push_back(static_cast<int>(at - ranks.begin()));
    }
    show_ranks(graph_.task_count() * 2 / std::max<std::size_t>(1, graph_.rank_count()), first);
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
    keep_tracks(order);
  }

  void add_counters() {
    for (std::size_t c = 0; c < graph_.collective_count(); ++c) {
      const sim::CollectiveId collective(static_cast<std::uint32_t>(c));
      const sim::CollectiveShape shape = graph_.shape(collective);
      const auto members = graph_.members(collective);
      const std::int64_t begin = timeline_.begin(collective).ps();
      for (std::size_t m = 0; m < members.size(); ++m) {
        const auto rank = static_cast<int>(graph_.rank(members[m]).value());
        if (!shown(rank) || hidden(members[m])) continue;
        add_sent(rank, begin, timeline_.end(members[m]).ps(), bytes_sent(shape, m));
      }
    }
    add_sending();
  }

  static constexpr std::size_t kNoTrack = static_cast<std::size_t>(-1);

  const sim::TaskGraph& graph_;
  const sim::Timeline& timeline_;
  std::vector<bool> hidden_;  // by task; empty: none
  std::map<sim::StreamId, std::size_t> track_of_stream_;
};

constexpr std::array<const char*, models::kStreams> kStreamNames{"compute", "communication", "copy",
                                                                 "shared expert", "host"};

class LayerBuilder : Builder {
 public:
  LayerBuilder(const models::Answer& forecast, const TimelineBounds& bounds)
      : Builder(forecast.dispatcher, static_cast<std::size_t>(forecast.program().ranks()), bounds),
        forecast_(forecast),
        track_(static_cast<std::size_t>(view_.ranks), 0) {
    choose_ranks();
    for (int r = 0; r < view_.ranks; ++r) {
      if (!shown(r)) continue;
      track_[static_cast<std::size_t>(r)] = view_.tracks.size();
      for (const char* stream : kStreamNames) view_.tracks.push_back({r, stream, {}});
    }
  }

  TimelineView run() {
    for (const models::PassTrace& pass : forecast_.layer) add_pass(pass);
    for (TimelineView::Track& track : view_.tracks) part_slices(track);
    for (std::size_t first = 0; first < view_.tracks.size(); first += models::kStreams) add_causes(first);
    add_counters();
    drop_empty_tracks();
    join_short_slices(view_, bounds_.most_slices);
    return std::move(view_);
  }

 private:
  // The rank that ends last, then those with most and least to compute.
  void choose_ranks() {
    std::size_t ops = 1;
    for (const models::PassTrace& pass : forecast_.layer) ops += pass.pass().size();
    const auto& rows = forecast_.program().computed_rows;
    const auto [low, high] = std::ranges::minmax_element(rows);
    show_ranks(ops, {forecast_.critical_rank, static_cast<int>(high - rows.begin()),
                     static_cast<int>(low - rows.begin())});
  }

  std::size_t track_of(int rank, models::Stream stream) const {
    return track_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(stream);
  }

  void add_pass(const models::PassTrace& part) {
    const models::Program& program = *part.program;
    const std::vector<models::Op>& pass = part.pass();
    const sim::LockstepTrace& trace = part.trace;
    if (trace.ranks != static_cast<std::size_t>(view_.ranks)) return;
    for (std::size_t i = 0; i < pass.size(); ++i) {
      const models::Op& op = pass[i];
      if (op.kind == OpKind::kAllocate || op.kind == OpKind::kFree || op.fused) continue;
      const std::uint32_t name = view_.names.add(op.name);
      const std::vector<int> last = last_members(program, op, trace, i);
      for (int r = 0; r < view_.ranks; ++r) {
        const std::size_t at = i * trace.ranks + static_cast<std::size_t>(r);
        const std::int64_t start = trace.start[at], begin = trace.begin[at], end = trace.end[at];
        view_.end_ps = std::max(view_.end_ps, end);
        if (!shown(r)) continue;
        const int late = last.empty() ? r : last[static_cast<std::size_t>(r)];
        auto& slices = view_.tracks[track_of(r, op.stream)].slices;
        if (begin > start)
          slices.push_back(
              {view_.names.add(late == r ? std::string("wait") : fmt::format("wait for rank {}", late)),
               sim::Category::straggler_wait, start, begin,
               view_.notes.add(fmt::format("before {}", op.name))});
        if (end > begin) slices.push_back({name, op.category, begin, end});
        if (last.empty()) continue;
        add_sent(r, begin, end, static_cast<double>(program.value(op.tx, r)));
        if (begin > start && late != r && shown(late))
          view_.arrows.push_back({static_cast<std::uint32_t>(track_of(late, op.stream)),
                                  static_cast<std::uint32_t>(track_of(r, op.stream)), begin, begin, name});
      }
    }
  }

  // Returns by rank the member of its group that came last, in a collective of whole groups; else nothing.
  static std::vector<int> last_members(const models::Program& program, const models::Op& op,
                                       const sim::LockstepTrace& trace, std::size_t i) {
    if (op.kind != OpKind::kCollective || program.ranks() % program.group_size(op.group) != 0) return {};
    std::vector<int> last(trace.ranks);
    const auto start = [&](int rank) {
      return trace.start[i * trace.ranks + static_cast<std::size_t>(rank)];
    };
    for (int group = 0; group < program.group_count(op.group); ++group) {
      int late = program.rank_of(op.group, group, 0);
      for (int m = 1; m < program.group_size(op.group); ++m)
        if (const int rank = program.rank_of(op.group, group, m); start(rank) > start(late)) late = rank;
      for (int m = 0; m < program.group_size(op.group); ++m)
        last[static_cast<std::size_t>(program.rank_of(op.group, group, m))] = late;
    }
    return last;
  }

  // Segments of different microbatches may interleave on a stream (batch-level overlap).
  static void part_slices(TimelineView::Track& track) {
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
        std::optional<sim::Cause> cause;
        if (slice.from_ps - before <= kSame)
          cause = waited ? sim::Cause::rendezvous : sim::Cause::stream;
        else if (ended(slice.from_ps, false))
          cause = sim::Cause::dependency;
        else if (ended(slice.from_ps, true))
          cause = sim::Cause::host;
        else if (slice.from_ps == 0)
          cause = sim::Cause::none;
        if (slice.note == TimelineView::kNone && cause) slice.note = note_of(*cause);
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
    add_sending();
  }

  void drop_empty_tracks() {
    std::vector<std::uint32_t> kept;
    for (std::uint32_t t = 0; t < view_.tracks.size(); ++t)
      if (!view_.tracks[t].slices.empty()) kept.push_back(t);
    keep_tracks(kept);
  }

  const models::Answer& forecast_;
  std::vector<std::size_t> track_;  // by rank: its first track
};

}  // namespace

TimelineView timeline_view(std::string title, const sim::TaskGraph& graph, const sim::Timeline& timeline,
                           const TimelineBounds& bounds) {
  return IterationBuilder(std::move(title), graph, timeline, bounds).run();
}

TimelineView timeline_view(std::string title, const replay::Iteration& iteration,
                           const TimelineBounds& bounds) {
  IterationBuilder builder(std::move(title), iteration.graph, iteration.timeline, bounds);
  builder.leave_out(iteration.spans);
  builder.add_steps(iteration.spans);
  return builder.run();
}

TimelineView timeline_view(const models::Answer& forecast, const TimelineBounds& bounds) {
  return LayerBuilder(forecast, bounds).run();
}

}  // namespace moesim::tools
