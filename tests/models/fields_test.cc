// The table of a scenario's fields: what is read is what is written, nothing that was given is ignored, and
// no field is left out of anything that comes out of the table.
#include "models/workload/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/workload/scenario.h"
#include "tests/message_of.h"
#include "tests/models/field_samples.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using nlohmann::json;
using nlohmann::ordered_json;
using testing::FieldSample;
using ::testing::HasSubstr;
using testing::samples_of;

Scenario scenario_of(const json& value) { return Scenario::parse(JsonNode::from_json(value, "s.json")); }
Scenario scenario_in(const std::string& text) { return Scenario::parse(JsonNode::parse(text, "s.json")); }

void put(json& object, std::string_view path, const json& value) {
  json* at = &object;
  std::size_t from = 0;
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', from)) {
    at = &(*at)[std::string(path.substr(from, dot - from))];
    from = dot + 1;
  }
  (*at)[std::string(path.substr(from))] = value;
}

// A file in which the field says something: with the scope that uses it, and what it goes with.
json file_for(const Field& field) {
  json file{{"scope", field.used_in(Scopes::kLayer) ? "layer" : "step"}};
  if (field.path == "faults.seed") put(file, "faults.jitter", 0.1);
  if (field.path == "scope") file.erase("scope");
  if (field.path == "training.newton_schulz_steps") put(file, "training.muon", true);
  if (field.path == "training.lora_modules") put(file, "training.lora", 8);
  return file;
}

TEST(Fields, HaveDistinctPathsFlagsAndAHelp) {
  std::set<std::string_view> paths, flags;
  for (const Field& field : scenario_fields()) {
    EXPECT_TRUE(paths.insert(field.path).second) << field.path;
    EXPECT_TRUE(field.also.empty() || paths.insert(field.also).second) << field.also;
    EXPECT_TRUE(field.flag.empty() || flags.insert(field.flag).second) << field.flag;
    EXPECT_FALSE(field.help.empty()) << field.path;
    EXPECT_FALSE(field.group.empty()) << field.path;
    EXPECT_EQ(find_field(field.path), &field);
    EXPECT_TRUE(field.read && field.take && (field.value || field.written)) << field.path;
    EXPECT_EQ(is_number(field.type), field.low < field.high && field.type != FieldType::kObject)
        << field.path;
    EXPECT_EQ(field.type == FieldType::kChoice, !field.choices.empty()) << field.path;
  }
  EXPECT_EQ(find_field("parallel"), nullptr);
}

TEST(Fields, TheDefaultIsWhatAnEmptyScenarioHas) {
  int checked = 0;
  for (const Field& field : scenario_fields()) {
    const ordered_json written = field.write(Scenario());
    if (field.fallback.empty() || written.is_null()) continue;
    Scenario s;
    set_field(field, s, field.fallback);
    EXPECT_EQ(field.write(s), written) << field.path;
    ++checked;
  }
  EXPECT_GT(checked, 25);
}

TEST(Fields, TextAndJsonSetTheSame) {
  for (const Field& field : scenario_fields()) {
    for (const FieldSample& sample : samples_of(field)) {
      SCOPED_TRACE(std::string(field.path) + " = " + sample.text);
      json file = file_for(field);
      Scenario by_text = scenario_of(file);
      set_field(field, by_text, sample.text);
      put(file, field.path, sample.json);
      const Scenario by_file = scenario_of(file);
      EXPECT_EQ(to_json(by_text), to_json(by_file));
      EXPECT_EQ(by_text.given, by_file.given);
    }
  }
}

// Every field that says something stands in what is written (null is only what others write), and copying it
// alone makes the copy equal.
TEST(Fields, AreWrittenAndCopied) {
  for (const Field& field : scenario_fields()) {
    std::set<std::string> written;
    for (const FieldSample& sample : samples_of(field)) {
      SCOPED_TRACE(std::string(field.path) + " = " + sample.text);
      json file = file_for(field);
      const Scenario before = scenario_of(file);
      put(file, field.path, sample.json);
      const Scenario s = scenario_of(file);
      written.insert(to_json(s).dump());
      Scenario copy = before;
      field.take(copy, s);
      copy.given = s.given;
      const json training = to_json(s)["training"];
      if (field.path == "training.sharding" &&
          (training.contains("shard_group") || training.contains("reshard_after_forward")))
        continue;  // with its options
      EXPECT_EQ(to_json(copy), to_json(s));
    }
    const std::size_t other_words = field.path == "training.schedule" ? 1 : 0;  // interleaved
    EXPECT_EQ(written.size(), samples_of(field).size() - other_words)
        << field.path << " is written alike for several samples";
  }
}

