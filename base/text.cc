#include "base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>

#include <boost/locale/utf.hpp>

namespace moesim {

namespace {

// Length and code point of the UTF-8 character at `at`; length 0: invalid (RFC 3629).
struct Character {
  std::size_t length = 0;
  char32_t code = 0;
};

Character character_at(std::string_view text, std::size_t at) {
  const char *begin = text.data() + at, *end = begin;
  const auto code = boost::locale::utf::utf_traits<char>::decode(end, text.data() + text.size());
  if (!boost::locale::utf::is_valid_codepoint(code)) return {};
  return {static_cast<std::size_t>(end - begin), code};
}

// Characters that control a terminal or change the order of surrounding text: DEL, C1, direction marks and
// embeddings, line and paragraph separators; and those that XML cannot contain. Escaped as in JSON.
bool obeyed(char32_t code) {
  return (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff ||
         code == 0xfffe || code == 0xffff;
}

}  // namespace

std::size_t first_not_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    // Eight bytes of ASCII at once.
    std::uint64_t eight = 0;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080U) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const std::size_t length = character_at(text, at).length;
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

std::string printable(std::string_view text, std::string_view kept) {
  const auto plain = [&](char c) {
    return (c >= 0x20 && c < 0x7f) || kept.find(c) != std::string_view::npos;
  };
  if (std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    const std::size_t length = std::max<std::size_t>(1, c.length);
    if (length == 1 && kept.find(text[at]) != std::string_view::npos)
      out += text[at];
    else if (c.length == 0 || c.code < 0x20)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    else if (obeyed(c.code))
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c.code));
    else
      out += text.substr(at, length);
    at += length;
  }
  return out;
}

std::string one_line(std::string_view text) {
  std::string out = printable(text, "\n\t\r");
  std::ranges::replace_if(
      out, [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
  return out;
}

std::string shortened(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  // Not in the middle of a character.
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0U) == 0x80) --limit;
  return std::string(text.substr(0, limit)) + "...";
}

std::string in_quotes(std::string_view text, std::size_t limit) {
  return "'" + one_line(shortened(text, limit)) + "'";
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::optional<long long> parse_int(std::string_view text) {
  long long value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || text.empty()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || text.empty() || !std::isfinite(value)) return std::nullopt;
  return value;
}

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > 200) return std::nullopt;
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const auto best = closest(word, candidates);
  return best ? "; did you mean '" + *best + "'?" : "";
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

void say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace moesim
