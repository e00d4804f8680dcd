#include "sim/run/lockstep.h"

#include <algorithm>

#include "base/check.h"
#include "sim/run/lockstep_rates.h"

namespace moesim::sim {

namespace {

constexpr std::int64_t kFree = 0;  // a stream unused by this run

}  // namespace

std::int64_t LockstepProgram::launches() const {
  std::int64_t sum = 0;
  for (const LockstepOp& op : ops)
    if (on_device(op.kind)) sum += op.launches;
  return sum;
}

bool LockstepProgram::waits_on_host() const {
  return std::any_of(ops.begin(), ops.end(),
                     [](const LockstepOp& op) { return op.kind == LockstepOp::Kind::host; });
}

bool LockstepProgram::serial() const {
  // last[i]: the device operation that must have ended when operation i has; -1: none.
  std::vector<std::int32_t> last(ops.size(), -1);
  std::int32_t before = -1;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const LockstepOp& op = ops[i];
    for (const std::int32_t other : op.after)
      if (other >= 0) last[i] = std::max(last[i], last[static_cast<std::size_t>(other)]);
    if (op.kind != LockstepOp::Kind::compute && op.kind != LockstepOp::Kind::transfer) continue;
    if (before >= 0 && last[i] < before && ops[static_cast<std::size_t>(before)].stream != op.stream)
      return false;
    last[i] = before = static_cast<std::int32_t>(i);
  }
  return true;
}

bool LockstepProgram::uniform() const {
  return std::all_of(ops.begin(), ops.end(), [](const LockstepOp& op) { return op.step == 0; });
}

struct Lockstep::Chain {
  const LockstepChain* programs = nullptr;
  std::size_t at = 0;                       // program whose operations `end` holds
  std::vector<std::int64_t> end;            // [operation * ranks + rank]
  std::vector<std::int64_t> entry, latest;  // by rank: earliest start of the program; latest end so far

  const LockstepProgram& program() const { return *(*programs)[at]; }
  void enter(std::size_t program, std::size_t ranks) {
    at = program;
    entry = latest;
    end.assign((*programs)[program]->ops.size() * ranks, 0);
  }
};

Lockstep::Lockstep(std::size_t ranks, const LockstepOptions& options)
    : options_(options), ready_(ranks), host_(ranks), streams_(kLockstepStreams * ranks), start_(ranks) {}

std::vector<LockstepPiece> one_by_one(const LockstepChain& chain) {
  std::vector<LockstepPiece> order;
  for (std::size_t p = 0; p < chain.size(); ++p)
    order.push_back({0, static_cast<std::int32_t>(p), 0, static_cast<std::int32_t>(chain[p]->ops.size())});
  return order;
}

void Lockstep::run(const LockstepChain& chain) { run(std::span(&chain, 1), one_by_one(chain)); }

void Lockstep::run(std::span<const LockstepChain> chains, std::span<const LockstepPiece> order) {
  const std::size_t R = ready_.size();
  const bool slows = options_.overlap.compute != 1 || options_.overlap.communication != 1;
  if (slows) {
    bool alone = chains.size() == 1;
    std::array<const LockstepProgram*, 4> known{};  // of the last ones: layers repeat them
    for (std::size_t p = 0; alone && p < chains.front().size(); ++p) {
      const LockstepProgram* program = chains.front()[p];
      if (std::find(known.begin(), known.end(), program) != known.end()) continue;
      alone = program->serial();
      known[p % known.size()] = program;
    }
    if (!alone) {
      run_with_rates(chains, order, options_, ready_, host_, watch_);
      return;
    }
  }
  std::fill(streams_.begin(), streams_.end(), kFree);
  std::vector<Chain> state(chains.size());
  for (std::size_t c = 0; c < chains.size(); ++c) {
    state[c].programs = &chains[c];
    state[c].latest = ready_;
    if (!chains[c].empty()) state[c].enter(0, R);
  }
  for (const LockstepPiece& piece : order) {
    Chain& chain = state[static_cast<std::size_t>(piece.chain)];
    if (chain.at != static_cast<std::size_t>(piece.program))
      chain.enter(static_cast<std::size_t>(piece.program), R);
    for (std::int32_t op = piece.from; op < piece.to; ++op)
      R == 1 ? issue<true>(chain, op) : issue<false>(chain, op);
  }
  for (const Chain& chain : state)
    for (std::size_t r = 0; r < R; ++r) ready_[r] = std::max(ready_[r], chain.latest[r]);
}

