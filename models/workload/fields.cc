#include "models/workload/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "base/units.h"
#include "models/hardware/cluster.h"
#include "models/workload/field_makers.h"
#include "models/workload/origin.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

const std::vector<Field>& table() {
  static const std::vector<Field> all = [] {
    std::vector<Field> joined;
    for (const std::vector<Field>& some :
         {fields::subject_fields(), fields::step_fields(), fields::scope_fields(), fields::sharding_fields(),
          fields::fault_fields(), fields::parallel_fields(), fields::question_fields(),
          fields::money_fields()})
      joined.insert(joined.end(), some.begin(), some.end());
    check(joined.size() <= kMostFields, "a bit for every field");
    return joined;
  }();
  return all;
}

// The value as text, for a message.
std::string value_text(const Field& field, const Scenario& s) {
  if (field.path == "model") return s.model.name;
  const nlohmann::ordered_json value = field.value(field, s);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Returns the words of a condition with the values that they name.
std::string filled(std::string_view words, const Field& field, const Scenario& s) {
  std::string text;
  for (std::size_t open; (open = words.find('{')) != std::string_view::npos;) {
    const std::size_t close = words.find('}', open);
    const std::string_view name = words.substr(open + 1, close - open - 1);
    text += words.substr(0, open);
    text += name == "profile" ? s.cluster->profile.name()
                              : value_text(name.empty() ? field : *find_field(name), s);
    words.remove_prefix(close + 1);
  }
  return text + std::string(words);
}

const Condition* failing(const std::vector<Condition>& conditions, const Scenario& s) {
  const auto found = std::ranges::find_if(conditions, [&](const Condition& c) { return !c.holds(s); });
  return found == conditions.end() ? nullptr : &*found;
}

// Returns the first condition that does not hold for a value; nullptr: all hold.
const Condition* broken(const Field& field, const std::vector<Condition>& conditions, const Scenario& s) {
  if (conditions.empty()) return nullptr;
  const bool said = s.given.test(index_of(field));
  if (field.said_itself && !said) return nullptr;
  if (!(field.said_default && said) && !fields::changed(field, s)) return nullptr;
  return failing(conditions, s);
}

}  // namespace

nlohmann::ordered_json Field::write(const Scenario& scenario) const {
  return written && !written(*this, scenario) ? nlohmann::ordered_json() : value(*this, scenario);
}

std::vector<WithoutEffect> without_effect(const Scenario& sized) {
  std::vector<WithoutEffect> all;
  for (const Field& field : table()) {
    const Condition* condition = broken(field, field.used_if, sized);
    if (!condition) continue;
    const std::string text = filled(condition->words, field, sized);
    all.push_back({field.path, text.substr(0, text.rfind("; expected ")),
                   fmt::format("{}: found {}", field.path, text), condition->cause});
  }
  return all;
}

void drop_without_effect(Scenario& sized) {
  // broken() does not refuse values that a text for several fields has set. Those without effect become defaults.
  for (const Field& field : table())
    if (field.said_itself && !sized.given.test(index_of(field)) && failing(field.used_if, sized))
      field.take(sized, fields::defaults());
  // A dropped value may leave another one without effect.
  for (std::vector<WithoutEffect> all; !(all = without_effect(sized)).empty();)
    for (const WithoutEffect& one : all) {
      const Field& field = *find_field(one.path);
      field.take(sized, fields::defaults());
      sized.given.reset(index_of(field));
      sized.origins.erase(one.path);
    }
}

void check_valid(const Scenario& scenario) {
  for (const Field& field : table())
    if (const Condition* condition = broken(field, field.valid_if, scenario))
      throw InputError(fmt::format("{}: found {}", field.path, filled(condition->words, field, scenario)));
}

std::span<const Field> scenario_fields() { return table(); }

std::size_t index_of(const Field& field) { return static_cast<std::size_t>(&field - table().data()); }

const Field* find_field(std::string_view path) {
  for (const Field& field : table())
    if (field.path == path) return &field;
  return nullptr;
}

bool Scenario::gave(std::string_view path) const {
  const Field* field = find_field(path);
  check(field != nullptr, "a field of this path");
  return given.test(index_of(*field));
}

void Scenario::give(std::string_view path) {
  const Field* field = find_field(path);
  check(field != nullptr, "a field of this path");
  given.set(index_of(*field));
}

void Scenario::give(std::string_view path, Origin origin) {
  give(path);
  origins.set(path, std::move(origin));
}

Origin Scenario::origin_of(std::string_view path) const {
  if (!gave(path)) return {};
  const Origin* origin = origins.find(path);
  return origin ? *origin : Origin{Origin::Kind::kSaid, ""};
}

const Field* unused_field(const Scenario& scenario) {
  const Scopes scope = scope_of(scenario);
  for (const Field& field : table())
    if (scenario.given.test(index_of(field)) && !field.used_in(scope)) return &field;
  return nullptr;
}

std::string unused_message(const Field& field, std::string_view named, const Scenario& scenario) {
  return fmt::format("{}: found with scope {}, which does not use it; scope {} does", named,
                     name_of(scenario.scope), field.used_in(Scopes::kStep) ? "step" : "layer");
}

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
