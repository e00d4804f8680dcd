// Timelines of simulated iterations, and of the layer of a dispatcher.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "base/check.h"
#include "tools/moesim/show/comparison_detail.h"
#include "tools/moesim/show/timeline_view.h"

namespace moesim::tools {

namespace {

using sim::TaskId;

// The view of a graph and its timeline.
class Builder {
 public:
  Builder(std::string title, const sim::TaskGraph& graph, const sim::Timeline& timeline,
          const TimelineBounds& bounds)
      : graph_(graph),
        timeline_(timeline),
        bounds_(bounds),
        shown_(graph.rank_count(), true),
        sent_(graph.rank_count()) {
    view_.title = std::move(title);
    view_.ranks = static_cast<int>(graph.rank_count());
    view_.end_ps = timeline.iteration().ps();
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

  // The streams of a rank, in the order of the graph; as a rule they are named after their kind.
  void name_streams(std::span<const char* const> names) { stream_names_ = names; }

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
    for (const replay::StepSpan& span : spans) {
      if (!shown(span.rank) || !bounds_.holds_microbatch(span.microbatch)) continue;
      const auto [at, added] = track_of.try_emplace(span.rank, view_.tracks.size());
      if (added) view_.tracks.push_back({span.rank, "steps", {}});
      TimelineView::Track& track = view_.tracks[at->second];
      const std::int64_t from = timeline_.start(span.first).ps(), to = timeline_.end(span.last).ps();
      const std::int64_t free = track.slices.empty() ? 0 : track.slices.back().to_ps;
      if (to <= std::max(from, free)) continue;  // the other half of a fused pair
      track.slices.push_back({view_.names.add(fmt::format("{} {}", replay::name(span.kind), span.microbatch)),
                              category_of(span), std::max(from, free), to});
    }
  }

  void add(TimelineView::Counter counter) {
    if (!counter.points.empty()) view_.counters.push_back(std::move(counter));
  }

  // Counts what a rank sends from `begin` to `end` as the mean rate of the transfer.
  void add_sent(int rank, std::int64_t begin, std::int64_t end, double bytes) {
    if (end <= begin || !shown(rank)) return;
    const double rate = bytes / static_cast<double>(end - begin) * 1e3;  // bytes per ps to GB/s
    sent_[static_cast<std::size_t>(rank)][begin] += rate;
    sent_[static_cast<std::size_t>(rank)][end] -= rate;
  }

  // As add_sent(), for every collective of the graph.
  void add_sent() {
    for (std::size_t c = 0; c < graph_.collective_count(); ++c) {
      const sim::CollectiveId collective(static_cast<std::uint32_t>(c));
      const sim::CollectiveShape shape = graph_.shape(collective);
      const auto members = graph_.members(collective);
      for (std::size_t m = 0; m < members.size(); ++m)
        if (const auto rank = static_cast<int>(graph_.rank(members[m]).value());
            shown(rank) && !hidden(members[m]))
          add_sent(rank, timeline_.begin(collective).ps(), timeline_.end(members[m]).ps(),
                   bytes_sent(shape, m));
    }
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
    for (std::size_t r = 0; r < sent_.size(); ++r) add(sending(static_cast<int>(r), sent_[r]));
    for (const sim::LinkUse& use : timeline_.links())
      view_.links.push_back({fmt::format("link {}", use.link.value()), use.bytes, use.utilisation});
    std::stable_sort(view_.links.begin(), view_.links.end(),
                     [](const auto& a, const auto& b) { return a.utilisation > b.utilisation; });
    join_short_slices(view_, bounds_.most_slices);
    return std::move(view_);
  }

 private:
  int rank_of(sim::StreamId stream) const { return static_cast<int>(graph_.rank_of(stream).value()); }
  // Also tasks without a name, which only order others.
  bool hidden(TaskId task) const {
    return graph_.label(task).name.empty() || (!hidden_.empty() && hidden_[sim::index(task)]);
  }

  std::uint32_t note_of(sim::Cause cause) {
    static constexpr const char* kText[] = {"waited for nothing", "waited for the operation before it",
                                            "waited for another stream", "waited for the host",
                                            "waited for the last member to come"};
    return view_.notes.add(kText[static_cast<std::size_t>(cause)]);
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

  static TimelineView::Counter sending(int rank, const std::map<std::int64_t, double>& changes) {
    TimelineView::Counter counter{rank, "sending [GB/s]", {}};
    double rate = 0;
    for (const auto& [when, by] : changes) {
      rate += by;
      if (rate < 1e-6) rate = 0;  // rounding of sums of differences
      if (counter.points.empty() || counter.points.back().second != rate)
        counter.points.emplace_back(when, rate);
    }
    return counter;
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
    const std::size_t track = view_.tracks.size();
    std::size_t beside = kNoTrack;
    const std::string_view name = stream_names_.empty()
                                      ? sim::name(graph_.kind_of(stream))
                                      : stream_names_[stream.value() % stream_names_.size()];
    view_.tracks.push_back({rank_of(stream), std::string(name), {}});
    for (TaskId task = graph_.first_of(stream); task.valid(); task = graph_.next_on_stream(task)) {
      if (hidden(task)) continue;
      const sim::Label& label = graph_.label(task);
      const std::uint32_t name = view_.names.add(label.name);
      const std::int64_t start = timeline_.start(task).ps(), end = timeline_.end(task).ps();
      std::int64_t begin = start;
      if (graph_.kind(task) == sim::TaskKind::member) {
        const sim::CollectiveId collective = graph_.collective(task);
        begin = timeline_.begin(collective).ps();
        if (begin > start)
          put(track, beside,
              {view_.names.add(
                   fmt::format("wait for rank {}", graph_.rank(timeline_.last_arrival(collective)).value())),
               sim::Category::straggler_wait, start, begin,
               view_.notes.add(fmt::format("before {}", label.name))});
      }
      put(track, beside,
          {name, label.category, begin, end,
           note_of(begin > start ? sim::Cause::rendezvous : timeline_.cause(task))});
    }
    if (view_.tracks[track].slices.empty())
      view_.tracks.pop_back();
    else
      track_of_stream_[stream] = track;
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
        if (timeline_.start(to).ps() < begin && timeline_.end(to).ps() > begin) add(from, to, false);
    }
  }

