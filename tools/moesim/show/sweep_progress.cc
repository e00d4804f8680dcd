#include "tools/moesim/show/sweep_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/text.h"

namespace moesim::tools {

namespace {

constexpr std::size_t kWidth = 24;
constexpr auto kEvery = std::chrono::milliseconds(200);

}  // namespace

SweepProgress::SweepProgress(bool quiet, std::uint64_t total, std::uint64_t done)
    : shown_(!quiet && ::isatty(STDERR_FILENO) == 1),
      total_(total),
      done_(done),
      done_before_(done),
      start_(Clock::now()),
      next_(start_ + kEvery) {}

std::string SweepProgress::line(std::uint64_t done, std::uint64_t total, double rate) {
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
  const auto filled = static_cast<std::size_t>(share * kWidth);
  std::string text =
      fmt::format("[{}{}] {}/{}", std::string(filled, '#'), std::string(kWidth - filled, '-'), done, total);
  if (rate > 0) {
    const auto left = static_cast<std::uint64_t>(static_cast<double>(total - done) / rate);
    text += fmt::format("  {:.0f}/s  {}:{:02}:{:02} left", rate, left / 3600, left / 60 % 60, left % 60);
  }
  return text;
}

void SweepProgress::advance(std::uint64_t scenarios) {
  done_ += scenarios;
  if (!shown_) return;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + kEvery;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  say(fmt::format("\r{}\033[K", line(done_, total_, static_cast<double>(done_ - done_before_) / seconds)));
}

void SweepProgress::finish() {
  if (!shown_) return;
  say("\r\033[K");
}

}  // namespace moesim::tools
