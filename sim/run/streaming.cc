#include "sim/run/streaming.h"

#include <algorithm>

#include "base/check.h"

namespace moesim::sim {

RankId StreamingRun::add_rank() {
  ranks_.emplace_back();
  has_main_.push_back(false);
  return RankId(static_cast<std::uint32_t>(ranks_.size() - 1));
}

StreamId StreamingRun::add_stream(RankId rank, StreamKind kind) {
  check(index(rank) < ranks_.size(), "a stream belongs to a known rank");
  const bool main = kind == StreamKind::compute && !has_main_[index(rank)];
  if (main) has_main_[index(rank)] = true;
  streams_.push_back({rank, kind, main, Time::kZero});
  return StreamId(static_cast<std::uint32_t>(streams_.size() - 1));
}

void StreamingRun::book(RankId rank, Category category, Time span, Time RankSummary::*total) {
  RankSummary& summary = ranks_[index(rank)];
  summary.breakdown[static_cast<std::size_t>(category)] += span;
  summary.*total += span;
}

// From the stream's last task to `start`, waiting for `after`.
void StreamingRun::book_idle(const Stream& stream, Time start, const Point& after) {
  if (start <= stream.free) return;
  const Time idle = start - stream.free;
  if (after.kind == TaskKind::member) {
    const Time transfer = std::min(idle, after.end - after.begin);
    book(stream.rank, after.category, transfer, &RankSummary::exposed_comm);
    if (after.peer)
      book(stream.rank, Category::bubble, idle - transfer, &RankSummary::bubble);
    else
      book(stream.rank, Category::straggler_wait, idle - transfer, &RankSummary::straggler_wait);
  } else if (after.kind == TaskKind::host || after.kind == TaskKind::delay) {
    const Time busy = std::min(idle, after.end - after.begin);
    book(stream.rank, after.category, busy, &RankSummary::host);
    book(stream.rank, Category::bubble, idle - busy, &RankSummary::bubble);
  } else {
    const Time busy = std::min(idle, after.end - after.begin);  // of another stream of the rank
    book(stream.rank, after.category, busy, &RankSummary::busy);
    book(stream.rank, Category::bubble, idle - busy, &RankSummary::bubble);
  }
}

Point StreamingRun::add(TaskKind kind, StreamId id, Time work, Category category, const Point& after) {
  check(index(id) < streams_.size() && work >= Time::kZero, "a task has a known stream and no negative time");
  Stream& stream = streams_[index(id)];
  const Time start = std::max(stream.free, after.end);
  const Time end = start + work;
  if (stream.main) {
    book_idle(stream, start, after);
    book(stream.rank, category, work, kind == TaskKind::compute ? &RankSummary::busy : &RankSummary::host);
  }
  stream.free = end;
  RankSummary& rank = ranks_[index(stream.rank)];
  rank.end = std::max(rank.end, end);
  ++tasks_;
  return {end, start, category, kind, false};
}

void StreamingRun::add_collective(CollectiveOp op, std::span<const Member> members,
                                  std::span<const Time> durations, Category category, std::span<Point> ends) {
  check(!members.empty() && ends.size() == members.size() &&
            (durations.size() == 1 || durations.size() == members.size()),
        "a collective has a duration and an end for each member");
  const bool peer = op == CollectiveOp::send_recv;
  Time begin;
  starts_.clear();
  for (const Member& member : members) {
    starts_.push_back(std::max(streams_[index(member.stream)].free, member.after.end));
    begin = std::max(begin, starts_.back());
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    Stream& stream = streams_[index(members[i].stream)];
    const Time end = begin + durations[durations.size() == 1 ? 0 : i];
    if (stream.main) {
      book_idle(stream, starts_[i], members[i].after);
      book(stream.rank, peer ? Category::bubble : Category::straggler_wait, begin - starts_[i],
           peer ? &RankSummary::bubble : &RankSummary::straggler_wait);
      book(stream.rank, category, end - begin, &RankSummary::exposed_comm);
    }
    stream.free = end;
    RankSummary& rank = ranks_[index(stream.rank)];
    rank.end = std::max(rank.end, end);
    ends[i] = {end, begin, category, TaskKind::member, peer};
  }
  tasks_ += members.size();
}

Timeline StreamingRun::finish() {
  Timeline timeline;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != 0 && ranks_[rank].end <= timeline.iteration_) continue;
    timeline.iteration_ = ranks_[rank].end;
    timeline.critical_rank_ = RankId(static_cast<std::uint32_t>(rank));
  }
  for (RankSummary& rank : ranks_) {
    Time booked;
    for (const Time part : rank.breakdown) booked += part;
    const auto id = RankId(static_cast<std::uint32_t>(&rank - ranks_.data()));
    book(id, Category::bubble, timeline.iteration_ - booked, &RankSummary::bubble);
  }
  timeline.ranks_ = std::move(ranks_);
  *this = StreamingRun();
  return timeline;
}

}  // namespace moesim::sim
