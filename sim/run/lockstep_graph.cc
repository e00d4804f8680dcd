#include "sim/run/lockstep_graph.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace moesim::sim {

namespace {

using Kind = LockstepOp::Kind;

constexpr std::array<StreamKind, kLockstepStreams> kKinds{StreamKind::compute, StreamKind::comm,
                                                          StreamKind::copy, StreamKind::compute};

}  // namespace

LockstepGraph::LockstepGraph(std::size_t ranks, Options options)
    : ranks_(ranks), options_(std::move(options)), unnamed_(b_.add_label("", Category::host_sync)) {
  if (options_.gpus.empty()) {
    options_.gpus.resize(ranks);
    std::iota(options_.gpus.begin(), options_.gpus.end(), 0);
  }
  all_ = options_.gpus.size();
  done_.resize(all_);
  b_.add_ranks(static_cast<std::size_t>(*std::ranges::max_element(options_.gpus)) + 1);
  for (const std::int32_t gpu : options_.gpus) {
    const RankId rank(static_cast<std::uint32_t>(gpu));
    for (const StreamKind kind : kKinds) streams_.push_back(b_.add_stream(rank, kind));
    hosts_.push_back(b_.add_stream(rank, StreamKind::host));
  }
}

LockstepGraph::Tasks LockstepGraph::run(std::span<const LockstepChain> chains,
                                        std::span<const LockstepPiece> order, const Name& name) {
  Tasks tasks(chains.size());
  // By chain: the program that runs, and by rank the end of those before it.
  std::vector<std::size_t> at(chains.size(), 0);
  std::vector<std::vector<TaskId>> entry(chains.size(), done_);
  const auto leave = [&](std::size_t chain) {
    const std::vector<TaskId>& left = tasks[chain][at[chain]++];
    for (std::size_t r = 0; !left.empty() && r < all_; ++r) {
      const TaskId end = instant(r);
      depend(entry[chain][r], end);
      for (std::size_t i = r; i < left.size(); i += all_) depend(left[i], end);
      entry[chain][r] = end;
    }
  };
  for (std::size_t c = 0; c < chains.size(); ++c)
    for (const LockstepProgram* program : chains[c]) tasks[c].emplace_back(program->ops.size() * all_);
  for (const LockstepPiece& piece : order) {
    const auto c = static_cast<std::size_t>(piece.chain), p = static_cast<std::size_t>(piece.program);
    while (at[c] < p) leave(c);
    for (auto i = static_cast<std::size_t>(piece.from); i < static_cast<std::size_t>(piece.to); ++i)
      add(*chains[c][p], i, name(c, p, i), entry[c], tasks[c][p]);
  }
  for (std::size_t c = 0; c < chains.size(); ++c)
    while (at[c] < chains[c].size()) leave(c);
  for (std::size_t r = 0; r < all_; ++r) {
    const TaskId end = instant(r);
    for (const std::vector<TaskId>& of_chain : entry) depend(of_chain[r], end);
    done_[r] = end;
  }
  return tasks;
}

TaskId LockstepGraph::instant(std::size_t rank) {
  const RankId own(static_cast<std::uint32_t>(options_.gpus[rank]));
  return b_.add_delay(b_.add_stream(own, StreamKind::host), Time(), unnamed_);
}

void LockstepGraph::add(const LockstepProgram& program, std::size_t index, std::string_view name,
                        const std::vector<TaskId>& entry, std::vector<TaskId>& tasks) {
  const LockstepOp& op = program.ops[index];
  const LabelId label = b_.add_label(name, op.category);
  const std::vector<CollectiveId> groups =
      op.kind == Kind::transfer ? collectives(program, index, label) : std::vector<CollectiveId>();
  std::vector<std::uint32_t> members(groups.size());
  for (std::size_t r = 0; r < all_; ++r) {
    const std::size_t rank = r % ranks_;
    const Time time = Time::from_ps(program.at(op, rank));
    const bool host = op.kind == Kind::host, runs = program.runs(op, rank);
    TaskId& task = tasks[index * all_ + r];
    if (op.kind == Kind::nothing || (host && !runs)) {
      task = instant(r);
    } else if (host) {
      task = b_.add_host(hosts_[r], time, label);
    } else {
      TaskId launched;
      if (runs) launched = b_.add_host(hosts_[r], Time::from_ps(options_.launch_ps * op.launches), unnamed_);
      const StreamId stream = streams_[r * kLockstepStreams + op.stream];
      if (op.kind == Kind::transfer) {
        const std::size_t group = group_of(program, op, r);
        task = b_.add_member(stream, groups[group], members[group]++);
      } else if (op.kind == Kind::compute && runs) {
        task = b_.add_compute(stream, time, label);
      } else {
        task = b_.add_delay(stream, time, runs ? label : unnamed_);
      }
      depend(launched, task);
    }
    if (!host) depend(entry[r], task);
    for (const std::int32_t other : op.after)
      if (other >= 0) depend(tasks[static_cast<std::size_t>(other) * all_ + r], task);
  }
}

std::vector<CollectiveId> LockstepGraph::collectives(const LockstepProgram& program, std::size_t index,
                                                     LabelId label) {
  const LockstepOp& op = program.ops[index];
  std::vector<std::vector<RankId>> members;
  std::vector<std::vector<Time>> times;
  for (std::size_t r = 0; r < all_; ++r) {
    const std::size_t group = group_of(program, op, r);
    if (members.size() <= group) members.resize(group + 1), times.resize(group + 1);
    members[group].emplace_back(static_cast<std::uint32_t>(options_.gpus[r]));
    times[group].push_back(Time::from_ps(program.at(op, r % ranks_)));
  }
  std::vector<CollectiveId> all;
  for (std::size_t g = 0; g < members.size(); ++g) {
    Collective one;
    if (options_.collective) {
      one = options_.collective(b_, index, g);
    } else {
      one.traffic = uniform_traffic(0).priced(static_cast<std::uint32_t>(times_.size()));
      times_.push_back(std::move(times[g]));
    }
    all.push_back(b_.add_collective(one.op, b_.add_group(members[g]), one.traffic, label));
  }
  return all;
}

std::size_t LockstepGraph::group_of(const LockstepProgram& program, const LockstepOp& op,
                                    std::size_t rank) const {
  if (op.group < 0) return rank;
  const LockstepGroup& group = (*program.groups)[static_cast<std::size_t>(op.group)];
  return rank / ranks_ * static_cast<std::size_t>(group.count) +
         static_cast<std::size_t>(group.of_rank[rank % ranks_]);
}

void LockstepGraph::price_collective(const CollectiveShape& shape, std::span<Time> out) const {
  std::ranges::copy(times_[shape.traffic.price], out.begin());
}

}  // namespace moesim::sim
