// Values of every field of a scenario, as text and as JSON, for tests that try them all.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/workload/fields.h"
#include "tests/cases.h"

namespace moesim::models::testing {

struct FieldSample {
  std::string text;  // as on a command line
  nlohmann::json json;
};

// Samples of a field; those of numbers, switches and choices follow from the table. A field of another type
// that has none here fails the test.
inline std::vector<FieldSample> samples_of(const Field& field) {
  const auto same = [](const std::string& text) { return FieldSample{text, text}; };
  static const nlohmann::json kSamples = moesim::testing::cases("models/field_samples.json", "samples");
  std::vector<FieldSample> samples;
  if (const auto found = kSamples.find(field.path); found != kSamples.end()) {
    for (const nlohmann::json& one : *found)
      if (one.is_object() && one.contains("text"))
        samples.push_back({one["text"], one["json"]});
      else
        samples.push_back(one.is_string() ? same(one) : FieldSample{one.dump(), one});
    return samples;
  }
  if (field.type == FieldType::kBoolean) samples = {{"true", true}, {"false", false}};
  for (const std::string_view choice : field.choices) samples.push_back(same(std::string(choice)));
  if (field.type == FieldType::kInteger)
    for (const double value : {field.low, field.low + 1, std::min(field.high, field.low + 6)})
      samples.push_back({std::to_string(static_cast<std::int64_t>(value)), static_cast<std::int64_t>(value)});
  if (field.type == FieldType::kNumber)
    for (const double share : {0.3, 0.01}) {
      const double value = field.low + share * (std::min(field.high, 100.0) - field.low);
      const nlohmann::json json = value;
      samples.push_back({json.dump(), json});
    }
  EXPECT_FALSE(samples.empty()) << "no sample of the field " << field.path
                                << " in tests/models/field_samples.json";
  return samples;
}

}  // namespace moesim::models::testing
