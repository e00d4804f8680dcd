#include "base/study.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "base/helper_threads.h"

namespace moesim {

void on_threads(std::size_t count, int threads,
                const std::function<void(std::size_t worker, std::size_t item)>& work) {
  if (count == 0) return;
  std::atomic<std::size_t> next{0}, workers{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto all = [&] {
    const std::size_t worker = workers++;
    try {
      for (std::size_t i = next++; i < count; i = next++) work(worker, i);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  const std::size_t wanted =
      threads > 0 ? static_cast<std::size_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
  HelperThreads others(std::min(wanted, count) - 1, all);
  all();
  others.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace moesim
