#include "tools/moesim/show/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.h"

namespace moesim::tools {

namespace {

constexpr std::size_t kNarrowest = 40;  // a narrower table would be unreadable
constexpr std::size_t kSentence = 100;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// Returns one of the 256 colours; Okabe and Ito's hues, which are distinguishable with colour-blindness.
const char* code_of(Ink ink) {
  static constexpr const char* kCodes[] = {"",         "1",        "1;38;5;36", "38;5;166",
                                           "38;5;245", "38;5;74",  "38;5;178",  "38;5;36",
                                           "38;5;209", "38;5;175", "38;5;141",  "38;5;250"};
  return kCodes[static_cast<std::size_t>(ink)];
}

// Marks an ink's number: a byte that UTF-8 text cannot contain, so that no name can colour the output.
constexpr char kMark = '\xff';
constexpr std::size_t kMarkBytes = 2;

std::string mark_of(Ink ink) { return {kMark, static_cast<char>(ink)}; }

// Returns the sequence of the mark at the start of `text`; empty: no mark.
std::string sequence_of(std::string_view text) {
  if (text.size() < kMarkBytes || static_cast<unsigned char>(text[1]) > static_cast<int>(Ink::kGrey))
    return "";
  const auto ink = static_cast<Ink>(text[1]);
  return fmt::format("\033[{}m", ink == Ink::kPlain ? "0" : code_of(ink));
}

}  // namespace

Terminal Terminal::of(int file) {
  Terminal out;
  if (::isatty(file) != 1) return out;
  const std::string_view term = environment("TERM");
  out.color = environment("NO_COLOR").empty() && !term.empty() && term != "dumb";
  winsize size{};
  if (::ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    out.columns = size.ws_col;
  } else if (const auto given = parse_int(environment("COLUMNS")); given && *given > 0) {
    out.columns = static_cast<std::size_t>(*given);
  }
  if (out.columns > 0 && out.columns < kNarrowest) out.columns = kNarrowest;
  return out;
}

const Terminal& standard_output() {
  static const Terminal terminal = Terminal::of(STDOUT_FILENO);
  return terminal;
}

std::string inked(std::string_view text, Ink ink, const Terminal& terminal) {
  if (!terminal.color || ink == Ink::kPlain || text.empty()) return std::string(text);
  return mark_of(ink) + std::string(text) + mark_of(Ink::kPlain);
}

std::string shown(std::string_view text) {
  constexpr std::string_view kKept = "\n\t";
  std::string out;
  while (!text.empty()) {
    const std::size_t at = std::min(text.find(kMark), text.size());
    out += printable(text.substr(0, at), kKept);
    text.remove_prefix(at);
    if (text.empty()) break;
    const std::string own = sequence_of(text);
    out += own.empty() ? printable(text.substr(0, 1)) : own;
    text.remove_prefix(own.empty() ? 1 : kMarkBytes);
  }
  return out;
}

std::size_t sentence_columns(const Terminal& terminal) {
  return terminal.columns > 0 ? std::min(terminal.columns, kSentence) : kSentence;
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    const std::string_view paragraph = text.substr(from, end - from);
    std::size_t width = 0;
    // Spaces that open a paragraph stay.
    for (std::size_t at = 0; at < paragraph.size();) {
      const std::size_t word_at = paragraph.find_first_not_of(' ', at);
      if (word_at == std::string_view::npos) break;
      const std::size_t word_end = std::min(paragraph.find(' ', word_at), paragraph.size());
      const std::string_view spaces = paragraph.substr(at, word_at - at);
      const std::string_view word = paragraph.substr(word_at, word_end - word_at);
      const bool breaks = columns > 0 && width > 0 && width + spaces.size() + width_of(word) > columns;
      if (breaks)
        out += '\n' + std::string(indent, ' ');
      else
        out += spaces;
      out += word;
      width = (breaks ? indent : width + spaces.size()) + width_of(word);
      at = word_end;
    }
    if (end < text.size()) out += '\n';
    from = end + 1;
  }
  return out;
}

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == kMark) {
      i += kMarkBytes - 1;
      continue;
    }
    width += (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
  }
  return width;
}

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
