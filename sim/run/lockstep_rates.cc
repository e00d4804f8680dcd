#include "sim/run/lockstep_rates.h"

#include <algorithm>
#include <queue>

#include "sim/run/prices.h"

namespace moesim::sim {

namespace {

using Kind = LockstepOp::Kind;

bool on_device(const LockstepOp& op) { return LockstepProgram::on_device(op.kind); }

// The operations of all chains in issue order, with their dependencies: the same on all ranks.
class Issue {
 public:
  struct Op {
    const LockstepOp* op;
    const LockstepProgram* program;
    std::int32_t instance;        // of the program among all
    std::uint16_t waits_for = 0;  // operations, and one for the previous program
  };

  Issue(std::span<const LockstepChain> chains, std::span<const LockstepPiece> order) {
    std::vector<std::vector<std::int32_t>> instances(chains.size());
    for (std::size_t c = 0; c < chains.size(); ++c) {
      std::int32_t before = -1;
      for (const LockstepProgram* program : chains[c]) {
        const auto id = static_cast<std::int32_t>(sizes_.size());
        instances[c].push_back(id);
        sizes_.push_back(static_cast<std::int32_t>(program->ops.size()));
        next_.push_back(-1);
        before_.push_back(-1);
        members_.emplace_back(program->ops.size(), -1);
        if (program->ops.empty()) continue;
        if (before >= 0) next_[static_cast<std::size_t>(before)] = id;
        before_.back() = before;
        before = id;
      }
    }
    std::vector<std::int32_t> last(kLockstepStreams, -1);
    for (const LockstepPiece& piece : order) {
      const auto c = static_cast<std::size_t>(piece.chain);
      const auto p = static_cast<std::size_t>(piece.program);
      const LockstepProgram& program = *chains[c][p];
      const std::int32_t instance = instances[c][p];
      for (std::int32_t i = piece.from; i < piece.to; ++i) {
        const LockstepOp& op = program.ops[static_cast<std::size_t>(i)];
        const auto id = static_cast<std::int32_t>(ops.size());
        members_[static_cast<std::size_t>(instance)][static_cast<std::size_t>(i)] = id;
        ops.push_back({&op, &program, instance});
        successors.emplace_back();
        for (const std::int32_t other : op.after)
          if (other >= 0)
            wait(id, members_[static_cast<std::size_t>(instance)][static_cast<std::size_t>(other)]);
        if (on_device(op)) {
          std::int32_t& before = last[op.stream];
          if (before >= 0) wait(id, before);
          before = id;
        }
        if (op.kind != Kind::host && before_[static_cast<std::size_t>(instance)] >= 0) ++ops.back().waits_for;
      }
    }
  }

  // Returns the program that may begin when `instance` has ended, and the one that it waits for; -1: none.
  std::int32_t after(std::size_t instance) const { return next_[instance]; }
  std::int32_t before(std::size_t instance) const { return before_[instance]; }
  std::span<const std::int32_t> of(std::size_t instance) const { return members_[instance]; }
  std::span<const std::int32_t> sizes() const { return sizes_; }

  std::vector<Op> ops;
  std::vector<std::vector<std::int32_t>> successors;

 private:
  void wait(std::int32_t op, std::int32_t other) {
    ++ops[static_cast<std::size_t>(op)].waits_for;
    successors[static_cast<std::size_t>(other)].push_back(op);
  }

  std::vector<std::int32_t> sizes_, next_, before_;
  std::vector<std::vector<std::int32_t>> members_;  // [instance][operation]: its index in issue order
};

class Rates {
 public:
  Rates(const Issue& issue, const LockstepOptions& options, std::vector<std::int64_t>& ready,
        std::vector<std::int64_t>& host)
      : issue_(issue),
        options_(options),
        R_(ready.size()),
        N_(issue.ops.size()),
        entry_(ready),
        ready_(ready),
        host_(host),
        state_(N_ * R_),
        arrived_(N_),
        left_(issue.sizes().size() * R_),
        latest_(left_.size(), -1),
        ranks_(R_) {
    for (std::size_t p = 0; p < issue.sizes().size(); ++p)
      std::fill_n(left_.begin() + static_cast<std::ptrdiff_t>(p * R_), R_, issue.sizes()[p]);
    for (std::size_t i = 0; i < N_; ++i) {
      const Issue::Op& o = issue.ops[i];
      // One more for the launch; a host operation is reached instead.
      const auto pending = static_cast<std::uint16_t>(o.waits_for + (on_device(*o.op) ? 1 : 0));
      for (std::size_t r = 0; r < R_; ++r) {
        State& s = at(i, r);
        s.pending = pending;
        s.start = o.op->kind == Kind::host ? 0 : entry_[r];
      }
      if (o.op->kind == Kind::transfer && o.op->group >= 0)
        arrived_[i].assign(
            static_cast<std::size_t>((*o.program->groups)[static_cast<std::size_t>(o.op->group)].count), 0);
    }
    count_members();
  }

