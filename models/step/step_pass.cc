#include "models/step/step_pass.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace moesim::models {

namespace {

using sim::Category;

struct Interval {
  std::int64_t from, to;
  int priority;
  Category category;
};
constexpr int kComputing = 3, kTransferring = 2, kWaiting = 1;

// Books every instant of [from, to) once: computing, else transferring, else waiting for other ranks; what is
// left is the device waiting for the host.
void book(std::vector<Interval>& intervals, std::int64_t total, PassTime& time) {
  struct Edge {
    std::int64_t when;
    std::int32_t change;
    std::uint8_t priority;
    Category category;
  };
  std::vector<Edge> edges;
  edges.reserve(2 * intervals.size());
  for (const Interval& i : intervals) {
    if (i.to <= i.from) continue;
    edges.push_back({i.from, 1, static_cast<std::uint8_t>(i.priority), i.category});
    edges.push_back({i.to, -1, static_cast<std::uint8_t>(i.priority), i.category});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.when < b.when; });
  std::array<std::array<std::int32_t, sim::kCategories>, 4> open{};
  std::array<std::int32_t, 4> any{};
  std::int64_t now = 0;
  for (std::size_t e = 0; e <= edges.size(); ++e) {
    const std::int64_t next = e < edges.size() ? std::min(edges[e].when, total) : total;
    if (next > now) {
      Category category = Category::host_sync;
      if (any[kComputing] == 0 && any[kTransferring] > 0) time.exposed_ps += next - now;
      for (int p = kComputing; p >= kWaiting; --p)
        if (any[p] > 0) {
          std::size_t c = 0;
          while (open[p][c] == 0) ++c;
          category = static_cast<Category>(c);
          break;
        }
      time.breakdown_ps[static_cast<std::size_t>(category)] += next - now;
      now = next;
    }
    if (e < edges.size()) {
      any[edges[e].priority] += edges[e].change;
      open[edges[e].priority][static_cast<std::size_t>(edges[e].category)] += edges[e].change;
    }
  }
}

// A sequence of parts that issues its operations in order.
struct Thread {
  std::span<const TimedPart* const> parts;
  std::size_t part = 0, op = 0;
  std::vector<std::int64_t> end;     // [operation][rank] of the part at hand
  std::vector<std::int64_t> entry;   // by rank: when the part may begin
  std::vector<std::int64_t> latest;  // by rank: latest end so far

  bool done() const { return part == parts.size(); }
  const TimedOp& current() const { return parts[part]->ops[op]; }
};

class StreamClocks {
 public:
  explicit StreamClocks(const PassOptions& options)
      : o_(options),
        R_(static_cast<std::size_t>(options.ranks)),
        host_(R_),
        stream_(R_ * kStreams),
        start_(R_) {}

  Thread begin(std::span<const TimedPart* const> parts) const {
    Thread t{parts, 0, 0, {}, std::vector<std::int64_t>(R_), std::vector<std::int64_t>(R_)};
    enter(t);
    return t;
  }

  // When the thread's next operation could start on the rank that is ready last.
  std::int64_t earliest(const Thread& t) const {
    std::int64_t latest = 0;
    const TimedOp& op = t.current();
    for (std::size_t r = 0; r < R_; ++r) latest = std::max(latest, ready(t, op, r));
    return latest;
  }

