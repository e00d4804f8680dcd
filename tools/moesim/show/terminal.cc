#include "tools/moesim/show/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.h"

namespace moesim::tools {

namespace {

constexpr std::size_t kNarrowest = 40;  // below it nothing would be left to read

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// Of the 256 colours; Okabe and Ito's hues, which people with colour-blindness can tell apart.
const char* code_of(Ink ink) {
  switch (ink) {
    case Ink::kPlain:
      return "";
    case Ink::kBold:
      return "1";
    case Ink::kBest:
      return "1;38;5;36";
    case Ink::kBad:
      return "38;5;166";
    case Ink::kSoft:
      return "38;5;245";
    case Ink::kBlue:
      return "38;5;74";
    case Ink::kYellow:
      return "38;5;178";
    case Ink::kGreen:
      return "38;5;36";
    case Ink::kOrange:
      return "38;5;209";
    case Ink::kPink:
      return "38;5;175";
    case Ink::kPurple:
      return "38;5;141";
    case Ink::kGrey:
      return "38;5;250";
  }
  return "";
}

// Of the sequence that inked() wrote at the start of `text`; 0: of another one.
std::size_t length_of_ink(std::string_view text) {
  for (int ink = 0; ink <= static_cast<int>(Ink::kGrey); ++ink) {
    const char* const code = code_of(static_cast<Ink>(ink));
    const std::string own = fmt::format("\033[{}m", ink == 0 ? "0" : code);
    if (text.starts_with(own)) return own.size();
  }
  return 0;
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
  return fmt::format("\033[{}m{}\033[0m", code_of(ink), text);
}

std::string shown(std::string_view text) {
  constexpr std::string_view kKept = "\n\t";
  std::string out;
  while (!text.empty()) {
    const std::size_t at = std::min(text.find('\033'), text.size());
    out += printable(text.substr(0, at), kKept);
    text.remove_prefix(at);
    if (text.empty()) break;
    const std::size_t own = length_of_ink(text);
    out += own > 0 ? std::string(text.substr(0, own)) : printable(text.substr(0, 1));
    text.remove_prefix(std::max<std::size_t>(1, own));
  }
  return out;
}

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    width += (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
  }
  return width;
}

}  // namespace moesim::tools