TEST(Fields, NumbersKeepToTheirBounds) {
  int checked = 0;
  for (const Field& field : scenario_fields()) {
    if (!is_number(field.type) || field.path == "seed") continue;
    for (const double value : {field.low - 1, field.high + 1}) {
      if (field.high > 0x1p60 && value > 0) continue;
      json file = file_for(field);
      put(file, field.path, value);
      EXPECT_THAT(message_of([&] { scenario_of(file); }), HasSubstr("expected"))
          << field.path << " " << value;
      ++checked;
    }
  }
  EXPECT_GT(checked, 30);
}

TEST(Fields, WhatTheScopeDoesNotUseIsRefused) {
  int refused = 0;
  for (const Field& field : scenario_fields())
    for (const char* scope : {"layer", "step"}) {
      const bool used = field.used_in(std::string(scope) == "step" ? Scopes::kStep : Scopes::kLayer);
      if (field.path == "scope") continue;
      const FieldSample sample = samples_of(field).front();
      json file{{"scope", scope}};
      put(file, field.path, sample.json);
      Scenario s = scenario_of(file);
      const std::string message = message_of([&] { s.resolve(); });
      const std::string refusal = std::string(": found with scope ") + scope +
                                  ", which does not use it; scope " +
                                  (std::string(scope) == "step" ? "layer" : "step") + " does";
      if (used) {
        EXPECT_THAT(message, ::testing::Not(HasSubstr("does not use it"))) << field.path;
      } else {
        EXPECT_EQ(message, std::string(field.path) + refusal);
      }
      refused += used ? 0 : 1;
    }
  EXPECT_GT(refused, 10);
  // Fields set inside of a text count as given.
  Scenario s = scenario_in(R"({"scope": "step", "training": {"sharding": "fsdp:shampoo"}})");
  EXPECT_TRUE(s.gave("training.shampoo"));
  // Fields that were not set do not.
  Scenario quiet = scenario_in(R"({"model": "mixtral-8x7b", "scope": "step", "parallel": {"ep": 8}})");
  EXPECT_NO_THROW(quiet.resolve());
}

ordered_json again(const Scenario& s) { return to_json(scenario_of(json(to_json(s)))); }

bool resolves(const json& file) {
  try {
    scenario_of(file).resolve();
    return true;
  } catch (const InputError&) {
    return false;
  }
}

// Some of the fields, each with one of its samples; of those that do not go with the ones before, few stay.
RC_GTEST_PROP(Fields, WhatIsWrittenReadsBackToTheSame, ()) {
  json file = json::object();
  const bool step = *rc::gen::arbitrary<bool>();
  file["scope"] = step ? "step" : "layer";
  const bool strict = *rc::gen::inRange(0, 8) > 0;
  if (strict) file["model"] = "mixtral-8x7b";
  for (const Field& field : scenario_fields()) {
    if (field.path == "scope" || !field.used_in(step ? Scopes::kStep : Scopes::kLayer)) continue;
    if (field.path == "faults" || field.path == "training.overlap") continue;  // either they or what is below
    if (*rc::gen::inRange(0, 3) > 0) continue;
    const std::vector<FieldSample> samples = samples_of(field);
    json with = file;
    put(with, field.path, samples[*rc::gen::inRange<std::size_t>(0, samples.size())].json);
    if (!strict || resolves(with)) file = std::move(with);
  }
  Scenario s = scenario_of(file);
  RC_LOG() << file.dump();
  const ordered_json written = to_json(s);
  const bool same = again(s) == written;  // RapidCheck cannot show JSON
  RC_ASSERT(same);
  // Whatever reads to_json() of a resolved scenario resolves to the same.
  try {
    s.resolve();
  } catch (const InputError&) {
    RC_TAG("not resolvable");
    return;
  }
  RC_TAG("resolved");
  Scenario back = scenario_of(json(to_json(s)));
  const bool complete = to_json(back) == to_json(s);
  RC_ASSERT(complete);
  back.resolve();
  const bool settled = to_json(back) == to_json(s);
  RC_ASSERT(settled);
  RC_ASSERT(back.parallel.dp == s.parallel.dp);
}

