#include "tools/moesim/show/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/text.h"

namespace moesim::tools {

namespace {

constexpr std::size_t kWidth = 24;
constexpr auto kEvery = std::chrono::milliseconds(200);

}  // namespace

ProgressLine::ProgressLine(const CommonOptions& common)
    : shown_(!common.quiet && ::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (total_ >= 0) say("\r\033[K");
}

Progress ProgressLine::teller() {
  if (!shown_) return {};
  return [this](std::int64_t done, std::int64_t total) { tell(done, total); };
}

std::string ProgressLine::line(std::int64_t done, std::int64_t total, double rate) {
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
  const auto filled = static_cast<std::size_t>(share * kWidth);
  std::string text =
      fmt::format("[{}{}] {}/{}", std::string(filled, '#'), std::string(kWidth - filled, '-'), done, total);
  if (rate > 0) {
    const auto left = static_cast<std::int64_t>(static_cast<double>(total - done) / rate);
    text += fmt::format("  {:.0f}/s  {}:{:02}:{:02} left", rate, left / 3600, left / 60 % 60, left % 60);
  }
  return text;
}

void ProgressLine::tell(std::int64_t done, std::int64_t total) {
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  if (total != total_) {
    total_ = total;
    done_ = done_before_ = done;
    start_ = now;
    next_ = now + kEvery;
  }
  if (done < done_) return;
  done_ = done;
  if (now < next_) return;
  next_ = now + kEvery;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  say(fmt::format("\r{}\033[K", line(done_, total_, static_cast<double>(done_ - done_before_) / seconds)));
}

}  // namespace moesim::tools
