#include "sim/graph/task_graph.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace moesim::sim {

std::string_view name(Category category) {
  static constexpr std::string_view kNames[kCategories] = {
      "attention",      "router", "permute",   "dispatch",  "expert", "combine",   "unpermute", "host_sync",
      "straggler_wait", "bubble", "grad_sync", "optimizer", "p2p",    "embedding", "loss",      "other"};
  return kNames[static_cast<std::size_t>(category)];
}

std::string_view name(TaskKind kind) {
  static constexpr std::string_view kNames[] = {"compute", "delay", "host", "member"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name(StreamKind kind) {
  static constexpr std::string_view kNames[] = {"compute", "comm", "copy", "host"};
  return kNames[static_cast<std::size_t>(kind)];
}

TrafficRef uniform_traffic(std::uint64_t bytes) {
  TrafficRef out;
  out.bytes = bytes;
  return out;
}

TrafficRef TrafficRef::priced(std::uint32_t number) const {
  TrafficRef out = *this;
  out.price = number;
  return out;
}

TrafficRef pieces_traffic(PiecesId pieces) { return {Traffic::Kind::pieces, false, 0, pieces.value()}; }

TrafficRef matrix_traffic(MatrixId matrix, std::uint64_t bytes_per_row, bool transposed) {
  return {Traffic::Kind::matrix, transposed, bytes_per_row, matrix.value()};
}

CollectiveShape TaskGraph::shape(std::uint32_t shape_index) const {
  const Shape& shape = shapes_[shape_index];
  CollectiveShape result{shape.op, ranks(shape.group), {}};
  result.traffic.kind = shape.traffic.kind;
  result.traffic.transposed = shape.traffic.transposed;
  result.traffic.bytes = shape.traffic.bytes;
  result.traffic.price = shape.traffic.price;
  const std::size_t id = shape.traffic.id;
  if (shape.traffic.kind == Traffic::Kind::pieces)
    result.traffic.pieces = {pieces_.data() + pieces_begin_[id], pieces_begin_[id + 1] - pieces_begin_[id]};
  if (shape.traffic.kind == Traffic::Kind::matrix)
    result.traffic.rows = {matrix_.data() + matrix_begin_[id], matrix_begin_[id + 1] - matrix_begin_[id]};
  return result;
}

namespace {

constexpr std::size_t kMaxCount = std::size_t{0xfffffffe};

}  // namespace

// State of building only: look-up tables of interned objects, the tails of the streams, the edges.
struct TaskGraphBuilder::Work {
  struct ShapeHash {
    std::size_t operator()(const TaskGraph::Shape& s) const {
      std::uint64_t h = s.traffic.bytes * 0x9e3779b97f4a7c15u;
      h ^= std::uint64_t{s.traffic.price} * 0x94d049bb133111ebu;
      h = (h ^ s.traffic.id ^ (std::uint64_t{s.group.value()} << 32)) * 0xbf58476d1ce4e5b9u;
      h ^= (static_cast<std::uint64_t>(s.op) << 8) | (static_cast<std::uint64_t>(s.traffic.kind) << 4) |
           static_cast<std::uint64_t>(s.traffic.transposed);
      return h ^ (h >> 31);
    }
  };
  struct Tail {
    TaskId last;
    TaskId before_last;         // the task before `last` on the stream
    std::vector<TaskId> fused;  // started together with `last`
  };

  std::vector<Tail> tails;
  std::vector<std::pair<TaskId, TaskId>> edges;
  std::map<std::vector<RankId>, GroupId> groups;
  std::map<std::pair<std::string, Category>, LabelId> labels;
  std::unordered_map<TaskGraph::Shape, std::uint32_t, ShapeHash> shapes;
};

TaskGraphBuilder::TaskGraphBuilder() : work_(std::make_unique<Work>()) {}
TaskGraphBuilder::~TaskGraphBuilder() = default;
TaskGraphBuilder::TaskGraphBuilder(TaskGraphBuilder&&) noexcept = default;
TaskGraphBuilder& TaskGraphBuilder::operator=(TaskGraphBuilder&&) noexcept = default;

void TaskGraphBuilder::add_ranks(std::size_t count) {
  check(count < kMaxCount - graph_.rank_count_, "ranks fit in 32 bits");
  graph_.rank_count_ += count;
}

StreamId TaskGraphBuilder::add_stream(RankId rank, StreamKind kind) {
  check(index(rank) < graph_.rank_count_, "a stream belongs to a known rank");
  graph_.stream_rank_.push_back(rank);
  graph_.stream_kind_.push_back(kind);
  graph_.stream_first_.emplace_back();
  work_->tails.emplace_back();
  return StreamId(static_cast<std::uint32_t>(graph_.stream_rank_.size() - 1));
}

GroupId TaskGraphBuilder::add_group(std::span<const RankId> ranks) {
  check(!ranks.empty(), "a group has members");
  std::vector<RankId> key(ranks.begin(), ranks.end());
  if (const auto found = work_->groups.find(key); found != work_->groups.end()) return found->second;
  for (const RankId rank : ranks) check(index(rank) < graph_.rank_count_, "a group has known ranks");
  std::vector<RankId> sorted = key;
  std::sort(sorted.begin(), sorted.end());
  check(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "a rank is in a group once");
  const GroupId id(static_cast<std::uint32_t>(graph_.group_count()));
  graph_.group_ranks_.insert(graph_.group_ranks_.end(), ranks.begin(), ranks.end());
  graph_.group_begin_.push_back(static_cast<std::uint32_t>(graph_.group_ranks_.size()));
  work_->groups.emplace(std::move(key), id);
  return id;
}

LabelId TaskGraphBuilder::add_label(std::string_view name, Category category) {
  const auto [place, is_new] = work_->labels.try_emplace({std::string(name), category});
  if (is_new) {
    place->second = LabelId(static_cast<std::uint32_t>(graph_.labels_.size()));
    graph_.labels_.push_back({std::string(name), category});
  }
  return place->second;
}

WorkId TaskGraphBuilder::add_work(Time time) {
  check(time >= Time::kZero, "work takes no negative time");
  check(graph_.work_time_.size() < kMaxCount, "works fit in 32 bits");
  graph_.work_time_.push_back(time);
  return WorkId(static_cast<std::uint32_t>(graph_.work_time_.size() - 1));
}

PiecesId TaskGraphBuilder::add_pieces(std::span<const std::uint64_t> bytes) {
  graph_.pieces_.insert(graph_.pieces_.end(), bytes.begin(), bytes.end());
  graph_.pieces_begin_.push_back(graph_.pieces_.size());
  return PiecesId(static_cast<std::uint32_t>(graph_.pieces_begin_.size() - 2));
}

MatrixId TaskGraphBuilder::add_matrix(std::size_t members, std::span<const std::uint32_t> rows) {
  check(members > 0 && rows.size() == members * members, "a matrix is members x members");
  graph_.matrix_.insert(graph_.matrix_.end(), rows.begin(), rows.end());
  graph_.matrix_begin_.push_back(graph_.matrix_.size());
  return MatrixId(static_cast<std::uint32_t>(graph_.matrix_begin_.size() - 2));
}

TaskId TaskGraphBuilder::add_task(TaskKind kind, StreamId stream, std::uint32_t payload, LabelId label) {
  check(index(stream) < graph_.stream_count(), "a task has a known stream");
  check(index(label) < graph_.label_count(), "a task has a known label");
  check(graph_.task_count() < kMaxCount, "tasks fit in 32 bits");
  const TaskId id(static_cast<std::uint32_t>(graph_.task_count()));
  graph_.kind_.push_back(kind);
  graph_.stream_.push_back(stream);
  graph_.payload_.push_back(payload);
  graph_.member_index_.push_back(0);
  graph_.label_.push_back(label);
  graph_.next_.emplace_back();
  graph_.predecessors_.push_back(0);
  if (!graph_.origin_.empty()) graph_.origin_.push_back(LabelId::kNone);
  Work::Tail& tail = work_->tails[index(stream)];
  if (tail.last.valid()) {
    graph_.next_[index(tail.last)] = id;
    ++graph_.predecessors_.back();
  } else {
    graph_.stream_first_[index(stream)] = id;
  }
  for (const TaskId fused : tail.fused) work_->edges.emplace_back(fused, id);
  tail.fused.clear();
  tail.before_last = std::exchange(tail.last, id);
  return id;
}

TaskId TaskGraphBuilder::add_compute(StreamId stream, WorkId work, LabelId label) {
  check(index(work) < graph_.work_count(), "a task has known work");
  return add_task(TaskKind::compute, stream, work.value(), label);
}

TaskId TaskGraphBuilder::add_compute(StreamId stream, Time time, LabelId label) {
  return add_compute(stream, add_work(time), label);
}

TaskId TaskGraphBuilder::add_delay(StreamId stream, Time time, LabelId label) {
  const TaskId task = add_compute(stream, time, label);
  graph_.kind_[index(task)] = TaskKind::delay;
  return task;
}

TaskId TaskGraphBuilder::add_host(StreamId stream, Time time, LabelId label) {
  const TaskId task = add_compute(stream, time, label);
  graph_.kind_[index(task)] = TaskKind::host;
  return task;
}

CollectiveId TaskGraphBuilder::add_collective(CollectiveOp op, GroupId group, TrafficRef traffic,
                                              LabelId label) {
  check(index(group) < graph_.group_count(), "a collective has a known group");
  check(index(label) < graph_.label_count(), "a collective has a known label");
  const std::size_t members = graph_.ranks(group).size();
  if (op == CollectiveOp::send_recv) check(members == 2, "a send_recv has two members");
  if (traffic.kind == Traffic::Kind::pieces) {
    check(op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter, "pieces are of AG-V or RS-V");
    check(traffic.id + 1 < graph_.pieces_begin_.size() &&
              graph_.pieces_begin_[traffic.id + 1] - graph_.pieces_begin_[traffic.id] == members,
          "pieces have a number of bytes for each member");
  }
  if (traffic.kind == Traffic::Kind::matrix) {
    check(op == CollectiveOp::all_to_all, "a matrix is of an all_to_all");
    check(traffic.id + 1 < graph_.matrix_begin_.size() &&
              graph_.matrix_begin_[traffic.id + 1] - graph_.matrix_begin_[traffic.id] == members * members,
          "a matrix has the size of the group");
  }
  const TaskGraph::Shape shape{op, group, traffic};
  const auto [place, is_new] =
      work_->shapes.try_emplace(shape, static_cast<std::uint32_t>(graph_.shapes_.size()));
  if (is_new) graph_.shapes_.push_back(shape);
  check(graph_.member_task_.size() + members < kMaxCount, "members fit in 32 bits");
  const CollectiveId id(static_cast<std::uint32_t>(graph_.collective_count()));
  graph_.collective_shape_.push_back(place->second);
  graph_.collective_label_.push_back(label);
  graph_.member_task_.resize(graph_.member_task_.size() + members);
  graph_.member_begin_.push_back(static_cast<std::uint32_t>(graph_.member_task_.size()));
  return id;
}

TaskId TaskGraphBuilder::add_member(StreamId stream, CollectiveId collective, std::uint32_t member_index) {
  check(index(collective) < graph_.collective_count(), "a member has a known collective");
  const auto ranks = graph_.ranks(graph_.group(collective));
  check(member_index < ranks.size(), "a member is in its group");
  const TaskId task =
      add_task(TaskKind::member, stream, collective.value(), graph_.collective_label_[index(collective)]);
  check(graph_.rank_of(stream) == ranks[member_index], "a member is on a stream of its rank");
  TaskId& slot = graph_.member_task_[graph_.member_begin_[index(collective)] + member_index];
  check(!slot.valid(), "a member is added once");
  slot = task;
  graph_.member_index_[index(task)] = member_index;
  return task;
}

TaskId TaskGraphBuilder::add_fused_member(StreamId stream, CollectiveId collective,
                                          std::uint32_t member_index) {
  check(index(stream) < graph_.stream_count(), "a task has a known stream");
  Work::Tail& tail = work_->tails[index(stream)];
  check(tail.last.valid() && graph_.kind(tail.last) == TaskKind::member, "a fused member follows a member");
  const Work::Tail before = tail;
  const TaskId task = add_member(stream, collective, member_index);
  // Removes the task from the end of the stream: edges connect it to the group's neighbours.
  graph_.next_[index(before.last)] = TaskId();
  graph_.predecessors_[index(task)] = 0;
  while (!work_->edges.empty() && work_->edges.back().second == task) work_->edges.pop_back();
  tail = before;
  tail.fused.push_back(task);
  if (before.before_last.valid()) work_->edges.emplace_back(before.before_last, task);
  return task;
}

void TaskGraphBuilder::add_dependency(TaskId before, TaskId after) {
  check(index(before) < graph_.task_count() && index(after) < graph_.task_count(),
        "a dependency is between known tasks");
  work_->edges.emplace_back(before, after);
}

void TaskGraphBuilder::set_origin(TaskId task, std::uint32_t origin) {
  check(index(task) < graph_.task_count(), "an origin is of a known task");
  if (graph_.origin_.empty()) {
    if (origin == LabelId::kNone) return;
    graph_.origin_.assign(graph_.task_count(), LabelId::kNone);
  }
  graph_.origin_[index(task)] = origin;
}

TaskId TaskGraphBuilder::last_on_stream(StreamId stream) const {
  check(index(stream) < graph_.stream_count(), "a known stream");
  return work_->tails[index(stream)].last;
}

std::size_t TaskGraphBuilder::task_count() const { return graph_.task_count(); }

TaskGraph TaskGraphBuilder::finalize() {
  const std::size_t tasks = graph_.task_count();
  check(work_->edges.size() < kMaxCount, "dependencies fit in 32 bits");
  // Counting sort of the edges by their first task keeps their order of insertion.
  graph_.successor_begin_.assign(tasks + 1, 0);
  for (const auto& [before, after] : work_->edges) {
    ++graph_.successor_begin_[index(before) + 1];
    ++graph_.predecessors_[index(after)];
  }
  std::partial_sum(graph_.successor_begin_.begin(), graph_.successor_begin_.end(),
                   graph_.successor_begin_.begin());
  std::vector<std::uint32_t> place(graph_.successor_begin_.begin(), graph_.successor_begin_.end() - 1);
  graph_.successors_.resize(work_->edges.size());
  for (const auto& [before, after] : work_->edges) graph_.successors_[place[index(before)]++] = after;
  TaskGraph result = std::move(graph_);
  graph_ = TaskGraph();
  work_ = std::make_unique<Work>();
  return result;
}

}  // namespace moesim::sim
