// Distributes the blocks of a sweep: dealt out in order, returned in any order, written in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>

#include "tools/moesim/study/sweep_run.h"

namespace moesim::tools {

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

}  // namespace moesim::tools
