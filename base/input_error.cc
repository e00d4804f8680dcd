#include "base/input_error.h"

#include "base/text.h"

namespace moesim {

std::string SourcePlace::str() const {
  std::string text = file;
  if (line > 0) text += ":" + std::to_string(line);
  if (line > 0 && column > 0) text += ":" + std::to_string(column);
  return text;
}

namespace {

// Limits keep a message readable, whatever a file contained.
constexpr std::size_t kLongestPlace = 1000, kLongestMessage = 2000;

std::string told(const std::string& message) { return one_line(shortened(message, kLongestMessage)); }

std::string prefixed(const SourcePlace& place, const std::string& message) {
  const std::string where = place.str();
  return where.empty() ? told(message) : one_line(shortened(where, kLongestPlace)) + ": " + told(message);
}

}  // namespace

InputError::InputError(const std::string& message) : std::runtime_error(told(message)) {}

InputError::InputError(const SourcePlace& place, const std::string& message)
    : std::runtime_error(prefixed(place, message)), place_(place) {}

InputError::InputError(const SourcePlace& place, const std::string& found, const std::string& expected)
    : std::runtime_error(prefixed(place, "found " + found + ", expected " + expected)), place_(place) {}

}  // namespace moesim