  // `slowdown` of what the operation does: computing, or transferring.
  void issue(Thread& t, double slowdown = 1) {
    const TimedPart& part = *t.parts[t.part];
    const TimedOp& op = part.ops[t.op];
    std::int64_t* end = t.end.data() + t.op * R_;
    if (op.kind == TimedOp::Kind::kHost) {
      for (std::size_t r = 0; r < R_; ++r) {
        host_[r] = ready(t, op, r) + part.at(op, r);
        end[r] = host_[r];
      }
    } else if (op.kind == TimedOp::Kind::kNothing) {
      for (std::size_t r = 0; r < R_; ++r) end[r] = after(t, op, r);
    } else {
      std::int64_t* free = stream_.data() + static_cast<std::size_t>(op.stream) * R_;
      for (std::size_t r = 0; r < R_; ++r) {
        start_[r] = ready(t, op, r);
        host_[r] += o_.launch_ps * op.launches;
        start_[r] = std::max(start_[r], host_[r]);
      }
      if (op.kind == TimedOp::Kind::kCollective && op.group >= 0) {
        const std::vector<std::int32_t>& group = part.groups[static_cast<std::size_t>(op.group)];
        meeting_.assign(static_cast<std::size_t>(part.group_counts[static_cast<std::size_t>(op.group)]), 0);
        for (std::size_t r = 0; r < R_; ++r)
          meeting_[static_cast<std::size_t>(group[r])] =
              std::max(meeting_[static_cast<std::size_t>(group[r])], start_[r]);
        for (std::size_t r = 0; r < R_; ++r) {
          const std::int64_t from = meeting_[static_cast<std::size_t>(group[r])];
          end[r] = from + slower(part.at(op, r), slowdown);
          if (static_cast<int>(r) == watched_) {
            notes_.push_back({start_[r], from, kWaiting, Category::straggler_wait});
            notes_.push_back({from, end[r], kTransferring, op.category});
          }
        }
      } else {
        const bool comm = op.kind == TimedOp::Kind::kCollective;
        for (std::size_t r = 0; r < R_; ++r) {
          end[r] = start_[r] + slower(part.at(op, r), slowdown);
          if (static_cast<int>(r) == watched_)
            notes_.push_back({start_[r], end[r], comm ? kTransferring : kComputing, op.category});
        }
      }
      std::copy(end, end + R_, free);
    }
    for (std::size_t r = 0; r < R_; ++r) t.latest[r] = std::max(t.latest[r], end[r]);
    if (++t.op == part.ops.size()) {
      t.op = 0;
      ++t.part;
      t.entry = t.latest;
      enter(t);
    }
  }

  // When the compute stream of the rank that is free last is free.
  std::int64_t compute_free() const { return *std::max_element(stream_.begin(), stream_.begin() + R_); }
  std::int64_t comm_free() const {
    const auto first =
        stream_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(Stream::kComm) * R_);
    return *std::max_element(first, first + static_cast<std::ptrdiff_t>(R_));
  }

  std::int64_t done(int* critical) const {
    std::int64_t total = 0;
    for (std::size_t r = 0; r < R_; ++r) {
      std::int64_t end = host_[r];
      for (std::size_t s = 0; s < kStreams; ++s) end = std::max(end, stream_[s * R_ + r]);
      if (end > total || r == 0) total = std::max(total, end), *critical = static_cast<int>(r);
    }
    return total;
  }

  void watch(int rank) { watched_ = rank; }
  std::vector<Interval>& notes() { return notes_; }

 private:
  static std::int64_t slower(std::int64_t ps, double slowdown) {
    return slowdown == 1 ? ps : static_cast<std::int64_t>(static_cast<double>(ps) * slowdown);
  }

  void enter(Thread& t) const {
    while (t.part < t.parts.size() && t.parts[t.part]->ops.empty()) ++t.part;
    if (!t.done()) t.end.assign(t.parts[t.part]->ops.size() * R_, 0);
  }

  std::int64_t after(const Thread& t, const TimedOp& op, std::size_t r) const {
    std::int64_t latest = t.entry[r];
    for (const std::int32_t other : op.after)
      if (other >= 0) latest = std::max(latest, t.end[static_cast<std::size_t>(other) * R_ + r]);
    return latest;
  }

  std::int64_t ready(const Thread& t, const TimedOp& op, std::size_t r) const {
    if (op.kind == TimedOp::Kind::kHost) {
      // A blocking wait is for what the host waits for, not for the whole part before.
      std::int64_t latest = host_[r];
      for (const std::int32_t other : op.after)
        if (other >= 0) latest = std::max(latest, t.end[static_cast<std::size_t>(other) * R_ + r]);
      return latest;
    }
    return std::max({host_[r], stream_[static_cast<std::size_t>(op.stream) * R_ + r], after(t, op, r)});
  }

  const PassOptions& o_;
  std::size_t R_;
  std::vector<std::int64_t> host_, stream_, start_, meeting_;
  int watched_ = -1;
  std::vector<Interval> notes_;
};

