// Runs the scenarios of a sweep in blocks, on threads and under MPI, and hands the rows over in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tools/moesim/sweeps/sweep_kind.h"
#include "tools/moesim/sweeps/sweep_plan.h"

namespace moesim::tools {

// The rows of some consecutive scenarios.
struct SweepBlock {
  std::uint64_t first = 0, count = 0;
  std::string rows;  // lines of the table
  std::vector<SweepRow> kept;
  std::uint64_t failed = 0;  // scenarios without any forecast
  std::string first_error;   // "scenario 17: ..."
};

// What every thread and machine of a sweep knows.
struct SweepJob {
  const SweepKind* kind = nullptr;
  const SweepPlan* plan = nullptr;
  bool keep = false;        // rows in memory, too
  bool strict = false;      // a scenario without a forecast ends its block
  std::uint64_t first = 0;  // where to start
  std::uint64_t end = 0;    // behind the last
  std::uint64_t block = 1;  // scenarios of a block

  std::uint64_t blocks() const;
  // Which scenarios block `b` has, without rows.
  SweepBlock block_at(std::uint64_t b) const;
};

// Makes blocks; one per thread.
class SweepWorker {
 public:
  explicit SweepWorker(const SweepJob& job);
  void fill(SweepBlock& block);

 private:
  const SweepJob& job_;
  std::unique_ptr<SweepAsker> asker_;
  std::vector<PathValue> values_;
};

// Takes blocks as they are done and calls `write` with each in order, from one thread at a time; `write`
// returns false to end the sweep.
using SweepWrite = std::function<bool(const SweepBlock&)>;

// Rethrows what a worker threw.
void sweep_on_threads(const SweepJob& job, int threads, const SweepWrite& write);

}  // namespace moesim::tools
