// A progress line on the terminal with the remaining time; silent with -q and where stderr is not a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

// Called with the work done and in total; empty where progress is not shown.
using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

class ProgressLine {
 public:
  explicit ProgressLine(const CommonOptions& common);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();  // clears the line

  // Valid as long as this object; thread-safe. `done` may go back a little between threads. Work that is done
  // at the first call, or when `total` changes, does not count for the speed.
  Progress teller();

  // "[#####-----] 1234/10000  8431/s  0:12 left".
  static std::string line(std::int64_t done, std::int64_t total, double rate);

 private:
  using Clock = std::chrono::steady_clock;
  void tell(std::int64_t done, std::int64_t total);

  bool shown_;
  std::mutex mutex_;
  std::int64_t done_ = 0, done_before_ = 0, total_ = -1;
  Clock::time_point start_, next_;
};

}  // namespace moesim::tools