  // By rank, in the order in which they were added.
  void sort_tracks() {
    std::vector<std::uint32_t> order(view_.tracks.size()), place(order.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, {}, [&](std::uint32_t track) { return view_.tracks[track].rank; });
    std::vector<TimelineView::Track> sorted;
    for (const std::uint32_t track : order) {
      place[track] = static_cast<std::uint32_t>(sorted.size());
      sorted.push_back(std::move(view_.tracks[track]));
    }
    view_.tracks = std::move(sorted);
    for (TimelineView::Arrow& arrow : view_.arrows) {
      arrow.from_track = place[arrow.from_track];
      arrow.to_track = place[arrow.to_track];
    }
  }

  static constexpr std::size_t kNoTrack = static_cast<std::size_t>(-1);

  const sim::TaskGraph& graph_;
  const sim::Timeline& timeline_;
  const TimelineBounds& bounds_;
  TimelineView view_;
  std::vector<bool> shown_;                           // by rank
  std::vector<bool> hidden_;                          // by task; empty: none
  std::span<const char* const> stream_names_;         // of a rank; empty: their kind
  std::vector<std::map<std::int64_t, double>> sent_;  // by rank: changes of its rate
  std::map<sim::StreamId, std::size_t> track_of_stream_;
};

constexpr std::array<const char*, models::kStreams> kStreamNames{"compute", "communication", "copy",
                                                                 "shared expert", "host"};

}  // namespace

TimelineView timeline_view(std::string title, const replay::Iteration& iteration,
                           const TimelineBounds& bounds) {
  Builder builder(std::move(title), iteration.graph, iteration.timeline, bounds);
  const auto ranks = iteration.timeline.ranks();
  // First the rank that ends last, then those that compute and wait most and least.
  std::vector<int> first{static_cast<int>(iteration.timeline.critical_rank().value())};
  for (const auto value :
       {&sim::RankSummary::busy, &sim::RankSummary::straggler_wait, &sim::RankSummary::bubble}) {
    const auto [low, high] = std::ranges::minmax_element(ranks, {}, value);
    for (const auto at : {high, low}) first.push_back(static_cast<int>(at - ranks.begin()));
  }
  builder.show_ranks(iteration.graph.task_count() * 2 / std::max<std::size_t>(1, ranks.size()), first);
  builder.leave_out(iteration.spans);
  builder.add_steps(iteration.spans);
  builder.add_sent();
  return builder.run();
}

TimelineView timeline_view(const models::Answer& forecast, const TimelineBounds& bounds) {
  const models::LayerTrace& layer = *forecast.layer;
  const models::Program& program = forecast.program();
  Builder builder(forecast.dispatcher, layer.graph, layer.timeline, bounds);
  builder.name_streams(kStreamNames);
  std::size_t ops = 1;
  for (const models::LayerTrace::Pass& pass : layer.passes) ops += pass.ops().size();
  // First the rank that ends last, then those with most and least to compute.
  const auto& rows = program.computed_rows;
  const auto [low, high] = std::ranges::minmax_element(rows);
  builder.show_ranks(ops, {forecast.critical_rank, static_cast<int>(high - rows.begin()),
                           static_cast<int>(low - rows.begin())});
  TimelineView::Counter memory{forecast.memory.rank, "memory [GB]", {}};
  for (const auto& [time_us, point] : forecast.memory_over_time)
    memory.points.emplace_back(static_cast<std::int64_t>(time_us * 1e6), point.bytes * 1e-9);
  builder.add(std::move(memory));
  for (const models::LayerTrace::Pass& pass : layer.passes)
    for (std::size_t i = 0; i < pass.ops().size(); ++i) {
      const models::Op& op = pass.ops()[i];
      if (op.kind != models::OpKind::kCollective || op.fused) continue;
      for (std::size_t r = 0; r < layer.ranks; ++r) {
        const models::LayerTrace::Span span = layer.span(pass, i, r);
        builder.add_sent(static_cast<int>(r), span.begin, span.end,
                         static_cast<double>(pass.program->value(op.tx, static_cast<int>(r))));
      }
    }
  return builder.run();
}

}  // namespace moesim::tools
