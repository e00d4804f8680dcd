#include "sim/run/deadlock.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "base/check.h"

namespace moesim::sim {

namespace {

constexpr std::size_t kLinesShown = 16;

class Finder {
 public:
  Finder(const TaskGraph& graph, const TaskTimes& times)
      : graph_(graph), times_(times), before_(graph.task_count()) {
    for (std::uint32_t i = 0; i < graph.task_count(); ++i) {
      if (!stuck(TaskId(i))) continue;
      if (const TaskId next = graph.next_on_stream(TaskId(i)); next.valid())
        before_[index(next)].push_back(TaskId(i));
      for (const TaskId after : graph.successors(TaskId(i))) before_[index(after)].push_back(TaskId(i));
    }
  }

  Deadlock find() const {
    const auto [chain, cycle_from] = blame();
    std::string text;
    std::vector<std::uint32_t> origins;
    std::vector<bool> told(graph_.stream_count());
    if (cycle_from) {
      text = "deadlock: the job waits for itself in a circle\n";
      for (std::size_t i = *cycle_from; i < chain.size(); ++i) add(chain[i], text, origins, told);
    } else {
      text = "deadlock: a collective waits for members that never come\n";
      for (std::size_t i = chain.size(); i-- > 0;) add(chain[i], text, origins, told);
    }
    std::size_t others = 0;
    std::string discarded;
    for (std::uint32_t s = 0; s < graph_.stream_count(); ++s) {
      TaskId task = graph_.first_of(StreamId(s));
      while (task.valid() && !stuck(task)) task = graph_.next_on_stream(task);
      if (!task.valid() || told[s]) continue;
      ++others;
      add(task, discarded, origins, told);
    }
    if (others > 0)
      text += fmt::format("  {} more stream{} wait behind these\n", others, others == 1 ? "" : "s");
    text.pop_back();
    return Deadlock(text, std::move(origins));
  }

 private:
  bool stuck(TaskId task) const { return times_.end[index(task)] == kNotYet; }

  // Returns the tasks before `task` that have not ended.
  const std::vector<TaskId>& stuck_before(TaskId task) const { return before_[index(task)]; }

  bool started(TaskId task) const { return stuck_before(task).empty(); }

  std::vector<std::uint32_t> missing_members(TaskId task) const {
    std::vector<std::uint32_t> missing;
    const auto members = graph_.members(graph_.collective(task));
    for (std::uint32_t i = 0; i < members.size(); ++i)
      if (!members[i].valid()) missing.push_back(i);
    return missing;
  }

  std::vector<TaskId> waits_for(TaskId task) const {
    std::vector<TaskId> result = stuck_before(task);
    if (!result.empty() || graph_.kind(task) != TaskKind::member) return result;
    for (const TaskId member : graph_.members(graph_.collective(task)))
      if (member.valid() && !started(member)) result.push_back(member);
    return result;
  }

  // Returns a chain of tasks, each waiting for the next, and the start of the cycle that its last task
  // closes; no cycle when the last task waits for a missing member.
  std::pair<std::vector<TaskId>, std::optional<std::size_t>> blame() const {
    TaskId task;
    for (std::uint32_t i = 0; i < graph_.task_count() && !task.valid(); ++i)
      if (stuck(TaskId(i))) task = TaskId(i);
    std::vector<TaskId> chain;
    std::map<TaskId, std::size_t> place;
    for (;;) {
      if (const auto seen = place.find(task); seen != place.end()) return {std::move(chain), seen->second};
      place.emplace(task, chain.size());
      chain.push_back(task);
      if (graph_.kind(task) == TaskKind::member && started(task) && !missing_members(task).empty())
        return {std::move(chain), std::nullopt};
      const std::vector<TaskId> next = waits_for(task);
      check(!next.empty(), "a task that has not ended waits for something");
      task = next.front();
    }
  }

  std::string describe(TaskId task) const {
    const std::string what = graph_.kind(task) == TaskKind::member
                                 ? std::string(name(graph_.shape(graph_.collective(task)).op))
                                 : std::string(name(graph_.kind(task)));
    std::string text = fmt::format("{} '{}'", what, graph_.label(task).name);
    if (graph_.origin(task) != LabelId::kNone)
      text += fmt::format(" (recorded operation {})", graph_.origin(task));
    return text;
  }

  std::string reason(TaskId task) const {
    std::string text;
    if (!started(task)) {
      for (const TaskId before : stuck_before(task)) {
        text += text.empty() ? "comes after " : ", ";
        text += describe(before);
        if (graph_.rank(before) != graph_.rank(task))
          text += fmt::format(" of rank {}", graph_.rank(before).value());
      }
      return text;
    }
    const std::vector<std::uint32_t> missing = missing_members(task);
    std::vector<RankId> absent;
    std::ranges::transform(missing, std::back_inserter(absent), [&](std::uint32_t member) {
      return graph_.ranks(graph_.group(graph_.collective(task)))[member];
    });
    if (missing.empty())
      for (const TaskId member : waits_for(task)) absent.push_back(graph_.rank(member));
    for (std::size_t i = 0; i < absent.size() && i < 8; ++i)
      text += fmt::format("{} {}", i == 0 ? "waits for rank" : ",", absent[i].value());
    if (absent.size() > 8) text += fmt::format(" and {} more", absent.size() - 8);
    if (missing.empty()) return text;
    return text + (missing.size() == 1 ? ", which never calls it" : ", which never call it");
  }

  void add(TaskId task, std::string& text, std::vector<std::uint32_t>& origins,
           std::vector<bool>& told) const {
    const StreamId stream = graph_.stream(task);
    told[index(stream)] = true;
    origins.push_back(graph_.origin(task));
    if (origins.size() > kLinesShown) return;
    text += fmt::format("  rank {}, {} stream: {} {}\n", graph_.rank(task).value(),
                        name(graph_.kind_of(stream)), describe(task), reason(task));
  }

  const TaskGraph& graph_;
  const TaskTimes& times_;
  std::vector<std::vector<TaskId>> before_;
};

}  // namespace

Deadlock find_deadlock(const TaskGraph& graph, const TaskTimes& times) { return Finder(graph, times).find(); }

}  // namespace moesim::sim
