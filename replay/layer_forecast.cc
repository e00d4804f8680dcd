#include "replay/layer_forecast.h"

#include <algorithm>

namespace moesim::replay {

namespace {

using models::GroupKind;
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

constexpr int kComputing = 3, kTransferring = 2, kWaiting = 1;

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

// The clocks of all ranks, and one pass over a segment's operations.
class Clocks {
 public:
  Clocks(int ranks, std::int64_t launch_ps)
      : R_(ranks), launch_ps_(launch_ps), host_(R_), stream_(R_ * models::kStreams) {}

  // Follows one segment. `watched` >= 0: notes what that rank does.
  void run(const LayerSegment& segment, int watched, std::vector<Interval>* notes) {
    const Program& program = *segment.program;
    const std::vector<Op>& ops = *segment.ops;
    end_.assign(ops.size() * R_, 0);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      std::int64_t* end = end_.data() + i * R_;
      if (op.kind == OpKind::kHostWait || op.kind == OpKind::kHost) {
        for (std::size_t r = 0; r < R_; ++r)
          end[r] = host_[r] = std::max(host_[r], after(op, r)) + segment.prices->at(i, static_cast<int>(r));
        continue;
      }
      if (!on_device(op.kind)) continue;
      std::int64_t* free = stream_.data() + static_cast<std::size_t>(op.stream) * R_;
      const bool launched = !(op.kind == OpKind::kCollective && op.fused);
      for (std::size_t r = 0; r < R_; ++r) {
        if (launched) host_[r] += launch_ps_ * launches_of(op);
        // When the operation could start, kept in `end` until its duration is known.
        end[r] = std::max({host_[r], free[r], after(op, r)});
      }
      if (op.kind == OpKind::kCollective && op.fused) {
        // It ends with the collective that it travels in.
      } else if (op.kind == OpKind::kCollective) {
        meet(program, op, segment.prices, i, end, watched, notes);
      } else {
        for (std::size_t r = 0; r < R_; ++r) {
          const std::int64_t from = end[r];
          end[r] += segment.prices->at(i, static_cast<int>(r));
          if (static_cast<int>(r) == watched)
            notes->push_back(
                {from, end[r], op.kind == OpKind::kCopyToHost ? kTransferring : kComputing, op.category});
        }
      }
      std::copy(end, end + R_, free);
    }
    // The next segment waits for everything of this one.
    for (std::size_t r = 0; r < R_; ++r) {
      std::int64_t done = 0;
      for (int s = 0; s < models::kStreams; ++s) done = std::max(done, stream_[s * R_ + r]);
      for (int s = 0; s < models::kStreams; ++s) stream_[s * R_ + r] = done;
    }
  }

  std::int64_t done(std::size_t rank) const { return std::max(stream_[rank], host_[rank]); }

 private:
  std::int64_t after(const Op& op, std::size_t rank) const {
    std::int64_t latest = 0;
    for (const std::int32_t other : op.after)
      if (other >= 0) latest = std::max(latest, end_[static_cast<std::size_t>(other) * R_ + rank]);
    return latest;
  }

  void meet(const Program& program, const Op& op, const models::PricedPass* prices, std::size_t i,
            std::int64_t* time, int watched, std::vector<Interval>* notes) {
    const int g = program.group_size(op.group);
    for (int group = 0; group < program.group_count(op.group); ++group) {
      std::int64_t begin = 0;
      for (int m = 0; m < g; ++m) begin = std::max(begin, time[program.rank_of(op.group, group, m)]);
      for (int m = 0; m < g; ++m) {
        const int rank = program.rank_of(op.group, group, m);
        if (rank == watched) {
          notes->push_back({time[rank], begin, kWaiting, Category::straggler_wait});
          notes->push_back({begin, begin + prices->at(i, rank), kTransferring, op.category});
        }
        time[rank] = begin + prices->at(i, rank);
      }
    }
  }

  std::size_t R_;
  std::int64_t launch_ps_;
  std::vector<std::int64_t> host_;
  std::vector<std::int64_t> stream_;  // [stream][rank]: free from
  std::vector<std::int64_t> end_;     // [operation][rank] of the current segment
};

}  // namespace

LayerTiming time_layer(std::span<const LayerSegment> segments, std::int64_t launch_ps, bool breakdown) {
  LayerTiming timing;
  if (segments.empty()) return timing;
  const int ranks = segments.front().program->ranks();
  Clocks clocks(ranks, launch_ps);
  for (const LayerSegment& segment : segments) clocks.run(segment, -1, nullptr);
  timing.end_ps.resize(ranks);
  for (int r = 0; r < ranks; ++r) {
    timing.end_ps[r] = clocks.done(r);
    if (timing.end_ps[r] > timing.total_ps) timing.total_ps = timing.end_ps[r], timing.critical_rank = r;
  }
  if (breakdown) {
    std::vector<Interval> notes;
    Clocks again(ranks, launch_ps);
    for (const LayerSegment& segment : segments) again.run(segment, timing.critical_rank, &notes);
    book(notes, timing.total_ps, timing);
  }
  return timing;
}

}  // namespace moesim::replay
