// A table value before formatting.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace moesim::tools {

// monostate: no value.
using Cell = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

// Digits of a column's numbers: shortest, fixed decimals, or significant digits.
struct Digits {
  enum class Kind : std::uint8_t { kShortest, kFixed, kSignificant } kind = Kind::kShortest;
  int count = 0;

  static constexpr Digits fixed(int count) { return {Kind::kFixed, count}; }
  static constexpr Digits significant(int count) { return {Kind::kSignificant, count}; }
};

// Formats without quotes; "" for no value.
std::string cell_text(const Cell& cell, Digits digits = {});
// Returns the cell that cell_of() makes of its text: a number with its digits, text on one line, "" as no
// value.
Cell as_printed(Cell cell, Digits digits = {});
// Parses true, false, a number, or other text.
Cell cell_of(std::string_view text);
// Returns nullopt for a cell that is not a number.
std::optional<double> number_of(const Cell& cell);

template <class Value>
Cell optional_cell(const std::optional<Value>& value) {
  return value ? Cell(*value) : Cell();
}

}  // namespace moesim::tools