  void run() {
    for (std::size_t r = 0; r < R_; ++r) {
      for (std::size_t i = 0; i < N_; ++i)
        if ((issue_.ops[i].op->kind == Kind::nothing ||
             (issue_.ops[i].op->kind == Kind::host && !runs(i, r))) &&
            issue_.ops[i].waits_for == 0)
          finish(i, r, at(i, r).start);
      launch(r);
    }
    wake_hosts();
    while (!queue_.empty()) {
      now_ = queue_.top().when;
      while (!queue_.empty() && queue_.top().when == now_) {
        const Event e = queue_.top();
        queue_.pop();
        State& s = at(e.op, e.rank);
        if (e.starts)
          begin(e.op, e.rank);
        else if (s.version == e.version)
          stop(e.op, e.rank);
      }
      adjust();
    }
  }

  struct State {
    std::int64_t start = 0, begin = 0, end = -1;  // end: -1 until it has ended
    std::int64_t launched = 0;                    // time of the host's launch
    Progress progress;
    std::uint16_t pending = 0, version = 0;
  };
  const State& state(std::size_t op, std::size_t rank) const { return state_[op * R_ + rank]; }

 private:
  struct Event {
    std::int64_t when;
    std::uint32_t op, rank;
    std::uint16_t version;
    bool starts;

    bool operator<(const Event& other) const {  // for a queue with the earliest on top
      if (when != other.when) return when > other.when;
      if (op != other.op) return op > other.op;
      return rank > other.rank;
    }
  };
  struct Rank {
    std::size_t launched = 0;  // operations that the host has processed
    std::vector<std::uint32_t> running;
    int computing = 0, transferring = 0;
    bool changed = false;
  };

  State& at(std::size_t op, std::size_t rank) { return state_[op * R_ + rank]; }
  std::int64_t duration(std::size_t op, std::size_t rank) const {
    return issue_.ops[op].program->at(*issue_.ops[op].op, rank);
  }

  bool runs(std::size_t op, std::size_t rank) const {
    return issue_.ops[op].program->runs(*issue_.ops[op].op, rank);
  }

  void count_members() {
    for (std::size_t i = 0; i < N_; ++i) {
      if (arrived_[i].empty()) continue;
      const LockstepGroup& group =
          (*issue_.ops[i].program->groups)[static_cast<std::size_t>(issue_.ops[i].op->group)];
      for (std::size_t r = 0; r < R_; ++r) ++arrived_[i][static_cast<std::size_t>(group.of_rank[r])];
    }
  }

  // The host continues until it must wait for an operation that has not ended.
  void launch(std::size_t r) {
    Rank& rank = ranks_[r];
    for (; rank.launched < N_; ++rank.launched) {
      const std::size_t i = rank.launched;
      const LockstepOp& op = *issue_.ops[i].op;
      State& s = at(i, r);
      if (op.kind == Kind::nothing) continue;
      if (!runs(i, r)) {
        if (op.kind != Kind::host) resolve(i, r);
        continue;
      }
      if (op.kind == Kind::host) {
        if (s.pending > 0) return;
        s.begin = std::max(host_[r], s.start);
        s.launched = s.begin;
        host_[r] = s.begin + duration(i, r);
        const std::size_t here = rank.launched++;
        finish(here, r, host_[r]);
        launch(r);
        return;
      }
      host_[r] += options_.launch_ps * op.launches;
      s.launched = host_[r];
      s.start = std::max(s.start, host_[r]);
      resolve(i, r);
    }
  }

  // One dependency of the operation is resolved.
  void resolve(std::size_t i, std::size_t r) {
    State& s = at(i, r);
    if (--s.pending > 0) return;
    const Kind kind = issue_.ops[i].op->kind;
    if (!runs(i, r)) s.begin = s.start;
    if (kind == Kind::nothing || !runs(i, r))
      finish(i, r, s.start);
    else if (kind == Kind::host)
      waiting_hosts_.push_back(static_cast<std::uint32_t>(r));
    else
      queue_.push({s.start, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(r), 0, true});
  }

  void begin(std::size_t i, std::size_t r) {
    const Issue::Op& o = issue_.ops[i];
    if (o.op->kind == Kind::transfer && o.op->group >= 0) {
      const LockstepGroup& group = (*o.program->groups)[static_cast<std::size_t>(o.op->group)];
      const std::int32_t g = group.of_rank[r];
      if (--arrived_[i][static_cast<std::size_t>(g)] > 0) return;
      for (std::size_t member = 0; member < R_; ++member)
        if (group.of_rank[member] == g) work(i, member);
      return;
    }
    work(i, r);
  }

  void work(std::size_t i, std::size_t r) {
    State& s = at(i, r);
    s.begin = now_;
    if (issue_.ops[i].op->kind == Kind::delay) {
      queue_.push(
          {now_ + duration(i, r), static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(r), 0, false});
      return;
    }
    s.progress = {Time::from_ps(duration(i, r)), Time::from_ps(now_), 1.0};
    Rank& rank = ranks_[r];
    (issue_.ops[i].op->kind == Kind::compute ? rank.computing : rank.transferring) += 1;
    rank.running.push_back(static_cast<std::uint32_t>(i));
    queue_.push({now_ + s.progress.left.ps(), static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(r),
                 s.version, false});
    mark(r);
  }

