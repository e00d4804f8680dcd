// The central data structure: tasks with their streams and dependencies.
//
// Streams are in-order queues as in CUDA: a task starts when the previous task on its stream and all its
// dependencies have ended. A collective is a rendezvous: a member that has started occupies its stream, the
// transfer begins when the last member has started, and each member ends separately. The host's launch queue
// is a stream of kind `host`: add_host() tasks on it, with dependencies from the operations that a blocking
// synchronisation waits for and to the operations launched after it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/graph/collective.h"
#include "sim/graph/ids.h"
#include "sim/graph/time.h"

namespace moesim::sim {

enum class TaskKind : std::uint8_t {
  compute,  // work on the GPU
  delay,    // idle time on a stream (a recorded gap)
  host,     // time of the CPU
  member,   // one rank's part of a collective
};

enum class StreamKind : std::uint8_t { compute, comm, copy, host };

// The breakdown category of a task's time.
enum class Category : std::uint8_t {
  attention,
  router,
  permute,
  dispatch,
  expert,
  combine,
  unpermute,
  host_sync,
  straggler_wait,  // timeline only: in a rendezvous, before the last member arrives
  bubble,          // timeline only: idle, or waiting for the other side of a send_recv
  grad_sync,
  optimizer,
  p2p,
  embedding,
  loss,
  other,
};
inline constexpr std::size_t kCategories = 16;

std::string_view name(Category category);
std::string_view name(TaskKind kind);
std::string_view name(StreamKind kind);

struct Label {
  std::string name;
  Category category = Category::other;
};

// The traffic of a collective by reference into the graph; created by the functions below.
struct TrafficRef {
  Traffic::Kind kind = Traffic::Kind::uniform;
  bool transposed = false;
  std::uint64_t bytes = 0;
  std::uint32_t id = 0;  // of the pieces or the matrix
  std::uint32_t price = Traffic::kNoPrice;

  // Returns the same traffic with this number for its Costs.
  TrafficRef priced(std::uint32_t number) const;
  friend bool operator==(const TrafficRef&, const TrafficRef&) = default;
};
TrafficRef uniform_traffic(std::uint64_t bytes);
TrafficRef pieces_traffic(PiecesId pieces);
TrafficRef matrix_traffic(MatrixId matrix, std::uint64_t bytes_per_row, bool transposed = false);

class TaskGraph {
 public:
  std::size_t rank_count() const { return rank_count_; }
  std::size_t stream_count() const { return stream_rank_.size(); }
  std::size_t task_count() const { return kind_.size(); }
  std::size_t collective_count() const { return collective_shape_.size(); }
  std::size_t group_count() const { return group_begin_.size() - 1; }
  std::size_t label_count() const { return labels_.size(); }

  RankId rank_of(StreamId stream) const { return stream_rank_[index(stream)]; }
  StreamKind kind_of(StreamId stream) const { return stream_kind_[index(stream)]; }
  TaskId first_of(StreamId stream) const { return stream_first_[index(stream)]; }

  TaskKind kind(TaskId task) const { return kind_[index(task)]; }
  StreamId stream(TaskId task) const { return stream_[index(task)]; }
  RankId rank(TaskId task) const { return rank_of(stream(task)); }
  const Label& label(TaskId task) const { return labels_[index(label_[index(task)])]; }
  const Label& label(LabelId label) const { return labels_[index(label)]; }
  // Returns the recorded line of a task, in the caller's numbering; Id::kNone without one.
  std::uint32_t origin(TaskId task) const { return origin_.empty() ? LabelId::kNone : origin_[index(task)]; }

  TaskId next_on_stream(TaskId task) const { return next_[index(task)]; }
  // Returns the tasks that depend on `task`, in the order in which dependencies were added, without the
  // stream order.
  std::span<const TaskId> successors(TaskId task) const {
    return {successors_.data() + successor_begin_[index(task)],
            successor_begin_[index(task) + 1] - successor_begin_[index(task)]};
  }
  // Returns the number of tasks that must end before `task` starts: its dependencies and the previous task on
  // its stream.
  std::uint32_t predecessor_count(TaskId task) const { return predecessors_[index(task)]; }

  WorkId work(TaskId task) const { return WorkId(payload_[index(task)]); }  // not for members
  // for members only
  CollectiveId collective(TaskId task) const { return CollectiveId(payload_[index(task)]); }
  std::uint32_t member_index(TaskId task) const { return member_index_[index(task)]; }  // for members only

  std::size_t work_count() const { return work_time_.size(); }
  std::span<const Time> work_times() const { return work_time_; }