// Values of fields as people write them: units, integers, and numbers with a forgotten unit.

std::string refusal(FieldType type, std::string_view text) {
  return message_of([&] { json_of_text("a.b", type, text); });
}

TEST(FieldValues, TakeUnits) {
  EXPECT_EQ(json_of_text("a", FieldType::kBandwidth, "100GBps"), json(1e11));
  EXPECT_EQ(json_of_text("a", FieldType::kBandwidth, "400Gbps"), json(5e10));
  EXPECT_EQ(json_of_text("a", FieldType::kSeconds, "2us"), json(2e-6));
  EXPECT_EQ(json_of_text("a", FieldType::kBytes, "80GB"), json(8e10));
  EXPECT_EQ(json_of_text("a", FieldType::kFlops, "989TFLOPS"), json(9.89e14));
  // SI without a unit, as tables of results have it.
  EXPECT_EQ(json_of_text("a", FieldType::kBandwidth, "1e11"), json(1e11));
  EXPECT_EQ(json_of_text("a", FieldType::kSeconds, "2e-6"), json(2e-6));
}

TEST(FieldValues, NoMachineHasANumberWhoseUnitWasForgotten) {
  EXPECT_EQ(refusal(FieldType::kBandwidth, "100"),
            "a.b: found '100', expected a bandwidth such as 100GBps or 400Gbps");
  EXPECT_EQ(refusal(FieldType::kSeconds, "2"), "a.b: found '2', expected a time such as 2us");
  EXPECT_EQ(refusal(FieldType::kBytes, "80"), "a.b: found '80', expected a size such as 80GB");
  EXPECT_EQ(refusal(FieldType::kFlops, "989"), "a.b: found '989', expected a rate such as 989TFLOPS");
  EXPECT_EQ(json_of_text("a", FieldType::kBytes, "0"), json(0.0));  // nothing has no unit
}

TEST(FieldValues, WholeNumbersAreWhole) {
  EXPECT_EQ(json_of_text("a", FieldType::kInteger, " 8 "), json(8));
  EXPECT_EQ(json_of_text("a", FieldType::kInteger, "1e3"), json(1000));
  EXPECT_EQ(refusal(FieldType::kInteger, "8.5"), "a.b: found '8.5', expected a whole number");
  EXPECT_EQ(refusal(FieldType::kInteger, "eight"), "a.b: found 'eight', expected a whole number");
  EXPECT_EQ(refusal(FieldType::kInteger, ""), "a.b: found '', expected a whole number");
  EXPECT_EQ(message_of([] { json_of_number("a.b", FieldType::kInteger, 1e20); }),
            "a.b: found '1e+20', expected a whole number");
  EXPECT_EQ(json_of_number("a", FieldType::kNumber, 8.5), json(8.5));
}

TEST(FieldValues, SwitchesTextsAndObjects) {
  EXPECT_EQ(json_of_text("a", FieldType::kBoolean, "true"), json(true));
  EXPECT_EQ(refusal(FieldType::kBoolean, "yes"), "a.b: found 'yes', expected true or false");
  EXPECT_EQ(json_of_text("a", FieldType::kText, "zipf:1.2"), json("zipf:1.2"));
  EXPECT_EQ(json_of_text("a", FieldType::kObject, R"({"x": [1, 2]})"), json::parse(R"({"x": [1, 2]})"));
  EXPECT_NE(refusal(FieldType::kObject, "{\"x\": "), "");
  for (const FieldType type : {FieldType::kBoolean, FieldType::kChoice, FieldType::kText, FieldType::kObject})
    EXPECT_FALSE(is_number(type));
  for (const FieldType type : {FieldType::kInteger, FieldType::kNumber, FieldType::kBandwidth,
                               FieldType::kSeconds, FieldType::kBytes, FieldType::kFlops})
    EXPECT_TRUE(is_number(type));
}

}  // namespace
}  // namespace moesim::models
