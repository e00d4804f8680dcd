// Values of tables before formatting.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <nlohmann/json_fwd.hpp>

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

// Visits the values of an object, in objects of it too, with their paths.
void each_value(const std::string& path, const nlohmann::ordered_json& value,
                const std::function<void(const std::string&, const nlohmann::ordered_json&)>& visit);

// Returns a list of objects as CSV: a column for each path in them ("time_us.low"), in the order of the first
// object that has it, "error" last.
std::string csv_of(const nlohmann::ordered_json& rows);

}  // namespace moesim::tools
