#include "tools/moesim/study/sweep_exchange.h"

#include <algorithm>
#include <utility>

namespace moesim::tools {

SweepExchange::SweepExchange(const SweepJob& job, std::uint64_t ahead, const SweepWrite& write)
    : blocks_(job.blocks()), ahead_(ahead), write_(write) {}

std::optional<std::uint64_t> SweepExchange::take_locked() {
  if (stopped_) return std::nullopt;
  if (next_ >= blocks_ || next_ >= written_ + ahead_) return std::nullopt;
  return next_++;
}

std::optional<std::uint64_t> SweepExchange::take_now() {
  const std::scoped_lock lock(mutex_);
  return take_locked();
}

std::optional<std::uint64_t> SweepExchange::take() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (const auto block = take_locked()) return block;
    if (stopped_ || next_ >= blocks_) return std::nullopt;
    changed_.wait(lock);
  }
}

void SweepExchange::put(std::uint64_t number, SweepBlock&& block) {
  std::unique_lock lock(mutex_);
  done_.emplace(number, std::move(block));
  if (writing_) return;  // the writing thread continues with it
  writing_ = true;
  while (!stopped_) {
    const auto ready = done_.find(written_);
    if (ready == done_.end()) break;
    const SweepBlock one = std::move(ready->second);
    done_.erase(ready);
    ++written_;
    lock.unlock();
    const bool go_on = write_(one);
    lock.lock();
    if (!go_on) stopped_ = true;
    changed_.notify_all();
  }
  writing_ = false;
}

void SweepExchange::fail(std::exception_ptr error) {
  const std::scoped_lock lock(mutex_);
  if (!error_) error_ = std::move(error);
  stopped_ = true;
  changed_.notify_all();
}

bool SweepExchange::over() const {
  const std::scoped_lock lock(mutex_);
  return stopped_ || (written_ >= blocks_ && !writing_);
}

void SweepExchange::rethrow() const {
  const std::scoped_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void work_on(const SweepJob& job, SweepExchange& exchange) {
  try {
    SweepWorker worker(job);
    while (const auto b = exchange.take()) {
      SweepBlock block = job.block_at(*b);
      worker.fill(block);
      exchange.put(*b, std::move(block));
    }
  } catch (...) {
    exchange.fail(std::current_exception());
  }
}

}  // namespace moesim::tools
