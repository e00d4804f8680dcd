#include "replay/run/layer_forecast.h"

#include <algorithm>

namespace moesim::replay {

namespace {

using models::Op;
using models::OpKind;
using models::Program;
using sim::Category;

bool on_device(OpKind kind) {
  return kind == OpKind::kCollective || kind == OpKind::kKernel || kind == OpKind::kGemm ||
         kind == OpKind::kAttention || kind == OpKind::kCopyToHost;
}

int launches_of(const Op& op) {
  return op.kind == OpKind::kKernel || op.kind == OpKind::kGemm ? op.launches : 1;
}

// Something that the critical rank did, for its breakdown.
struct Interval {
  std::int64_t from, to;
  int priority;  // the highest one is booked where several overlap
  Category category;
};

struct Precedence {
  static constexpr int computing = 3, transferring = 2, waiting = 1;
};

// Books every instant of [0, total) once: computing, else transferring, else waiting in a rendezvous; what is
// left is the device waiting for the host.
void book(std::vector<Interval>& intervals, std::int64_t total, LayerTiming& timing) {
  std::vector<std::int64_t> cuts;
  cuts.reserve(2 * intervals.size() + 2);
  cuts.push_back(0);
  cuts.push_back(total);
  for (const Interval& i : intervals) cuts.push_back(i.from), cuts.push_back(i.to);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.from < b.from; });
  std::vector<const Interval*> open;
  std::size_t next = 0;
  for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
    while (next < intervals.size() && intervals[next].from <= cuts[c]) open.push_back(&intervals[next++]);
    std::erase_if(open, [&](const Interval* i) { return i->to <= cuts[c]; });
    const Interval* best = nullptr;
    for (const Interval* i : open)
      if (!best || i->priority > best->priority) best = i;
    const std::int64_t length = cuts[c + 1] - cuts[c];
    timing.breakdown_ps[static_cast<std::size_t>(best ? best->category : Category::host_sync)] += length;
    if (!best) timing.launch_bound_ps += length;
  }
}

// Operations [from, to) of a segment, in the order in which the host issues pieces.
struct Piece {
  std::size_t segment, from, to;
};

// The clocks of all ranks, and one pass over the pieces of segments.
class Clocks {
 public:
  Clocks(std::span<const LayerSegment> segments, std::int64_t launch_ps)
      : segments_(segments),
        R_(static_cast<std::size_t>(segments.front().program->ranks())),
        launch_ps_(launch_ps),
        host_(R_),
        stream_(R_ * models::kStreams),
        end_(segments.size()),
        entry_(segments.size()) {
    for (std::size_t s = 0; s < segments.size(); ++s) end_[s].assign(segments[s].ops->size() * R_, 0);
  }

