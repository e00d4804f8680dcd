// The progress line of a sweep on a terminal; silent in a pipe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace moesim::tools {

class SweepProgress {
 public:
  // `total` scenarios, of which an earlier run has done `done`.
  SweepProgress(bool quiet, std::uint64_t total, std::uint64_t done);
  void advance(std::uint64_t scenarios);
  void finish();  // clears the line

  // "[#####-----] 1234/10000  8431/s  0:12 left".
  static std::string line(std::uint64_t done, std::uint64_t total, double rate);

 private:
  using Clock = std::chrono::steady_clock;
  bool shown_;
  std::uint64_t total_, done_, done_before_;
  Clock::time_point start_, next_;
};

}  // namespace moesim::tools
