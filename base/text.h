// Small text helpers shared by readers and messages.
#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moesim {

// Where text stops being UTF-8 (RFC 3629); npos: nowhere.
std::size_t first_not_utf8(std::string_view text);

// Foreign text that a terminal shows and does not obey: control characters (ESC, C1), those that change the
// direction or the line of text around them, and bytes that are no UTF-8 become \xNN and \uNNNN. `kept`:
// control characters that stay as they are.
std::string printable(std::string_view text, std::string_view kept = {});

// The same with line ends and tabs as spaces, so that a message stays on one line whatever a file held.
std::string one_line(std::string_view text);

// The first `limit` bytes, without half a character, and "..." where that is not all.
std::string shortened(std::string_view text, std::size_t limit);

// `text` in quotes, made printable and cut after `limit` characters: for "found ..." in messages.
std::string in_quotes(std::string_view text, std::size_t limit = 60);

// Views of `text`, which has to live as long: a string that nobody holds is refused when it is compiled.
std::vector<std::string_view> split(std::string_view text, char separator);
template <std::same_as<std::string> Text>
std::vector<std::string_view> split(Text&& text, char separator) = delete;
std::string_view trim(std::string_view text);

// Decimal integer or number that fills all of `text`; nullopt otherwise (also on overflow, NaN and infinity).
std::optional<long long> parse_int(std::string_view text);
std::optional<double> parse_number(std::string_view text);

// The candidate with the smallest edit distance to `word`, if it is near enough to be a typo.
std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'x'?" or "" when nothing is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

// Writes to standard error what no answer may be lost for: where it is full or closed, nothing happens.
void say(std::string_view text);

std::string join(std::span<const std::string> parts, std::string_view separator);

}  // namespace moesim
