// Values of fields as people write them.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "base/units.h"
#include "models/workload/fields.h"

namespace moesim::models {

namespace {

const char* expected_of(FieldType type) {
  switch (type) {
    case FieldType::kInteger:
      return "a whole number";
    case FieldType::kNumber:
      return "a number";
    case FieldType::kBoolean:
      return "true or false";
    case FieldType::kBandwidth:
      return "a bandwidth such as 100GBps or 400Gbps";
    case FieldType::kSeconds:
      return "a time such as 2us";
    case FieldType::kBytes:
      return "a size such as 80GB";
    case FieldType::kFlops:
      return "a rate such as 989TFLOPS";
    case FieldType::kChoice:
    case FieldType::kText:
    case FieldType::kObject:
      break;
  }
  return "a value";
}

[[noreturn]] void refuse(std::string_view path, FieldType type, std::string_view found) {
  throw InputError(fmt::format("{}: found {}, expected {}", path, in_quotes(found), expected_of(type)));
}

// A number without a unit is SI, as in tables of results; returns whether it is one that no machine has, so
// that a unit was forgotten.
bool forgot_unit(FieldType type, std::string_view text) {
  const auto plain = parse_number(text);
  if (!plain || *plain == 0) return false;
  switch (type) {
    case FieldType::kBandwidth:
    case FieldType::kBytes:
      return *plain < 1e6;
    case FieldType::kFlops:
      return *plain < 1e9;
    case FieldType::kSeconds:
      return *plain > 0.01;
    default:
      return false;
  }
}

double number_of(std::string_view path, FieldType type, std::string_view text) {
  if (forgot_unit(type, text)) refuse(path, type, text);
  try {
    switch (type) {
      case FieldType::kBandwidth:
        return parse_bandwidth(text);
      case FieldType::kSeconds:
        return parse_seconds(text);
      case FieldType::kBytes:
        return parse_bytes(text);
      case FieldType::kFlops:
        return parse_flops(text);
      default:
        break;
    }
  } catch (const InputError&) {
    refuse(path, type, text);
  }
  const auto number = parse_number(text);
  if (!number) refuse(path, type, text);
  return *number;
}

}  // namespace

bool is_number(FieldType type) {
  return type != FieldType::kBoolean && type != FieldType::kChoice && type != FieldType::kText &&
         type != FieldType::kObject;
}

nlohmann::json json_of_number(std::string_view path, FieldType type, double number) {
  if (type != FieldType::kInteger) return number;
  if (!(std::abs(number) < 0x1p62) || number != std::floor(number))
    refuse(path, type, fmt::format("{}", number));
  return static_cast<std::int64_t>(number);
}

nlohmann::json json_of_text(std::string_view path, FieldType type, std::string_view text) {
  text = trim(text);
  if (text.empty()) refuse(path, type, text);
  if (text.front() == '{' || text.front() == '[') return JsonNode::parse(text, std::string(path)).to_json();
  if (type == FieldType::kBoolean) {
    if (text != "true" && text != "false") refuse(path, type, text);
    return text == "true";
  }
  if (!is_number(type)) return std::string(text);
  if (type == FieldType::kInteger) {
    if (const auto whole = parse_int(text)) return static_cast<std::int64_t>(*whole);
    // Lengths of sequences use multiples of 1,024 tokens, other counts of a thousand: "8k", "1M".
    const bool length = path.ends_with("seq");
    for (const auto& [letter, times] : {std::pair{'k', length ? 1024 : 1000},
                                        {'K', length ? 1024 : 1000},
                                        {'M', length ? 1 << 20 : 1000000}})
      if (text.back() == letter)
        if (const auto whole = parse_int(text.substr(0, text.size() - 1));
            whole && std::abs(*whole) < 1LL << 40)
          return static_cast<std::int64_t>(*whole) * times;
  }
  return json_of_number(path, type, number_of(path, type, text));
}

}  // namespace moesim::models