template <bool kOneRank>
void Lockstep::issue(Chain& chain, std::int32_t index) {
  using Kind = LockstepOp::Kind;
  const std::size_t R = kOneRank ? 1 : ready_.size();
  const LockstepProgram& program = chain.program();
  const LockstepOp& op = program.ops[static_cast<std::size_t>(index)];
  std::int64_t* const end = chain.end.data() + static_cast<std::size_t>(index) * R;
  std::int64_t* const host = host_.data();
  std::int64_t* const start = start_.data();
  const std::int64_t* const ps = program.ps.data() + op.first;
  const std::size_t step = op.step;

  // Dependencies of the operation.
  if (op.kind == Kind::host)
    std::copy(host, host + R, start);
  else
    std::copy(chain.entry.begin(), chain.entry.end(), start);
  for (const std::int32_t other : op.after) {
    if (other < 0) continue;
    const std::int64_t* const ended = chain.end.data() + static_cast<std::size_t>(other) * R;
    for (std::size_t r = 0; r < R; ++r) start[r] = std::max(start[r], ended[r]);
  }

  if (op.partial) {
    // A rank that skips a host wait is not delayed; dependents of the wait continue after the awaited
    // operation.
    if (op.kind == Kind::host)
      for (const std::int32_t other : op.after)
        for (std::size_t r = 0; other >= 0 && r < R; ++r)
          end[r] = std::max(end[r], chain.end[static_cast<std::size_t>(other) * R + r]);
    issue_on_some(program, op, end);
  } else if (op.kind == Kind::host) {
    for (std::size_t r = 0; r < R; ++r) {
      if (static_cast<int>(r) == (watch_ ? watch_->rank : -1))
        note(op, start[r], start[r] + ps[step * r], 0, 0, 0);
      end[r] = host[r] = start[r] + ps[step * r];
    }
  } else if (op.kind == Kind::nothing) {
    std::copy(start, start + R, end);
  } else {
    const std::int64_t launching = options_.launch_ps * op.launches;
    std::int64_t* const free = streams_.data() + op.stream * R;
    for (std::size_t r = 0; r < R; ++r) {
      host[r] += launching;
      start[r] = std::max(std::max(start[r], host[r]), free[r]);
    }
    if (op.kind == Kind::transfer && op.group >= 0) {
      const LockstepGroup& group = (*program.groups)[static_cast<std::size_t>(op.group)];
      if (group.count == 1) {
        const std::int64_t begin = *std::max_element(start, start + R);
        for (std::size_t r = 0; r < R; ++r) end[r] = begin + ps[step * r];
      } else {
        meeting_.assign(static_cast<std::size_t>(group.count), 0);
        for (std::size_t r = 0; r < R; ++r) {
          std::int64_t& begin = meeting_[static_cast<std::size_t>(group.of_rank[r])];
          begin = std::max(begin, start[r]);
        }
        for (std::size_t r = 0; r < R; ++r)
          end[r] = meeting_[static_cast<std::size_t>(group.of_rank[r])] + ps[step * r];
      }
    } else {
      for (std::size_t r = 0; r < R; ++r) end[r] = start[r] + ps[step * r];
    }
    if (watch_ && watch_->rank >= 0) {
      const auto r = static_cast<std::size_t>(watch_->rank);
      note(op, host[r] - launching, host[r], start[r], end[r] - ps[step * r], end[r]);
    }
    std::copy(end, end + R, free);
  }
  std::int64_t last = 0;
  for (std::size_t r = 0; r < R; ++r) {
    chain.latest[r] = std::max(chain.latest[r], end[r]);
    last = std::max(last, end[r]);
  }
  check_clock(last);
}

// Runs the operation on the ranks that issue it; on others it keeps its place on the stream without time and
// without a host launch.
void Lockstep::issue_on_some(const LockstepProgram& program, const LockstepOp& op, std::int64_t* end) {
  const bool waits = op.kind == LockstepOp::Kind::host;
  check(waits || op.kind == LockstepOp::Kind::compute || op.kind == LockstepOp::Kind::delay,
        "all ranks come to a collective");
  const std::int64_t launching = waits ? 0 : options_.launch_ps * op.launches;
  for (std::size_t r = 0; r < ready_.size(); ++r) {
    std::int64_t& free = waits ? host_[r] : streams_[op.stream * ready_.size() + r];
    if (!program.runs(op, r)) {
      if (!waits) end[r] = free = std::max(start_[r], free);
      continue;
    }
    host_[r] += launching;
    if (!waits) start_[r] = std::max(std::max(start_[r], host_[r]), free);
    end[r] = start_[r] + program.at(op, r);
    free = end[r];
    if (static_cast<int>(r) == (watch_ ? watch_->rank : -1)) {
      if (waits)
        note(op, start_[r], end[r], 0, 0, 0);
      else
        note(op, host_[r] - launching, host_[r], start_[r], start_[r], end[r]);
    }
  }
}

void note_spans(const LockstepOp& op, std::int64_t host_from, std::int64_t host_to, std::int64_t start,
                std::int64_t begin, std::int64_t end, std::vector<BusySpan>& spans) {
  const auto add = [&](std::int64_t from, std::int64_t to, Activity activity, Category category) {
    if (to > from)
      spans.push_back({Time::from_ps(from), Time::from_ps(to), activity, category,
                       static_cast<std::uint32_t>(spans.size())});
  };
  using Kind = LockstepOp::Kind;
  add(host_from, host_to, Activity::host, op.kind == Kind::host ? op.category : Category::host_sync);
  if (op.kind == Kind::host) return;
  if (op.kind == Kind::transfer) add(start, begin, Activity::straggling, Category::straggler_wait);
  add(begin, end,
      op.kind == Kind::transfer  ? Activity::transferring
      : op.kind == Kind::compute ? Activity::computing
                                 : Activity::host,
      op.category);
}

void Lockstep::note(const LockstepOp& op, std::int64_t host_from, std::int64_t host_to, std::int64_t start,
                    std::int64_t begin, std::int64_t end) {
  note_spans(op, host_from, host_to, start, begin, end, watch_->spans);
}

void Lockstep::wait(std::span<const std::int64_t> when) {
  for (std::size_t r = 0; r < ready_.size(); ++r) ready_[r] = std::max(ready_[r], when[r]);
  check_clock(end());
}

void Lockstep::set(std::span<const std::int64_t> ready, std::span<const std::int64_t> host) {
  check(ready.size() == ready_.size() && host.size() == host_.size(), "a clock for every rank");
  std::copy(ready.begin(), ready.end(), ready_.begin());
  std::copy(host.begin(), host.end(), host_.begin());
  check_clock(end());
}

std::int64_t Lockstep::end() const { return *std::max_element(ready_.begin(), ready_.end()); }

int Lockstep::last_rank() const {
  return static_cast<int>(std::max_element(ready_.begin(), ready_.end()) - ready_.begin());
}

}  // namespace moesim::sim