void run_alone(StreamClocks& clocks, std::span<const TimedPart* const> parts) {
  for (Thread t = clocks.begin(parts); !t.done();) clocks.issue(t);
}

// `filler`: weight gradients set aside, one part for each of `backward`; a part runs once its backward part
// has, where the compute stream would idle.
void run_together(StreamClocks& clocks, std::span<const TimedPart* const> forward,
                  std::span<const TimedPart* const> backward, std::span<const TimedPart* const> filler,
                  const PassOptions& o) {
  Thread a = clocks.begin(forward), b = clocks.begin(backward), c = clocks.begin(filler);
  while (!a.done() || !b.done()) {
    const std::int64_t ready_a = a.done() ? std::numeric_limits<std::int64_t>::max() : clocks.earliest(a);
    const std::int64_t ready_b = b.done() ? std::numeric_limits<std::int64_t>::max() : clocks.earliest(b);
    if (!c.done() && c.part < b.part && std::min(ready_a, ready_b) > clocks.compute_free()) {
      clocks.issue(c, clocks.compute_free() < clocks.comm_free() ? o.compute_slowdown : 1);
      continue;
    }
    // Backward first where both can go: the stage before waits for it.
    Thread& next = ready_a < ready_b ? a : b;
    const bool transfer = next.current().kind == TimedOp::Kind::kCollective;
    const std::int64_t now = std::min(ready_a, ready_b);
    const bool beside = now < (transfer ? clocks.compute_free() : clocks.comm_free());
    clocks.issue(next, !beside ? 1 : transfer ? o.transfer_slowdown : o.compute_slowdown);
  }
  while (!c.done()) clocks.issue(c);
}

template <class Run>
PassTime timed(const PassOptions& o, const Run& run) {
  PassTime time;
  StreamClocks clocks(o);
  run(clocks);
  int critical = 0;
  time.total_ps = clocks.done(&critical);
  if (o.breakdown) {
    StreamClocks again(o);
    again.watch(critical);
    run(again);
    book(again.notes(), time.total_ps, time);
  }
  return time;
}

}  // namespace

TimedOp& TimedPart::add(TimedOp::Kind kind, Category category, double seconds, int launches) {
  TimedOp op;
  op.kind = kind;
  op.category = category;
  if (kind == TimedOp::Kind::kCollective) op.stream = Stream::kComm, op.work = Work::kTransfer;
  op.launches = launches;
  op.after[0] = static_cast<std::int32_t>(ops.size()) - 1;
  op.first = static_cast<std::uint32_t>(ps.size());
  ps.push_back(static_cast<std::int64_t>(seconds * 1e12 + 0.5));
  ops.push_back(op);
  return ops.back();
}