  // Collectives with equal operation, group and traffic share one shape.
  std::size_t shape_count() const { return shapes_.size(); }
  std::uint32_t shape_index(CollectiveId collective) const { return collective_shape_[index(collective)]; }
  CollectiveShape shape(std::uint32_t shape_index) const;
  CollectiveShape shape(CollectiveId collective) const { return shape(shape_index(collective)); }
  GroupId group(CollectiveId collective) const { return shapes_[shape_index(collective)].group; }
  LabelId label_of(CollectiveId collective) const { return collective_label_[index(collective)]; }
  // Returns the task of every member in group order; an invalid id for a missing member.
  std::span<const TaskId> members(CollectiveId collective) const {
    return {member_task_.data() + member_begin_[index(collective)],
            member_begin_[index(collective) + 1] - member_begin_[index(collective)]};
  }
  std::span<const RankId> ranks(GroupId group) const {
    return {group_ranks_.data() + group_begin_[index(group)],
            group_begin_[index(group) + 1] - group_begin_[index(group)]};
  }

 private:
  friend class TaskGraphBuilder;

  struct Shape {
    CollectiveOp op;
    GroupId group;
    TrafficRef traffic;

    friend bool operator==(const Shape&, const Shape&) = default;
  };

  std::size_t rank_count_ = 0;
  std::vector<RankId> stream_rank_;
  std::vector<StreamKind> stream_kind_;
  std::vector<TaskId> stream_first_;

  std::vector<TaskKind> kind_;
  std::vector<StreamId> stream_;
  std::vector<std::uint32_t> payload_;
  std::vector<std::uint32_t> member_index_;
  std::vector<LabelId> label_;
  std::vector<std::uint32_t> origin_;  // empty when no task has one
  std::vector<TaskId> next_;
  std::vector<std::uint32_t> predecessors_;
  std::vector<std::uint32_t> successor_begin_;
  std::vector<TaskId> successors_;

  std::vector<Time> work_time_;

  std::vector<std::uint32_t> group_begin_{0};
  std::vector<RankId> group_ranks_;
  std::vector<std::uint64_t> pieces_begin_{0};
  std::vector<std::uint64_t> pieces_;
  std::vector<std::uint64_t> matrix_begin_{0};
  std::vector<std::uint32_t> matrix_;
  std::vector<Shape> shapes_;
  std::vector<std::uint32_t> collective_shape_;
  std::vector<LabelId> collective_label_;
  std::vector<std::uint32_t> member_begin_{0};
  std::vector<TaskId> member_task_;

  std::vector<Label> labels_;
};

// Builds a TaskGraph. Ids are numbered from 0. Inconsistent arguments (a stream of another rank, a member
// twice, a matrix of the wrong size) are errors of the caller and abort through check(); a graph that cannot
// finish (members missing, cycles, mismatched order) is built, and run() reports it as a Deadlock.
class TaskGraphBuilder {
 public:
  TaskGraphBuilder();
  ~TaskGraphBuilder();
  TaskGraphBuilder(TaskGraphBuilder&&) noexcept;
  TaskGraphBuilder& operator=(TaskGraphBuilder&&) noexcept;

  void add_ranks(std::size_t count);
  StreamId add_stream(RankId rank, StreamKind kind);
  GroupId add_group(std::span<const RankId> ranks);             // equal lists give the same id
  LabelId add_label(std::string_view name, Category category);  // equal pairs give the same id

  WorkId add_work(Time time);  // not negative

  PiecesId add_pieces(std::span<const std::uint64_t> bytes);
  MatrixId add_matrix(std::size_t members,
                      std::span<const std::uint32_t> rows);  // rows[sender * members + receiver]

  TaskId add_compute(StreamId stream, WorkId work, LabelId label);
  TaskId add_compute(StreamId stream, Time time, LabelId label);
  TaskId add_delay(StreamId stream, Time time, LabelId label);
  TaskId add_host(StreamId stream, Time time, LabelId label);

  CollectiveId add_collective(CollectiveOp op, GroupId group, TrafficRef traffic, LabelId label);
  // Adds the part of the group's member_index-th rank, on a stream of that rank, with the collective's label.
  TaskId add_member(StreamId stream, CollectiveId collective, std::uint32_t member_index);
  // Likewise, started together with the member added before on this stream (NCCL's group call, Megatron's
  // send_forward_recv_backward): neither waits for the other, and the stream continues when both have ended.
  TaskId add_fused_member(StreamId stream, CollectiveId collective, std::uint32_t member_index);

  void add_dependency(TaskId before, TaskId after);
  void set_origin(TaskId task, std::uint32_t origin);

  TaskId last_on_stream(StreamId stream) const;  // invalid while the stream is empty
  std::size_t task_count() const;

  // Returns the graph; the builder is empty afterwards.
  TaskGraph finalize();

 private:
  struct Work;

  TaskId add_task(TaskKind kind, StreamId stream, std::uint32_t payload, LabelId label);

  TaskGraph graph_;
  std::unique_ptr<Work> work_;
};

}  // namespace moesim::sim
