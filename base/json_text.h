// JSON output for printing and files, and what reading and writing of JSON share.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include <nlohmann/json_fwd.hpp>

namespace moesim {

// An object of type Of that a visit reads, or writes where it is const.
template <class T, class Of>
concept Is = std::same_as<std::remove_const_t<T>, Of>;

// Iterates JSON text for nlohmann's lexer, which keeps every character since its last token and would need
// eight bytes of memory and of message for each.

// Limit on the characters of a string or number in a JSON text.
inline constexpr std::size_t kMaxJsonToken = std::size_t{1} << 24;

// An input iterator over a Source, which has `bool done() const`, `const char& here() const` and `void
// next()`. Collapses white space between values to one character. A string, number or word of more than
// kMaxJsonToken characters calls `Source::too_long()`, which throws.
template <class Source>
class JsonChars {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  JsonChars() = default;  // the end
  explicit JsonChars(Source source) : source_(std::move(source)), more_(!source_.done()) {}

  reference operator*() const { return source_.here(); }
  JsonChars& operator++() {
    const char c = source_.here();
    if (quoted_) {
      quoted_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      quoted_ = true;
    }
    const bool blank = !quoted_ && is_blank(c);
    length_ = blank || (!quoted_ && is_between(c)) ? 0 : length_ + 1;
    if (length_ > kMaxJsonToken) source_.too_long();
    source_.next();
    while (blank && !source_.done() && is_blank(source_.here())) source_.next();
    more_ = !source_.done();
    return *this;
  }
  JsonChars operator++(int) {
    JsonChars old = *this;
    ++*this;
    return old;
  }
  // Valid for comparing an iterator with the end.
  friend bool operator==(const JsonChars& a, const JsonChars& b) { return a.more_ == b.more_; }

 private:
  static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
  static bool is_between(char c) {
    return c == ',' || c == ':' || c == '[' || c == ']' || c == '{' || c == '}';
  }

  Source source_;
  bool more_ = false, quoted_ = false, escaped_ = false;
  std::size_t length_ = 0;  // of the current string, number or word
};

// Formats on several lines, `indent` spaces per level, with a final line end. Escapes terminal control
// characters and replaces bytes that are not UTF-8.
std::string json_text(const nlohmann::ordered_json& json, int indent = 2);

// Likewise on one line, without a line end.
std::string json_line(const nlohmann::ordered_json& json);

}  // namespace moesim
