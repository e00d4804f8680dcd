// Bytes as instructions that build a task graph, broken ones included: it finishes, or it is a deadlock; it
// never hangs, and says the same twice.
#include <algorithm>
#include <optional>
#include <vector>

#include "sim/network/fabric_presets.h"
#include "sim/run/deadlock.h"
#include "sim/run/simulator.h"
#include "tests/fuzz/one_line.h"
#include "tests/sim/test_costs.h"

namespace {

using namespace moesim;
using namespace moesim::sim;

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : next_(data), end_(data + size) {}
  bool empty() const { return next_ == end_; }
  std::uint32_t below(std::uint32_t limit) { return empty() ? 0 : *next_++ % limit; }

 private:
  const std::uint8_t* next_;
  const std::uint8_t* end_;
};

constexpr std::uint32_t kStreams = 3;

// Everything that the builder's callers may do: members in any order, left out, or behind one another in
// circles; dependencies forwards and backwards.
TaskGraph build(Bytes bytes) {
  TaskGraphBuilder b;
  const std::uint32_t ranks = 1 + bytes.below(8);
  b.add_ranks(ranks);
  std::vector<StreamId> streams;
  for (std::uint32_t r = 0; r < ranks; ++r)
    for (const StreamKind kind : {StreamKind::compute, StreamKind::comm, StreamKind::host})
      streams.push_back(b.add_stream(RankId(r), kind));
  const LabelId label = b.add_label("work", Category::expert);
  struct Open {
    CollectiveId id;
    std::vector<std::uint32_t> ranks;
    std::vector<bool> joined;
  };
  std::vector<Open> open;
  std::vector<TaskId> tasks;
  while (!bytes.empty() && tasks.size() < 2000) {
    const std::uint32_t what = bytes.below(8), r = bytes.below(ranks);
    const Time time = Time::from_us(static_cast<double>(bytes.below(32)));
    switch (what) {
      case 0:
      case 1:
        tasks.push_back(b.add_compute(streams[r * kStreams + bytes.below(2)], time, label));
        break;
      case 2:
        tasks.push_back(b.add_host(streams[r * kStreams + 2], time, label));
        break;
      case 3:
        if (!tasks.empty()) {
          const TaskId before = tasks[bytes.below(256) % tasks.size()];
          tasks.push_back(b.add_host(streams[r * kStreams + 2], time, label));
          b.add_dependency(before, tasks.back());
        }
        break;
      case 4: {
        const std::uint32_t mask = bytes.below(256) | (1u << r);
        Open made;
        std::vector<RankId> group;
        for (std::uint32_t m = 0; m < ranks; ++m)
          if (mask >> m & 1u) made.ranks.push_back(m), group.emplace_back(m);
        const auto op = static_cast<CollectiveOp>(bytes.below(7));
        if (op == CollectiveOp::send_recv && group.size() != 2) break;
        made.id = b.add_collective(op, b.add_group(group),
                                   uniform_traffic(bytes.below(256) * std::uint64_t{4096}), label);
        made.joined.assign(group.size(), false);
        open.push_back(std::move(made));
        break;
      }
      case 5:
      case 6:
        if (!open.empty()) {
          Open& c = open[bytes.below(256) % open.size()];
          const std::uint32_t m = bytes.below(256) % static_cast<std::uint32_t>(c.ranks.size());
          if (c.joined[m]) break;
          c.joined[m] = true;
          tasks.push_back(b.add_member(streams[c.ranks[m] * kStreams + bytes.below(2)], c.id, m));
        }
        break;
      case 7:
        if (tasks.size() > 1) {
          const TaskId from = tasks[bytes.below(256) % tasks.size()],
                       to = tasks[bytes.below(256) % tasks.size()];
          if (from != to) b.add_dependency(from, to);
        }
        break;
    }
  }
  return b.finalize();
}

struct Answer {
  bool finished = false;
  std::vector<Time> ends;
  std::string why;
};

Answer answer(const TaskGraph& graph, const RunOptions& options) {
  TestCosts costs;
  costs.plan.algorithm = Algorithm::ring;
  costs.plan.bandwidth = 50e9;
  Answer out;
  try {
    const Timeline timeline = run(graph, costs, options);
    out.finished = true;
    for (std::uint32_t t = 0; t < graph.task_count(); ++t) {
      check(timeline.start(TaskId(t)) <= timeline.end(TaskId(t)), "a task ends after it starts");
      out.ends.push_back(timeline.end(TaskId(t)));
    }
  } catch (const Deadlock& deadlock) {
    check(!deadlock.origins().empty(), "a deadlock names who stands still");
    out.why = deadlock.what();
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 4096) return 0;
  const TaskGraph graph = build({data, size});
  static const Fabric fabric = single_node({});
  std::optional<bool> finished;
  for (const Timing timing : {Timing::calibrated, Timing::flow}) {
    const RunOptions options{.timing = timing, .fabric = &fabric};
    const Answer once = answer(graph, options), twice = answer(graph, options);
    check(once.finished == twice.finished && once.ends == twice.ends && once.why == twice.why,
          "the same graph gives the same answer");
    check(!finished || *finished == once.finished, "whether it finishes is not a question of timing");
    finished = once.finished;
  }
  ++fuzz::accepted_so_far;  // any graph is
  return 0;
}