  void stop(std::size_t i, std::size_t r) {
    if (issue_.ops[i].op->kind != Kind::delay) {
      Rank& rank = ranks_[r];
      (issue_.ops[i].op->kind == Kind::compute ? rank.computing : rank.transferring) -= 1;
      rank.running.erase(std::find(rank.running.begin(), rank.running.end(), static_cast<std::uint32_t>(i)));
      ++at(i, r).version;
      mark(r);
    }
    finish(i, r, now_);
    wake_hosts();
  }

  void wake_hosts() {
    while (!waiting_hosts_.empty()) {
      const std::uint32_t host = waiting_hosts_.back();
      waiting_hosts_.pop_back();
      launch(host);
    }
  }

  void mark(std::size_t r) {
    if (ranks_[r].changed) return;
    ranks_[r].changed = true;
    changed_.push_back(static_cast<std::uint32_t>(r));
  }

  void adjust() {
    for (const std::uint32_t r : changed_) {
      Rank& rank = ranks_[r];
      rank.changed = false;
      const bool both = rank.computing > 0 && rank.transferring > 0;
      for (const std::uint32_t i : rank.running) {
        State& s = at(i, r);
        const double to = slowdown_of(options_.overlap, issue_.ops[i].op->kind == Kind::compute, both);
        if (s.progress.slowdown == to) continue;
        const Time end = s.progress.change(to, Time::from_ps(now_));
        queue_.push({end.ps(), i, r, ++s.version, false});
      }
    }
    changed_.clear();
  }

  // The operation has ended, or will at a known time (host operations).
  void finish(std::size_t i, std::size_t r, std::int64_t when) {
    check_clock(when);
    at(i, r).end = when;
    ready_[r] = std::max(ready_[r], when);
    for (const std::int32_t after : issue_.successors[i]) {
      State& s = at(static_cast<std::size_t>(after), r);
      s.start = std::max(s.start, when);
      resolve(static_cast<std::size_t>(after), r);
    }
    const auto instance = static_cast<std::size_t>(issue_.ops[i].instance);
    if (--left_[instance * R_ + r] == 0) leave(instance, r);
  }

  // The rank has finished a program, unless it is still busy with the previous one.
  void leave(std::size_t instance, std::size_t r) {
    std::int64_t& latest = latest_[instance * R_ + r];
    if (latest >= 0 || left_[instance * R_ + r] > 0) return;
    const std::int32_t before = issue_.before(instance);
    latest = before < 0 ? entry_[r] : latest_[static_cast<std::size_t>(before) * R_ + r];
    if (latest < 0) return;
    for (const std::int32_t op : issue_.of(instance))
      latest = std::max(latest, at(static_cast<std::size_t>(op), r).end);
    const std::int32_t next = issue_.after(instance);
    if (next < 0) return;
    for (const std::int32_t op : issue_.of(static_cast<std::size_t>(next))) {
      if (issue_.ops[static_cast<std::size_t>(op)].op->kind == Kind::host) continue;
      State& s = at(static_cast<std::size_t>(op), r);
      s.start = std::max(s.start, latest);
      resolve(static_cast<std::size_t>(op), r);
    }
    leave(static_cast<std::size_t>(next), r);  // a program of host operations only may have ended already
  }

  const Issue& issue_;
  const LockstepOptions& options_;
  std::size_t R_, N_;
  std::vector<std::int64_t> entry_;
  std::vector<std::int64_t>&ready_, &host_;
  std::vector<State> state_;
  std::vector<std::vector<std::int32_t>> arrived_;  // [operation][group]: missing members
  std::vector<std::int32_t> left_;                  // [instance][rank]: operations that have not ended
  std::vector<std::int64_t> latest_;                // [instance][rank]: when the rank finished; -1: not yet
  std::vector<Rank> ranks_;
  std::priority_queue<Event> queue_;
  std::vector<std::uint32_t> changed_, waiting_hosts_;
  std::int64_t now_ = 0;
};

}  // namespace

void run_with_rates(std::span<const LockstepChain> chains, std::span<const LockstepPiece> order,
                    const LockstepOptions& options, std::vector<std::int64_t>& ready,
                    std::vector<std::int64_t>& host, LockstepWatch* watch) {
  const Issue issue(chains, order);
  Rates rates(issue, options, ready, host);
  rates.run();
  if (!watch || watch->rank < 0) return;
  for (std::size_t i = 0; i < issue.ops.size(); ++i) {
    const LockstepOp& op = *issue.ops[i].op;
    if (op.kind == Kind::nothing || !issue.ops[i].program->runs(op, static_cast<std::size_t>(watch->rank)))
      continue;
    const Rates::State& s = rates.state(i, static_cast<std::size_t>(watch->rank));
    const bool host_op = op.kind == Kind::host;
    note_spans(op, host_op ? s.begin : s.launched - options.launch_ps * op.launches,
               host_op ? s.end : s.launched, s.start, s.begin, s.end, watch->spans);
  }
}

}  // namespace moesim::sim
