// Runs the scenarios of a sweep in blocks, on threads and under MPI, and passes the rows on in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "models/study/study.h"
#include "tools/moesim/study/sweep_kind.h"

namespace moesim::tools {

// The rows of some consecutive scenarios.
struct SweepBlock {
  std::uint64_t first = 0, count = 0;
  std::string rows;          // lines of the table
  std::uint64_t failed = 0;  // scenarios without any forecast
  std::string first_error;   // "scenario 17: ..."
};

// Shared definition of a sweep for all threads and machines.
struct SweepJob {
  const SweepKind* kind = nullptr;
  const models::Points* points = nullptr;
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
  SweepAsker asker_;
  std::vector<PathValue> values_;
};

// Receives finished blocks in order, from one thread at a time; returns false to end the sweep.
using SweepWrite = std::function<bool(const SweepBlock&)>;

// Distributes the blocks of a sweep: dealt out in order, returned in any order, written in order.
class SweepExchange {
 public:
  // At most `ahead` blocks are dealt out or waiting for an earlier one, which bounds the memory.
  SweepExchange(const SweepJob& job, std::uint64_t ahead, const SweepWrite& write);

  // Returns the next block to compute; nullopt when there is none. Waits until one may be dealt out.
  std::optional<std::uint64_t> take();
  // Likewise without waiting.
  std::optional<std::uint64_t> take_now();
  // Stores the rows of a block.
  void put(std::uint64_t number, SweepBlock&& block);

  void fail(std::exception_ptr error);
  bool over() const;  // all is written, or an error occurred, or write() ended the sweep
  void rethrow() const;

 private:
  std::optional<std::uint64_t> take_locked();

  const std::uint64_t blocks_, ahead_;
  const SweepWrite& write_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0, written_ = 0;
  bool writing_ = false, stopped_ = false;
  std::map<std::uint64_t, SweepBlock> done_;
  std::exception_ptr error_;
};

// A thread of a sweep: computes blocks while there are any. Its exception fails the exchange.
void work_on(const SweepJob& job, SweepExchange& exchange);

// Rethrows exceptions of workers.
void sweep_on_threads(const SweepJob& job, int threads, const SweepWrite& write);

}  // namespace moesim::tools
