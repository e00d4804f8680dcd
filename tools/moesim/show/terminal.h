// What standard output can show: nothing but bytes for a pipe or a file; colours and a width for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moesim::tools {

struct Terminal {
  bool color = false;
  std::size_t columns = 0;  // 0: any number

  // Colours only on a terminal that has them and where NO_COLOR (no-color.org) is not set; the width of the
  // terminal, or COLUMNS where it cannot be asked. A pipe gets the same bytes everywhere.
  static Terminal of(int file);
};

// Standard output, asked once.
const Terminal& standard_output();

// Colours by what they mean, as marks that shown() makes sequences of; `text` unchanged where there are none.
enum class Ink { kPlain, kBold, kBest, kBad, kSoft, kBlue, kYellow, kGreen, kOrange, kPink, kPurple, kGrey };
std::string inked(std::string_view text, Ink ink, const Terminal& terminal = standard_output());

// Text of many lines as it may go to a terminal: colours of inked() and line ends stay; whatever else a
// terminal would obey came from a name in a file and is shown (printable()).
std::string shown(std::string_view text);

// Lines of at most so many columns, broken at spaces and never inside a word; 0 columns: any number. Lines
// behind the first of a paragraph begin with `indent` spaces.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent = 0);

// Columns of sentences where nothing is wider than the terminal: 100 of a pipe and of wide terminals.
std::size_t sentence_columns(const Terminal& terminal = standard_output());

// Columns that UTF-8 text takes, without wide characters: continuation bytes and colours take none.
std::size_t width_of(std::string_view text);

}  // namespace moesim::tools
