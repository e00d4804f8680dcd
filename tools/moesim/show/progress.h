// A line on the terminal that says how far something is and how long it still takes; nothing with -q, and
// nothing where the errors go to no terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/sweep_progress.h"

namespace moesim::tools {

// Told how much is done of how much; empty where nobody looks.
using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

class ProgressLine {
 public:
  explicit ProgressLine(const CommonOptions& common);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();  // clears the line

  // Lives as long as this; may be called by several threads. `done` may go back by what threads are apart.
  Progress teller();

 private:
  void tell(std::int64_t done, std::int64_t total);

  bool shown_;
  std::mutex mutex_;
  std::optional<SweepProgress> line_;
  std::int64_t done_ = 0, total_ = -1;
};

}  // namespace moesim::tools
