// Runs the scenarios of a sweep in blocks, on threads and under MPI, and passes the rows on in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tools/moesim/study/sweep_kind.h"
#include "tools/moesim/study/sweep_points.h"

namespace moesim::tools {

// The rows of some consecutive scenarios.
struct SweepBlock {
  std::uint64_t first = 0, count = 0;
  std::string rows;  // lines of the table
  std::vector<SweepRow> kept;
  std::uint64_t failed = 0;  // scenarios without any forecast
  std::string first_error;   // "scenario 17: ..."
};

// Shared definition of a sweep for all threads and machines.
struct SweepJob {
  const SweepKind* kind = nullptr;
  const SweepPoints* points = nullptr;
  bool keep = false;        // also keeps rows in memory
  bool strict = false;      // a scenario without a forecast ends its block
  std::uint64_t first = 0;  // first scenario
  std::uint64_t end = 0;    // one past the last scenario
  std::uint64_t block = 1;  // scenarios per block

  std::uint64_t blocks() const;
  // Returns the scenarios of block `b`, without rows.
  SweepBlock block_at(std::uint64_t b) const;
};

// Computes blocks; one per thread.
class SweepWorker {
 public:
  explicit SweepWorker(const SweepJob& job);
  void fill(SweepBlock& block);

 private:
  const SweepJob& job_;
  std::unique_ptr<SweepAsker> asker_;
  std::vector<PathValue> values_;
};

// Receives finished blocks in order, from one thread at a time; returns false to end the sweep.
using SweepWrite = std::function<bool(const SweepBlock&)>;

// Rethrows exceptions of workers.
void sweep_on_threads(const SweepJob& job, int threads, const SweepWrite& write);

}  // namespace moesim::tools
