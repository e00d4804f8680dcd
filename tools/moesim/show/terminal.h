// Capabilities of standard output: plain bytes for a pipe or a file; colours and a width for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

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

}  // namespace moesim::tools
