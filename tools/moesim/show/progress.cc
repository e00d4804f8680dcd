#include "tools/moesim/show/progress.h"

#include <unistd.h>

namespace moesim::tools {

ProgressLine::ProgressLine(const CommonOptions& common)
    : shown_(!common.quiet && ::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (line_) line_->finish();
}

Progress ProgressLine::teller() {
  if (!shown_) return {};
  return [this](std::int64_t done, std::int64_t total) { tell(done, total); };
}

void ProgressLine::tell(std::int64_t done, std::int64_t total) {
  const std::scoped_lock lock(mutex_);
  if (!line_ || total != total_) {
    line_.emplace(false, static_cast<std::uint64_t>(total), static_cast<std::uint64_t>(done));
    total_ = total;
    done_ = done;
  }
  if (done < done_) return;
  line_->advance(static_cast<std::uint64_t>(done - done_));
  done_ = done;
}

}  // namespace moesim::tools
