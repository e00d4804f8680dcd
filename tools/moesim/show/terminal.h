// Capabilities of standard output: plain bytes for a pipe or a file; colours and a width for a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

struct Terminal {
  bool color = false;
  std::size_t columns = 0;  // 0: unlimited

  // Returns colours only for a terminal that has them and without NO_COLOR (no-color.org); the terminal's
  // width, or COLUMNS where it is unknown. A pipe gets the same bytes everywhere.
  static Terminal of(int file);
};

// Returns standard output's capabilities, determined once.
const Terminal& standard_output();

// Colours by meaning, as marks that shown() converts to escape sequences; `text` is unchanged without
// colours.
enum class Ink { kPlain, kBold, kBest, kBad, kSoft, kBlue, kYellow, kGreen, kOrange, kPink, kPurple, kGrey };
std::string inked(std::string_view text, Ink ink, const Terminal& terminal = standard_output());

// Returns text that is safe for a terminal: colours of inked() and line ends stay; other control sequences,
// which come from names in files, are made visible (printable()).
std::string shown(std::string_view text);

// Lines of at most so many columns, broken at spaces and never inside a word; 0 columns: any number. Lines
// behind the first of a paragraph begin with `indent` spaces.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent = 0);

// Columns of sentences where nothing is wider than the terminal: 100 of a pipe and of wide terminals.
std::size_t sentence_columns(const Terminal& terminal = standard_output());

// Returns the columns of UTF-8 text, without wide characters: continuation bytes and colours take none.
std::size_t width_of(std::string_view text);

// A progress line on the terminal with the remaining time; silent with -q and where stderr is not a terminal.

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
