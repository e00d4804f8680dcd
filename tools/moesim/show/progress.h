// A progress line on the terminal with the remaining time; silent with -q and where stderr is not a terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/sweep_progress.h"

namespace moesim::tools {

// Called with the work done and in total; empty where progress is not shown.
using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

class ProgressLine {
 public:
  explicit ProgressLine(const CommonOptions& common);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();  // clears the line

  // Valid as long as this object; thread-safe. `done` may go back a little between threads.
  Progress teller();

 private:
  void tell(std::int64_t done, std::int64_t total);

  bool shown_;
  std::mutex mutex_;
  std::optional<SweepProgress> line_;
  std::int64_t done_ = 0, total_ = -1;
};

}  // namespace moesim::tools
