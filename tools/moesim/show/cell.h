// Values of tables before formatting.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/moesim/show/columns.h"

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
// Parses true, false, a number, or other text.
Cell cell_of(std::string_view text);
// Returns nullopt for a cell that is not a number.
std::optional<double> number_of(const Cell& cell);

// Returns a list of objects as CSV: a column for each path in them ("time_us.low"), in the order of the first
// object that has it, "error" last.
std::string csv_of(const nlohmann::ordered_json& rows);

template <class Value>
Cell to_cell(const Value& value) {
  if constexpr (Text<Value>)
    return std::string(std::string_view(value));
  else if constexpr (MaybeNone<Value>)
    return value ? to_cell(*value) : Cell();
  else if constexpr (std::integral<Value> && !std::same_as<Value, bool>)
    return static_cast<std::int64_t>(value);
  else
    return value;
}

// Display of a column's cells: unchanged, with a number of digits, as a share, in bytes, or in microseconds
// with one unit for all rows.
enum class CellStyle : std::uint8_t { kText, kWhole, kThree, kFour, kPercent, kGigabytes, kTime };

// A column of a table of many answers, described once for the files, the summary, the front and the page.
struct SweepColumn {
  std::string name;         // JSON path
  Digits digits = {};       // for numbers
  std::string head = name;  // for people
  CellStyle style = CellStyle::kText;
  std::string told = {};  // for the best: "{} tokens/s/GPU"
  bool text = false;      // even where it looks like a number
  nlohmann::ordered_json schema = {};
  bool maybe = false;  // some rows have no cell
};

// Such a column, with its cell as a function of the answer.
template <class T>
struct FoundColumn {
  template <class Get>
  FoundColumn(SweepColumn shown, Get get)
      : column(std::move(shown)), cell([get](const T& of) { return to_cell(std::invoke(get, of)); }) {
    using Value = std::remove_cvref_t<std::invoke_result_t<const Get&, const T&>>;
    column.text = Text<Value>;
    column.maybe = MaybeNone<Value>;
    column.schema = schema_of<Value>();
  }

  SweepColumn column;
  std::function<Cell(const T&)> cell;
};

}  // namespace moesim::tools
