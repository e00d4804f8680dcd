// Small text helpers shared by readers and messages.
#pragma once

#include <algorithm>
#include <cctype>
#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moesim {

// Returns the position of the first byte that is not UTF-8 (RFC 3629); npos: none.
std::size_t first_not_utf8(std::string_view text);

// Returns foreign text safe for a terminal: control characters (ESC, C1), characters that change the
// direction or the line of surrounding text, and bytes that are not UTF-8 become \xNN and \uNNNN. `kept`:
// control characters to keep.
std::string printable(std::string_view text, std::string_view kept = {});

// Likewise with line ends and tabs as spaces, so that a message stays on one line.
std::string one_line(std::string_view text);

// Returns the first `limit` bytes, without a partial character, and "..." where the text is longer.
std::string shortened(std::string_view text, std::size_t limit);

// Returns `text` in quotes, printable and cut after `limit` characters: for "found ..." in messages.
std::string in_quotes(std::string_view text, std::size_t limit = 60);

// Returns views of `text`, which must outlive them: a temporary string does not compile.
std::vector<std::string_view> split(std::string_view text, char separator);
template <std::same_as<std::string> Text>
std::vector<std::string_view> split(Text&& text, char separator) = delete;
std::string_view trim(std::string_view text);

// Parses a decimal integer or number that fills all of `text`; nullopt otherwise (also on overflow, NaN and
// infinity).
std::optional<long long> parse_int(std::string_view text);
std::optional<double> parse_number(std::string_view text);

// Returns the candidate with the smallest edit distance to `word`, if it is near enough to be a typo.
std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates);

// Returns "; did you mean 'x'?", or "" without a near candidate.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

// Writes to standard error and ignores failures (full or closed), since no answer may be lost for it.
void say(std::string_view text);

std::string join(std::span<const std::string> parts, std::string_view separator);

// ASCII text in lower case, for names in either case.

inline std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace moesim
