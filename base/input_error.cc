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

std::string prefixed(const SourcePlace& place, const std::string& message) {
  const std::string where = place.str();
  return one_line(where.empty() ? message : where + ": " + message);
}

}  // namespace

InputError::InputError(const std::string& message) : std::runtime_error(one_line(message)) {}

InputError::InputError(const SourcePlace& place, const std::string& message)
    : std::runtime_error(prefixed(place, message)), place_(place) {}

InputError::InputError(const SourcePlace& place, const std::string& found, const std::string& expected)
    : std::runtime_error(prefixed(place, "found " + found + ", expected " + expected)), place_(place) {}

}  // namespace moesim
