// Pending events by time: an indexed heap with keys that can move either way, and FIFO lines of equal delays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include "sim/graph/time.h"

namespace moesim::sim {

// Items 0 .. capacity-1, each in the queue at most once. At equal times the lower item comes first,
// independent of the order of insertion. Does not allocate per event.
class EventQueue {
 public:
  explicit EventQueue(std::size_t capacity) : place_(capacity, kOut) {}

  bool empty() const { return heap_.empty(); }
  Time next() const { return heap_.empty() ? Time::kMax : heap_.front().when; }

  void set(std::uint32_t item, Time when) {
    if (place_[item] == kOut) {
      heap_.push_back({when, item});
      rise(heap_.size() - 1);
      return;
    }
    const std::size_t at = place_[item];
    const Time before = heap_[at].when;
    heap_[at].when = when;
    when < before ? rise(at) : sink(at);
  }

  std::uint32_t pop() {
    const std::uint32_t item = heap_.front().item;
    place_[item] = kOut;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) {
      heap_.front() = last;
      sink(0);
    }
    return item;
  }

 private:
  static constexpr std::uint32_t kOut = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t kArity = 4;

  struct Entry {
    Time when;
    std::uint32_t item;
    bool before(const Entry& other) const {
      return when < other.when || (when == other.when && item < other.item);
    }
  };

  void put(std::size_t at, const Entry& entry) {
    heap_[at] = entry;
    place_[entry.item] = static_cast<std::uint32_t>(at);
  }

  void rise(std::size_t at) {
    const Entry entry = heap_[at];
    while (at > 0) {
      const std::size_t parent = (at - 1) / kArity;
      if (!entry.before(heap_[parent])) break;
      put(at, heap_[parent]);
      at = parent;
    }
    put(at, entry);
  }

  void sink(std::size_t at) {
    const Entry entry = heap_[at];
    for (;;) {
      const std::size_t first = at * kArity + 1;
      if (first >= heap_.size()) break;
      std::size_t least = first;
      for (std::size_t child = first + 1; child < first + kArity && child < heap_.size(); ++child)
        if (heap_[child].before(heap_[least])) least = child;
      if (!heap_[least].before(entry)) break;
      put(at, heap_[least]);
      at = least;
    }
    put(at, entry);
  }

  std::vector<Entry> heap_;
  std::vector<std::uint32_t> place_;
};

// Events that fire a fixed delay after creation: events with equal delays fire in order of creation, so one
// queue per delay suffices. A run has few distinct delays (latencies); each costs one comparison per query.
template <class Payload>
class DelayLines {
 public:
  void push(Time now, Time delay, const Payload& payload) {
    if (last_ >= lines_.size() || lines_[last_].delay != delay) {
      last_ = 0;
      while (last_ < lines_.size() && lines_[last_].delay != delay) ++last_;
      if (last_ == lines_.size()) lines_.push_back({delay, {}});
    }
    lines_[last_].events.push_back({now + delay, payload});
    next_ = std::min(next_, now + delay);
  }

  Time next() const { return next_; }

  // Calls visit(payload) for all events due at `now`, the shortest delay first. `visit` may push.
  template <class Visit>
  void pop_due(Time now, Visit&& visit) {
    for (std::size_t i = 0; i < lines_.size(); ++i)
      while (!lines_[i].events.empty() && lines_[i].events.front().first <= now) {
        const Payload payload = lines_[i].events.front().second;
        lines_[i].events.pop_front();
        visit(payload);
      }
    next_ = Time::kMax;
    for (const Line& line : lines_)
      if (!line.events.empty()) next_ = std::min(next_, line.events.front().first);
  }

 private:
  struct Line {
    Time delay;
    std::deque<std::pair<Time, Payload>> events;
  };
  std::vector<Line> lines_;
  std::size_t last_ = 0;
  Time next_ = Time::kMax;
};

}  // namespace moesim::sim
