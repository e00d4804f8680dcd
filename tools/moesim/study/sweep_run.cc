#include "tools/moesim/study/sweep_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "base/helper_threads.h"
#include "base/input_error.h"

namespace moesim::tools {

std::uint64_t SweepJob::blocks() const {
  const std::uint64_t left = end - std::min(first, end);
  return (left + block - 1) / block;
}

SweepBlock SweepJob::block_at(std::uint64_t b) const {
  SweepBlock made;
  made.first = first + b * block;
  made.count = std::min(block, end - made.first);
  return made;
}

SweepWorker::SweepWorker(const SweepJob& job) : job_(job), asker_(job.kind->asker(*job.points)) {}

void SweepWorker::fill(SweepBlock& block) {
  for (std::uint64_t i = block.first; i < block.first + block.count; ++i) {
    job_.points->point(i, values_);
    const SweepTable& table = job_.kind->table();
    try {
      for (const FoundRow& row : asker_(values_)) table.write(block.rows, i, values_, row.found, row.error);
    } catch (const InputError& error) {
      if (block.failed++ == 0) block.first_error = fmt::format("scenario {}: {}", i, error.what());
      table.write_error(block.rows, i, values_, error.what());
      if (job_.strict) return;
    }
  }
}

void sweep_on_threads(const SweepJob& job, int threads, const SweepWrite& write) {
  const auto count = static_cast<std::uint64_t>(std::max(threads, 1));
  SweepExchange exchange(job, 16 * count, write);
  HelperThreads others(std::min(count, std::max<std::uint64_t>(job.blocks(), 1)) - 1,
                       [&] { work_on(job, exchange); });
  work_on(job, exchange);
  others.join();
  exchange.rethrow();
}

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
