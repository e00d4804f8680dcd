// Blocks of a sweep on their way: dealt out in order, taken back in any, written in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>

#include "tools/moesim/sweeps/sweep_run.h"

namespace moesim::tools {

class SweepExchange {
 public:
  // At most `ahead` blocks are out or waiting for an earlier one, so that memory stays bounded.
  SweepExchange(const SweepJob& job, std::uint64_t ahead, const SweepWrite& write);

  // The next block to make; nullopt when there is none. Waits until one may be dealt out.
  std::optional<std::uint64_t> take();
  // The same without waiting.
  std::optional<std::uint64_t> take_now();
  // A block that was dealt out and did not come back: take() gives it out again, before all others.
  void again(std::uint64_t block);
  // The rows of a block; those of one that is there already are dropped.
  void put(std::uint64_t number, SweepBlock&& block);

  void fail(std::exception_ptr error);
  bool over() const;  // all is written, or there was an error, or write() said to stop
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
  std::vector<std::uint64_t> again_;
  std::exception_ptr error_;
};

// A thread of a sweep: makes blocks while there are any. What it throws fails the exchange.
void work_on(const SweepJob& job, SweepExchange& exchange);

}  // namespace moesim::tools