  void record(std::vector<SegmentTrace>* trace) {
    trace_ = trace;
    trace_->assign(segments_.size(), {});
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      SegmentTrace& t = (*trace_)[s];
      t.ranks = static_cast<int>(R_);
      t.start.assign(end_[s].size(), 0);
      t.begin = t.end = t.start;
    }
  }

  // Follows one piece. `watched` >= 0: notes what that rank does.
  void run(const Piece& piece, int watched, std::vector<Interval>* notes) {
    const LayerSegment& segment = segments_[piece.segment];
    const Program& program = *segment.program;
    const std::vector<Op>& ops = *segment.ops;
    const std::vector<std::int64_t>& ended = end_[piece.segment];
    const std::vector<std::int64_t>& entry = entry_[piece.segment];
    for (std::size_t i = piece.from; i < piece.to; ++i) {
      const Op& op = ops[i];
      std::int64_t* end = end_[piece.segment].data() + i * R_;
      if (op.kind == OpKind::kHostWait || op.kind == OpKind::kHost) {
        for (std::size_t r = 0; r < R_; ++r) {
          const std::int64_t from = std::max(host_[r], after(op, ended, r));
          end[r] = host_[r] = from + segment.prices->at(i, static_cast<int>(r));
          if (trace_) note(piece.segment, i * R_ + r, from, from, end[r]);
        }
        continue;
      }
      if (!on_device(op.kind)) continue;
      std::int64_t* free = stream_.data() + static_cast<std::size_t>(op.stream) * R_;
      const bool launched = !(op.kind == OpKind::kCollective && op.fused);
      for (std::size_t r = 0; r < R_; ++r) {
        if (launched) host_[r] += launch_ps_ * launches_of(op);
        // When the operation could start, kept in `end` until its duration is known.
        end[r] = std::max({host_[r], free[r], after(op, ended, r)});
        if (!entry.empty()) end[r] = std::max(end[r], entry[r]);
        if (trace_) note(piece.segment, i * R_ + r, end[r], end[r], end[r]);
      }
      if (op.kind == OpKind::kCollective && op.fused) {
        // It ends with the collective that it travels in.
      } else if (op.kind == OpKind::kCollective) {
        meet(program, op, segment.prices, piece.segment, i, end, watched, notes);
      } else {
        for (std::size_t r = 0; r < R_; ++r) {
          const std::int64_t from = end[r];
          end[r] += segment.prices->at(i, static_cast<int>(r));
          if (trace_) (*trace_)[piece.segment].end[i * R_ + r] = end[r];
          if (static_cast<int>(r) == watched)
            notes->push_back(
                {from, end[r],
                 op.kind == OpKind::kCopyToHost ? Precedence::transferring : Precedence::computing,
                 op.category});
        }
      }
      std::copy(end, end + R_, free);
    }
  }

  // What follows waits for everything issued until now.
  void barrier() {
    for (std::size_t r = 0; r < R_; ++r) {
      std::int64_t done = 0;
      for (int s = 0; s < models::kStreams; ++s) done = std::max(done, stream_[s * R_ + r]);
      for (int s = 0; s < models::kStreams; ++s) stream_[s * R_ + r] = done;
    }
  }

  // Nothing of `segment` starts before all of `other`, issued already, has ended.
  void enter(std::size_t segment, std::size_t other) {
    entry_[segment].assign(R_, 0);
    for (std::size_t i = 0; i < end_[other].size(); ++i)
      entry_[segment][i % R_] = std::max(entry_[segment][i % R_], end_[other][i]);
  }

  std::int64_t done(std::size_t rank) const {
    std::int64_t latest = host_[rank];
    for (int s = 0; s < models::kStreams; ++s) latest = std::max(latest, stream_[s * R_ + rank]);
    return latest;
  }

 private:
  std::int64_t after(const Op& op, const std::vector<std::int64_t>& ended, std::size_t rank) const {
    std::int64_t latest = 0;
    for (const std::int32_t other : op.after)
      if (other >= 0) latest = std::max(latest, ended[static_cast<std::size_t>(other) * R_ + rank]);
    return latest;
  }

  void note(std::size_t segment, std::size_t at, std::int64_t start, std::int64_t begin, std::int64_t end) {
    SegmentTrace& t = (*trace_)[segment];
    t.start[at] = start;
    t.begin[at] = begin;
    t.end[at] = end;
  }

  void meet(const Program& program, const Op& op, const models::PricedPass* prices, std::size_t segment,
            std::size_t i, std::int64_t* time, int watched, std::vector<Interval>* notes) {
    const int g = program.group_size(op.group);
    for (int group = 0; group < program.group_count(op.group); ++group) {
      std::int64_t begin = 0;
      for (int m = 0; m < g; ++m) begin = std::max(begin, time[program.rank_of(op.group, group, m)]);
      for (int m = 0; m < g; ++m) {
        const int rank = program.rank_of(op.group, group, m);
        const std::int64_t end = begin + prices->at(i, rank);
        if (rank == watched) {
          notes->push_back({time[rank], begin, Precedence::waiting, Category::straggler_wait});
          notes->push_back({begin, end, Precedence::transferring, op.category});
        }
        if (trace_) note(segment, i * R_ + static_cast<std::size_t>(rank), time[rank], begin, end);
        time[rank] = end;
      }
    }
  }

  std::span<const LayerSegment> segments_;
  std::size_t R_;
  std::int64_t launch_ps_;
  std::vector<std::int64_t> host_;
  std::vector<std::int64_t> stream_;              // [stream][rank]: free from
  std::vector<std::vector<std::int64_t>> end_;    // [segment][operation * R + rank]
  std::vector<std::vector<std::int64_t>> entry_;  // [segment][rank]; empty: from the start
  std::vector<SegmentTrace>* trace_ = nullptr;
};

// Where a pass is cut for interleaving: everything up to the last collective before the experts, the experts,
// the collectives behind them, and what follows those.
struct Cuts {
  std::size_t dispatched = 0, computed = 0, combined = 0, end = 0;
};

Cuts cuts_of(const std::vector<Op>& ops) {
  Cuts cuts;
  cuts.end = ops.size();
  std::size_t first = ops.size(), last = 0;
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (ops[i].kind == OpKind::kGemm) first = std::min(first, i), last = i;
  cuts.computed = cuts.combined = ops.size();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::kCollective) continue;
    if (i < first) cuts.dispatched = i + 1;
    if (i > last) {
      cuts.computed = std::min(cuts.computed, i);
      cuts.combined = i + 1;
    }
  }
  return cuts;
}

