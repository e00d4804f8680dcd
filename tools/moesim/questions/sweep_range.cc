#include "tools/moesim/questions/sweep_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/input_error.h"
#include "base/text.h"

namespace moesim::tools {

namespace {

// Returns the decimals of a number as written, so that 3 x 0.1 is written 0.3.
int decimals_of(std::string_view number) {
  const std::size_t point = number.find('.');
  if (point == std::string_view::npos || number.find_first_of("eE") != std::string_view::npos) return -1;
  std::size_t end = point + 1;
  while (end < number.size() && number[end] >= '0' && number[end] <= '9') ++end;
  return static_cast<int>(end - point - 1);
}

double rounded(double value, int decimals) {
  if (decimals < 0 || decimals > 12) return value;
  // Through text: the nearest double to the decimal number.
  return *parse_number(fmt::format("{:.{}f}", value, decimals));
}

std::string unit_of(std::string_view text) {
  const std::size_t letter = text.find_first_not_of("0123456789.+-eE ");
  return letter == std::string_view::npos ? "" : std::string(text.substr(letter));
}

// Splits a list at commas outside of JSON.
std::vector<std::string_view> list_items(std::string_view text) {
  std::vector<std::string_view> items;
  int depth = 0;
  std::size_t from = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '[') ++depth;
    if (text[i] == '}' || text[i] == ']') --depth;
    if (text[i] == ',' && depth == 0) {
      items.push_back(text.substr(from, i - from));
      from = i + 1;
    }
  }
  items.push_back(text.substr(from));
  return items;
}

}  // namespace

SweepRange SweepRange::parse(const ScenarioPath& path, std::string_view text) {
  SweepRange r;
  r.path = path;
  text = trim(text);
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos || !models::is_number(path.type)) {
    for (const std::string_view item : list_items(text)) {
      if (trim(item).empty())
        throw InputError(fmt::format("{}: found an empty value in {}, expected values such as 8,16,32",
                                     path.path, in_quotes(text)));
      r.values.push_back(parse_value(path, item));
      if (r.values.size() > kMostValues)
        throw InputError(fmt::format("{}: found more than {} values", path.path, kMostValues));
    }
    return r;
  }
  r.range = true;
  std::string low(trim(text.substr(0, dots)));
  std::string_view rest = text.substr(dots + 2);
  const std::size_t colon = rest.find(':');
  std::string high(trim(rest.substr(0, colon)));
  std::string step(colon == std::string_view::npos ? "" : std::string(trim(rest.substr(colon + 1))));
  // A unit applies to all parts without one: 25..400GBps:25.
  const std::string unit = unit_of(high);
  if (!unit.empty() && unit_of(low).empty()) low += unit;
  const bool multiplied = step.starts_with('x');
  const bool logarithm = step == "log";
  if (!unit.empty() && !step.empty() && !multiplied && !logarithm && unit_of(step).empty()) step += unit;
  r.low = parse_value(path, low).number;
  r.high = parse_value(path, high).number;
  r.logarithmic = multiplied || logarithm;
  if (!(r.low <= r.high))
    throw InputError(
        fmt::format("{}: found the empty range {}, expected low..high", path.path, in_quotes(text)));
  if (r.logarithmic && r.low <= 0)
    throw InputError(fmt::format("{}: found a range from {} with steps that multiply, expected one above 0",
                                 path.path, low));
  if (logarithm || (step.empty() && path.type != models::FieldType::kInteger)) return r;
  r.stepped = true;
  if (multiplied) {
    const auto factor = parse_number(std::string_view(step).substr(1));
    if (!factor || !(*factor > 1))
      throw InputError(fmt::format("{}: found the step {}, expected a factor above 1 such as x2", path.path,
                                   in_quotes(step)));
    const double count = std::log(r.high / r.low) / std::log(*factor) + 1;
    if (count > static_cast<double>(kMostValues))
      throw InputError(
          fmt::format("{}: found about {:.3g} values, expected at most {}", path.path, count, kMostValues));
    double previous = 0;
    for (double value = r.low; value <= r.high * (1 + 1e-12); value *= *factor) {
      const double one = path.type == models::FieldType::kInteger ? std::round(value) : value;
      if (one != previous) r.values.push_back(value_of(path, one));
      previous = one;
    }
    return r;
  }
  const double each = step.empty() ? 1 : parse_value(path, step).number;
  if (!(each > 0))
    throw InputError(fmt::format("{}: found the step {}, expected one above 0", path.path, in_quotes(step)));
  const double count = std::floor((r.high - r.low) / each * (1 + 1e-12) + 1e-9) + 1;
  if (count > static_cast<double>(kMostValues))
    throw InputError(
        fmt::format("{}: found {:.6g} values, expected at most {}", path.path, count, kMostValues));
  // Units scale by powers of ten, so decimals are meaningful only without one.
  const bool plain = unit.empty() && unit_of(step).empty();
  const int decimals = plain ? std::max(decimals_of(low), decimals_of(step)) : -1;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    r.values.push_back(value_of(path, rounded(r.low + static_cast<double>(i) * each, decimals)));
  return r;
}

SweepRange SweepRange::parse_assignment(const std::string& text, std::string_view option,
                                        const std::function<ScenarioPath(std::string_view)>& axis) {
  const auto [path, values] = split_assignment(text, option);
  return parse(axis(path), values);
}

PathValue SweepRange::at(double share) const {
  if (!range || stepped) {
    const auto index = static_cast<std::size_t>(share * static_cast<double>(values.size()));
    return values[std::min(index, values.size() - 1)];
  }
  double value = logarithmic ? low * std::pow(high / low, share) : low + (high - low) * share;
  value = std::clamp(value, low, high);
  // Limits the digits: results stay readable and the same everywhere.
  return value_of(path, path.type == models::FieldType::kInteger
                            ? std::round(value)
                            : *parse_number(fmt::format("{:.9g}", value)));
}

std::vector<PathValue> SweepRange::spread(std::size_t count) const {
  if (!range || stepped) return values;
  std::vector<PathValue> all;
  for (std::size_t i = 0; i < count; ++i)
    all.push_back(at(count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0));
  return all;
}

}  // namespace moesim::tools
