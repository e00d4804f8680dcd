#include "tools/moesim/show/cell.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace moesim::tools {

namespace {

// Rounds to so many decimals; negative: before the point.
double rounded(double value, int digits) {
  constexpr double kExact = 9007199254740992;  // 2^53
  const double scale = std::pow(10.0, std::abs(digits));
  if (digits < 0) return std::nearbyint(value / scale) * scale;
  const double scaled = value * scale;
  if (std::abs(scaled) >= kExact) return value;
  double whole = std::nearbyint(scaled);
  // A half that is only due to rounding of the product is rounded by the exact product.
  const double lost = std::fma(value, scale, -scaled);
  if (scaled - whole == 0.5 && lost > 0) whole += 1;
  if (scaled - whole == -0.5 && lost < 0) whole -= 1;
  return whole / scale;
}

// A whole number is printed without a point, unless its decimals are fixed or it takes an exponent.
Cell whole_or(double value, double below) {
  if (value == std::trunc(value) && std::abs(value) < below) return static_cast<std::int64_t>(value);
  return value;
}

Cell as_printed(double value, Digits digits) {
  if (!std::isfinite(value)) return value;
  switch (digits.kind) {
    case Digits::Kind::kFixed:
      return digits.count == 0 ? whole_or(std::nearbyint(value), 9e18) : Cell(rounded(value, digits.count));
    case Digits::Kind::kSignificant:
      if (value == 0) return std::int64_t{0};
      return whole_or(
          rounded(value, digits.count - 1 - static_cast<int>(std::floor(std::log10(std::abs(value))))),
          std::pow(10.0, digits.count));
    case Digits::Kind::kShortest:
      break;
  }
  return whole_or(value, 1e16);
}

}  // namespace

std::string cell_text(const Cell& cell, Digits digits) {
  struct Text {
    Digits digits;
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const {
      switch (digits.kind) {
        case Digits::Kind::kFixed:
          return fmt::format("{:.{}f}", value, digits.count);
        case Digits::Kind::kSignificant:
          return fmt::format("{:.{}g}", value, digits.count);
        case Digits::Kind::kShortest:
          break;
      }
      return fmt::format("{}", value);
    }
    std::string operator()(const std::string& value) const { return value; }
  };
  return std::visit(Text{digits}, cell);
}

Cell as_printed(Cell cell, Digits digits) {
  if (const auto* number = std::get_if<double>(&cell)) return as_printed(*number, digits);
  if (const auto* text = std::get_if<std::string>(&cell))
    return text->empty() ? Cell() : Cell(std::string(one_line(*text)));
  return cell;
}

Cell cell_of(std::string_view text) {
  if (text.empty()) return {};
  if (text == "true" || text == "false") return text == "true";
  if (const auto whole = parse_int(text)) return static_cast<std::int64_t>(*whole);
  if (const auto number = parse_number(text)) return *number;
  return std::string(text);
}

std::optional<double> number_of(const Cell& cell) {
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  return std::nullopt;
}

}  // namespace moesim::tools