// All pieces in the order of launching, for one run of the clocks.
void follow(Clocks& clocks, std::span<const LayerSegment> segments, bool overlap, int watched,
            std::vector<Interval>* notes) {
  const auto whole = [&](std::size_t s) { clocks.run({s, 0, segments[s].ops->size()}, watched, notes); };
  if (!overlap || segments.size() != 4) {
    for (std::size_t s = 0; s < segments.size(); ++s) {
      whole(s);
      clocks.barrier();
    }
    return;
  }
  constexpr std::size_t kDenseForward = 0, kForward = 1, kBackward = 2, kDenseBackward = 3;
  const Cuts f = cuts_of(*segments[kForward].ops), b = cuts_of(*segments[kBackward].ops);
  const auto run = [&](std::size_t s, std::size_t from, std::size_t to) {
    clocks.run({s, from, to}, watched, notes);
  };
  run(kBackward, 0, b.dispatched);  // the gradients travel while attention computes
  whole(kDenseForward);
  clocks.enter(kForward, kDenseForward);
  run(kForward, 0, f.dispatched);  // the rows travel while the experts' backward computes
  run(kBackward, b.dispatched, b.computed);
  run(kBackward, b.computed, b.combined);  // the gradients travel back while the experts compute
  run(kForward, f.dispatched, f.computed);
  run(kForward, f.computed, f.combined);  // the outputs travel while attention's backward computes
  run(kBackward, b.combined, b.end);
  clocks.enter(kDenseBackward, kBackward);
  whole(kDenseBackward);
  run(kForward, f.combined, f.end);
}

// Prices with the operations made longer that computed and communicated at the same time on their GPU: an
// operation of duration d that overlaps for o of its length takes d + o (1 - 1 / slowdown).
std::vector<models::PricedPass> slowed(std::span<const LayerSegment> segments,
                                       const std::vector<SegmentTrace>& trace, const LayerOptions& options) {
  std::vector<models::PricedPass> prices;
  for (const LayerSegment& segment : segments) prices.push_back(*segment.prices);
  const int ranks = segments.front().program->ranks();
  struct Busy {
    std::int64_t from, to;
    std::size_t segment, op;
    bool transfer;
  };
  std::vector<Busy> busy;
  for (int r = 0; r < ranks; ++r) {
    busy.clear();
    for (std::size_t s = 0; s < segments.size(); ++s)
      for (std::size_t i = 0; i < segments[s].ops->size(); ++i) {
        const Op& op = (*segments[s].ops)[i];
        const std::size_t at = i * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(r);
        const bool transfer = op.kind == OpKind::kCollective;
        if (!on_device(op.kind) || op.kind == OpKind::kCopyToHost || trace[s].end[at] == trace[s].begin[at])
          continue;
        busy.push_back({trace[s].begin[at], trace[s].end[at], s, i, transfer});
      }
    std::sort(busy.begin(), busy.end(), [](const Busy& a, const Busy& b) { return a.from < b.from; });
    for (std::size_t a = 0; a < busy.size(); ++a)
      for (std::size_t b = a + 1; b < busy.size() && busy[b].from < busy[a].to; ++b) {
        if (busy[a].transfer == busy[b].transfer) continue;
        const auto overlap = static_cast<double>(std::min(busy[a].to, busy[b].to) - busy[b].from);
        for (const Busy& one : {busy[a], busy[b]}) {
          const double slowdown = one.transfer ? options.communication_slowdown : options.compute_slowdown;
          prices[one.segment].ps[one.op * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(r)] +=
              static_cast<std::int64_t>(overlap * (1 - 1 / slowdown));
        }
      }
  }
  return prices;
}

}  // namespace

LayerTiming time_layer(std::span<const LayerSegment> segments, std::int64_t launch_ps,
                       const LayerOptions& options) {
  LayerTiming timing;
  if (segments.empty()) return timing;
  const int ranks = segments.front().program->ranks();
  std::vector<LayerSegment> used(segments.begin(), segments.end());
  std::vector<models::PricedPass> longer;
  if (options.compute_slowdown > 1 || options.communication_slowdown > 1) {
    // The overlap depends on the durations and they on it; it settles quickly.
    for (int round = 0; round < 3; ++round) {
      std::vector<SegmentTrace> trace;
      Clocks clocks(used, launch_ps);
      clocks.record(&trace);
      follow(clocks, used, options.overlap_batches, -1, nullptr);
      longer = slowed(segments, trace, options);
      for (std::size_t s = 0; s < used.size(); ++s) used[s].prices = &longer[s];
    }
  }
  Clocks clocks(used, launch_ps);
  if (options.trace) clocks.record(options.trace);
  follow(clocks, used, options.overlap_batches, -1, nullptr);
  timing.end_ps.resize(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    timing.end_ps[static_cast<std::size_t>(r)] = clocks.done(static_cast<std::size_t>(r));
    if (timing.end_ps[static_cast<std::size_t>(r)] > timing.total_ps)
      timing.total_ps = timing.end_ps[static_cast<std::size_t>(r)], timing.critical_rank = r;
  }
  if (options.breakdown) {
    std::vector<Interval> notes;
    Clocks again(used, launch_ps);
    follow(again, used, options.overlap_batches, timing.critical_rank, &notes);
    book(notes, timing.total_ps, timing);
  }
  return timing;
}

}  // namespace moesim::replay
