// A graph that cannot finish: who stands where, waiting for whom.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/graph/ids.h"

namespace moesim::sim {

// One rank's stream that stands still.
struct StuckStream {
  RankId rank;
  StreamId stream;
  TaskId task;  // the first task of the stream that has not ended
  std::string label;
  std::uint32_t origin;           // of the task; Id::kNone without one
  std::string reason;             // "waits in all_to_all 'dispatch' for rank 3, which stands at ..."
  std::vector<TaskId> waits_for;  // tasks that would have to end or start first
};

// Thrown by run(). what() explains it in several lines: the first names the kind of deadlock (a cycle, a
// missing member), the next ones the ranks in it.
class Deadlock : public std::runtime_error {
 public:
  Deadlock(const std::string& explanation, std::vector<StuckStream> streams)
      : std::runtime_error(explanation), streams_(std::move(streams)) {}

  // The streams that are part of the cause first (a cycle in its order, or those that wait for a missing
  // member), then those that merely wait behind them.
  const std::vector<StuckStream>& streams() const { return streams_; }

 private:
  std::vector<StuckStream> streams_;
};

}  // namespace moesim::sim
