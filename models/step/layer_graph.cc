#include "models/step/layer_graph.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"

namespace moesim::models {

namespace {

using sim::TaskId;

sim::StreamKind kind_of(Stream stream) {
  switch (stream) {
    case Stream::kHost:
      return sim::StreamKind::host;
    case Stream::kComm:
      return sim::StreamKind::comm;
    case Stream::kCopy:
      return sim::StreamKind::copy;
    default:
      return sim::StreamKind::compute;
  }
}

using Kind = sim::LockstepOp::Kind;

class Builder {
 public:
  Builder(std::span<const std::vector<std::int32_t>> groups, std::int64_t launch_ps)
      : R_(static_cast<int>(groups.front().size())),
        groups_(static_cast<int>(groups.size())),
        launch_ps_(launch_ps) {
    std::int32_t highest = 0;
    for (const std::vector<std::int32_t>& gpus : groups) {
      gpus_.insert(gpus_.end(), gpus.begin(), gpus.end());
      highest = std::max(highest, *std::max_element(gpus.begin(), gpus.end()));
    }
    const std::size_t all = gpus_.size();
    b_.add_ranks(static_cast<std::size_t>(highest) + 1);
    streams_.resize(all);
    barrier_.resize(all);
    for (std::size_t r = 0; r < all; ++r)
      for (int s = 0; s < kStreams; ++s)
        streams_[r][static_cast<std::size_t>(s)] = b_.add_stream(rank_id(r), kind_of(static_cast<Stream>(s)));
    launch_label_ = b_.add_label("launch", sim::Category::host_sync);
  }

  void add(const PricedPass& pass) {
    const Program& program = *pass.program;
    const std::vector<Op>& ops = *pass.ops;
    const std::size_t all = streams_.size();
    std::vector<TaskId> tasks(ops.size() * all);
    std::vector<std::array<bool, kStreams>> entered(all);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      const sim::LockstepOp& priced = pass.priced->ops[i];
      if (priced.kind == Kind::nothing) {
        // A fused operation ends with its carrying collective, others with their dependencies.
        const std::int32_t other = op.fused ? static_cast<std::int32_t>(i) - 1 : op.after[0];
        if (other >= 0)
          std::copy_n(tasks.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(other) * all), all,
                      tasks.begin() + static_cast<std::ptrdiff_t>(i * all));
        continue;
      }
      const sim::LabelId label = b_.add_label(op.name, op.category);
      // Members outside of the dispatch group are not in the graph.
      const bool whole =
          op.kind == OpKind::kCollective && program.ranks() % program.group_size(op.group) == 0;
      if (whole) add_collectives(program, ops, i, label);
      for (std::size_t r = 0; r < all; ++r) {
        const int rank = static_cast<int>(r) % R_;
        if (!pass.priced->runs(priced, static_cast<std::size_t>(rank)) && priced.kind == Kind::host) {
          if (op.after[0] >= 0) tasks[i * all + r] = tasks[static_cast<std::size_t>(op.after[0]) * all + r];
          continue;
        }
        const sim::Time price = sim::Time::from_ps(pass.priced->at(priced, static_cast<std::size_t>(rank)));
        const sim::StreamId stream = streams_[r][static_cast<std::size_t>(op.stream)];
        const sim::StreamId host = streams_[r][static_cast<std::size_t>(Stream::kHost)];
        const bool waits = priced.kind == Kind::host;
        TaskId launched;
        if (!waits && pass.priced->runs(priced, static_cast<std::size_t>(rank)))
          launched = b_.add_host(host, sim::Time::from_ps(launch_ps_ * priced.launches), launch_label_);
        TaskId& task = tasks[i * all + r];
        if (waits) {
          task = b_.add_host(host, price, label);
        } else if (priced.kind == Kind::delay) {
          task = b_.add_delay(stream, price, label);
        } else if (!whole) {
          task = b_.add_compute(stream, price, label);
        } else {
          const std::size_t group =
              r / static_cast<std::size_t>(R_) * static_cast<std::size_t>(program.group_count(op.group)) +
              static_cast<std::size_t>(program.group_index(op.group, rank));
          task = b_.add_member(stream, collectives_[group],
                               static_cast<std::uint32_t>(program.member_index(op.group, rank)));
        }
        if (launched.valid()) b_.add_dependency(launched, task);
        for (const std::int32_t other : op.after)
          if (other >= 0)
            if (const TaskId before = tasks[static_cast<std::size_t>(other) * all + r]; before.valid())
              b_.add_dependency(before, task);
        bool& is_in = entered[r][static_cast<std::size_t>(op.stream)];
        if (!waits && !is_in)
          for (const TaskId before : barrier_[r]) b_.add_dependency(before, task);
        is_in = is_in || !waits;
      }
    }
    for (std::size_t r = 0; r < all; ++r) {
      barrier_[r].clear();
      for (int s = 0; s < kStreams; ++s)
        if (s != static_cast<int>(Stream::kHost))
          if (const TaskId last = b_.last_on_stream(streams_[r][static_cast<std::size_t>(s)]); last.valid())
            barrier_[r].push_back(last);
    }
  }

