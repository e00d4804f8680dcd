// The operations of a Lockstep as a task graph, in which every operation has its cause and groups of ranks can
// contend for a network. run() times it as Lockstep does, to the picosecond (tests/sim/lockstep_test.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/graph/costs.h"
#include "sim/graph/task_graph.h"
#include "sim/run/lockstep.h"

namespace moesim::sim {

// It is also the Costs of its graph, with the times of the programs.
class LockstepGraph final : public Costs {
 public:
  struct Collective {
    CollectiveOp op = CollectiveOp::all_to_all;
    TrafficRef traffic;
  };
  struct Options : LockstepOptions {
    // Rank r of the programs is rank gpus[c * ranks + r] of the graph, for every c; empty: rank r.
    std::vector<std::int32_t> gpus;
    // Returns the collective of operation `op` in a group; null: it takes the time of its program.
    std::function<Collective(TaskGraphBuilder&, std::size_t op, std::size_t group)> collective;
  };
  // Returns the name of an operation of the program-th program of a chain.
  using Name = std::function<std::string_view(std::size_t chain, std::size_t program, std::size_t op)>;
  // [chain][program][operation * ranks of all groups + rank]
  using Tasks = std::vector<std::vector<std::vector<TaskId>>>;

  LockstepGraph(std::size_t ranks, Options options);

  // Adds what Lockstep::run() runs. Launches, and what takes no time on a rank, have tasks without a name.
  Tasks run(std::span<const LockstepChain> chains, std::span<const LockstepPiece> order, const Name& name);
  TaskGraph finalize() { return b_.finalize(); }

  void price_collective(const CollectiveShape& shape, std::span<Time> out) const override;
  FlowParameters plan_collective(const CollectiveShape&) const override { return {}; }
  Overlap overlap(RankId) const override { return options_.overlap; }

 private:
  TaskId instant(std::size_t rank);  // a task of no length that waits for its dependencies alone
  // Adds an operation whose earlier ones have `tasks`, on all ranks, behind `entry`.
  void add(const LockstepProgram& program, std::size_t op, std::string_view name,
           const std::vector<TaskId>& entry, std::vector<TaskId>& tasks);
  // Returns the collectives of an operation, by group.
  std::vector<CollectiveId> collectives(const LockstepProgram& program, std::size_t op, LabelId label);
  std::size_t group_of(const LockstepProgram& program, const LockstepOp& op, std::size_t rank) const;
  void depend(TaskId before, TaskId after) {
    if (before.valid()) b_.add_dependency(before, after);
  }

  std::size_t ranks_, all_;  // of a program; of all groups
  Options options_;
  TaskGraphBuilder b_;
  LabelId unnamed_;
  std::vector<StreamId> streams_, hosts_;  // [rank * kLockstepStreams + stream]; [rank]
  std::vector<TaskId> done_;               // by rank: the end of the previous run
  std::vector<std::vector<Time>> times_;   // of a collective's members, by Traffic::price
};

}  // namespace moesim::sim