TimedPart timed_program(const Program& program, const std::vector<Op>& pass, const PricedPass& prices,
                        const GroupShapes& shapes, bool graphs, int kernels_per_operation, int local_experts,
                        double traffic) {
  TimedPart part;
  const auto R = static_cast<std::size_t>(program.ranks());
  std::array<int, 4> index{-1, -1, -1, -1};
  part.ops.reserve(pass.size());
  for (std::size_t i = 0; i < pass.size(); ++i) {
    const Op& op = pass[i];
    TimedOp t;
    t.category = op.category;
    t.stream = op.stream;
    t.after = op.after;
    t.launches = graphs ? 0 : kernels_per_operation;
    switch (op.kind) {
      case OpKind::kCollective:
        t.kind = op.fused ? TimedOp::Kind::kNothing : TimedOp::Kind::kCollective;
        t.work = Work::kTransfer;
        if (!op.fused) {
          int& known = index[static_cast<std::size_t>(op.group)];
          if (known < 0) {
            known = static_cast<int>(part.groups.size());
            std::vector<std::int32_t> of(R);
            for (std::size_t r = 0; r < R; ++r) of[r] = program.group_index(op.group, static_cast<int>(r));
            part.groups.push_back(std::move(of));
            part.group_counts.push_back(program.group_count(op.group));
          }
          t.group = static_cast<std::int8_t>(known);
          t.ring = !op.one_kernel && op.comm != CommKind::kAllToAll && op.comm != CommKind::kAllToAllV;
          t.network = op.one_kernel ? op.across_nodes : shapes.of(op.group, 0).across_domains();
        }
        break;
      case OpKind::kKernel:
      case OpKind::kGemm:
        t.launches = graphs ? 0 : std::max(op.launches, kernels_per_operation);
        if (op.kind == OpKind::kGemm && !graphs) t.launches = std::max(t.launches, local_experts);
        if (op.kind == OpKind::kGemm) t.work = Work::kProduct;
        t.weight_gradient = op.kind == OpKind::kGemm && op.pass == GemmPass::kWgrad;
        break;
      case OpKind::kAttention:
      case OpKind::kCopyToHost:
        break;
      case OpKind::kHostWait:
      case OpKind::kHost:
        t.kind = graphs ? TimedOp::Kind::kNothing : TimedOp::Kind::kHost;
        break;
      case OpKind::kAllocate:
      case OpKind::kFree:
        t.kind = TimedOp::Kind::kNothing;
        break;
    }
    t.first = static_cast<std::uint32_t>(part.ps.size());
    t.step = 1;
    const double slow = op.kind == OpKind::kKernel ? traffic : 1;
    for (std::size_t r = 0; r < R; ++r)
      part.ps.push_back(
          static_cast<std::int64_t>(static_cast<double>(prices.at(i, static_cast<int>(r))) * slow));
    part.ops.push_back(t);
  }
  return part;
}

std::int64_t network_ps(std::span<const TimedPart* const> parts) {
  std::int64_t total = 0;
  for (const TimedPart* part : parts)
    for (const TimedOp& op : part->ops) {
      if (!op.network) continue;
      std::int64_t longest = 0;
      const std::size_t last = op.step == 0 ? op.first : part->ps.size() - 1;
      // With a time for every rank, the ranks of one operation lie side by side.
      const std::size_t ranks = op.step == 0 ? 1 : part->ps.size() / part->ops.size();
      for (std::size_t i = op.first; i <= std::min(last, op.first + ranks - 1); ++i)
        longest = std::max(longest, part->ps[i]);
      total += longest;
    }
  return total;
}

TimedPart with_faults(const TimedPart& part, const RankFaults& faults, int tp, std::size_t salt) {
  const std::size_t R = faults.compute.size();
  TimedPart result;
  result.ops = part.ops;
  result.groups = part.groups;
  result.group_counts = part.group_counts;
  result.ps.reserve(part.ops.size() * R);
  const auto neighbours = static_cast<std::size_t>(std::max(1, tp));
  for (std::size_t i = 0; i < part.ops.size(); ++i) {
    TimedOp& op = result.ops[i];
    const std::vector<std::int32_t>* group =
        op.group < 0 ? nullptr : &part.groups[static_cast<std::size_t>(op.group)];
    const auto same = [&](std::size_t a, std::size_t b) {
      return group ? (*group)[a] == (*group)[b] : a / neighbours == b / neighbours;
    };
    for (std::size_t r = 0; r < R; ++r) {
      double factor = 1;
      if (op.kind == TimedOp::Kind::kDevice) {
        factor = faults.computing(salt + i, r);
      } else if (op.kind == TimedOp::Kind::kCollective) {
        factor = faults.link(op.network, r);
        if (op.ring || !group)
          for (std::size_t other = 0; other < R; ++other)
            if (same(r, other)) factor = std::max(factor, faults.link(op.network, other));
      }
      result.ps.push_back(
          static_cast<std::int64_t>(static_cast<double>(part.at(part.ops[i], r)) * factor + 0.5));
    }
    op.first = static_cast<std::uint32_t>(i * R);
    op.step = 1;
  }
  return result;
}