  sim::TaskGraph finish() { return b_.finalize(); }

 private:
  // Adds the instances of operation `i` in all groups to collectives_.
  void add_collectives(const Program& program, const std::vector<Op>& ops, std::size_t i,
                       sim::LabelId label) {
    const Op& op = ops[i];
    collectives_.clear();
    const int g = program.group_size(op.group);
    std::vector<sim::RankId> members(static_cast<std::size_t>(g));
    for (int copy = 0; copy < groups_; ++copy)
      for (int group = 0; group < program.group_count(op.group); ++group) {
        for (int m = 0; m < g; ++m)
          members[static_cast<std::size_t>(m)] =
              rank_id(static_cast<std::size_t>(copy) * static_cast<std::size_t>(R_) +
                      static_cast<std::size_t>(program.rank_of(op.group, group, m)));
        collectives_.push_back(b_.add_collective(simulated(op.comm), b_.add_group(members),
                                                 traffic_of(program, ops, i, group), label));
      }
  }

  sim::RankId rank_id(std::size_t r) const { return sim::RankId(static_cast<std::uint32_t>(gpus_[r])); }

  sim::TrafficRef traffic_of(const Program& program, const std::vector<Op>& ops, std::size_t i, int group) {
    const Op& op = ops[i];
    const auto g = static_cast<std::size_t>(program.group_size(op.group));
    const bool piece_is_out = op.comm == CommKind::kReduceScatter || op.comm == CommKind::kReduceScatterV;
    const auto bytes_of = [&](const Op& what, std::size_t member) {
      return static_cast<std::uint64_t>(program.value(
          piece_is_out ? what.out : what.in, program.rank_of(op.group, group, static_cast<int>(member))));
    };
    if (op.comm == CommKind::kAllToAllV) {
      std::int64_t row_bytes = op.row_bytes;
      for (std::size_t next = i + 1; next < ops.size() && ops[next].fused && ops[next].matrix == op.matrix;
           ++next)
        row_bytes += ops[next].row_bytes;
      return sim::matrix_traffic(b_.add_matrix(g, program.matrix(op.matrix, group)),
                                 static_cast<std::uint64_t>(row_bytes), op.transposed);
    }
    if (op.comm == CommKind::kAllGatherV || op.comm == CommKind::kReduceScatterV) {
      std::vector<std::uint64_t> pieces(g);
      for (std::size_t m = 0; m < g; ++m) pieces[m] = bytes_of(op, m);
      return sim::pieces_traffic(b_.add_pieces(pieces));
    }
    return sim::uniform_traffic(bytes_of(op, 0));
  }

  int R_;
  int groups_;
  std::int64_t launch_ps_;
  std::vector<std::int32_t> gpus_;  // by group and its rank
  sim::TaskGraphBuilder b_;
  sim::LabelId launch_label_;
  std::vector<std::array<sim::StreamId, kStreams>> streams_;  // by rank
  std::vector<std::vector<TaskId>> barrier_;    // by rank: the last tasks of the previous segment
  std::vector<sim::CollectiveId> collectives_;  // of the current operation: [copy][group]
};

}  // namespace

sim::TaskGraph layer_graph(std::span<const PricedPass> segments, std::int64_t launch_ps,
                           std::span<const std::vector<std::int32_t>> groups) {
  check(!segments.empty() && !groups.empty(), "a layer has a segment and a group");
  check(static_cast<int>(groups.front().size()) == segments.front().program->ranks(),
        "a dispatch group has the program's ranks");
  Builder builder(groups, launch_ps);
  for (const PricedPass& pass : segments) builder.add(pass);
  return builder.finish();
}

}  // namespace moesim::models
