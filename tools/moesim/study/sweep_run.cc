#include "tools/moesim/study/sweep_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "base/helper_threads.h"
#include "base/input_error.h"
#include "tools/moesim/study/sweep_exchange.h"

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
    const auto keep = [&](SweepRow&& row) {
      if (job_.keep) block.kept.push_back(std::move(row));
    };
    const SweepTable& table = job_.kind->table();
    try {
      for (const SweepAsker::Row& row : asker_->ask(values_))
        keep(table.write(block.rows, i, values_, row.found, row.error));
    } catch (const InputError& error) {
      if (block.failed++ == 0) block.first_error = fmt::format("scenario {}: {}", i, error.what());
      keep(table.write_error(block.rows, i, values_, error.what()));
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

}  // namespace moesim::tools