TimedPart only_weight_gradients(const TimedPart& part) {
  TimedPart result;
  for (const TimedOp& op : part.ops) {
    if (!op.weight_gradient) continue;
    TimedOp copy = op;
    copy.after = {static_cast<std::int32_t>(result.ops.size()) - 1, -1};
    result.ops.push_back(copy);
  }
  result.ps = part.ps;
  return result;
}

TimedPart without_weight_gradients(const TimedPart& part) {
  TimedPart result = part;
  // What waited for a weight gradient waits for what that waited for.
  for (TimedOp& op : result.ops)
    if (op.weight_gradient) op.kind = TimedOp::Kind::kNothing, op.launches = 0;
  return result;
}

PassTime& PassTime::operator+=(const PassTime& other) {
  total_ps += other.total_ps;
  exposed_ps += other.exposed_ps;
  for (std::size_t i = 0; i < breakdown_ps.size(); ++i) breakdown_ps[i] += other.breakdown_ps[i];
  return *this;
}

PassTime PassTime::scaled(double factor) const {
  PassTime result;
  result.exposed_ps = static_cast<std::int64_t>(static_cast<double>(exposed_ps) * factor);
  for (std::size_t i = 0; i < breakdown_ps.size(); ++i) {
    result.breakdown_ps[i] = static_cast<std::int64_t>(static_cast<double>(breakdown_ps[i]) * factor);
    result.total_ps += result.breakdown_ps[i];
  }
  if (result.total_ps == 0)
    result.total_ps = static_cast<std::int64_t>(static_cast<double>(total_ps) * factor);
  return result;
}

PassTime time_pass(std::span<const TimedPart* const> parts, const PassOptions& o) {
  return timed(o, [&](StreamClocks& clocks) { run_alone(clocks, parts); });
}

namespace {

std::vector<const TimedPart*> repeated(std::span<const TimedPart* const> parts, int times) {
  std::vector<const TimedPart*> all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), parts.begin(), parts.end());
  return all;
}

// The second half of four copies: (T(4) - T(2)) / 2.
PassTime per_copy(const PassTime& two, const PassTime& four) {
  PassTime result;
  result.total_ps = (four.total_ps - two.total_ps) / 2;
  result.exposed_ps = (four.exposed_ps - two.exposed_ps) / 2;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < result.breakdown_ps.size(); ++i) {
    result.breakdown_ps[i] = (four.breakdown_ps[i] - two.breakdown_ps[i]) / 2;
    sum += result.breakdown_ps[i];
  }
  result.breakdown_ps[static_cast<std::size_t>(Category::other)] += result.total_ps - sum;
  return result;
}

}  // namespace

PassTime time_in_a_row(std::span<const TimedPart* const> parts, const PassOptions& o) {
  const std::vector<const TimedPart*> two = repeated(parts, 2), four = repeated(parts, 4);
  return per_copy(time_pass(two, o), time_pass(four, o));
}

PassTime time_overlapped(std::span<const TimedPart* const> forward,
                         std::span<const TimedPart* const> backward, const PassOptions& o) {
  std::vector<TimedPart> kept, set_aside;
  std::vector<const TimedPart*> back(backward.begin(), backward.end()), later;
  if (o.delayed_weight_gradients) {
    kept.reserve(backward.size()), set_aside.reserve(backward.size());
    for (std::size_t i = 0; i < backward.size(); ++i) {
      kept.push_back(without_weight_gradients(*backward[i]));
      set_aside.push_back(only_weight_gradients(*backward[i]));
      back[i] = &kept[i];
      later.push_back(&set_aside[i]);
    }
  }
  const auto run = [&](int times) {
    const std::vector<const TimedPart*> f = repeated(forward, times), b = repeated(back, times),
                                        w = repeated(later, times);
    return timed(o, [&](StreamClocks& clocks) { run_together(clocks, f, b, w, o); });
  };
  return per_copy(run(2), run(4));
}

}  // namespace moesim::models
