// Makers of the table's fields by type, and the sections of the table. fields.cc joins them; others use
// fields.h.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/text.h"
#include "models/workload/fields.h"
#include "models/workload/scenario.h"

namespace moesim::models::fields {

// The sections, in the table's order.
std::vector<Field> subject_fields();   // model, machine, dispatchers, routing
std::vector<Field> step_fields();      // recomputation, framework, precision, schedule, launches, overlap
std::vector<Field> scope_fields();     // scope, placement of experts
std::vector<Field> sharding_fields();  // of parameters, gradients and their state; optimizer, adapters
std::vector<Field> fault_fields();
std::vector<Field> parallel_fields();  // mesh, sizes, batch
std::vector<Field> question_fields();  // experts per token, training, seed, rent
std::vector<Field> money_fields();     // of a machine that is rented or bought

using nlohmann::ordered_json;

// A section of --help, and the scopes of its fields.
struct Section {
  std::string_view name;
  Scopes scopes = Scopes::kBoth;
};
inline constexpr Section kModel{"Model"}, kModelOfLayer{"Model", Scopes::kLayer}, kPlan{"Plan"},
    kPlanOfStep{"Plan", Scopes::kStep}, kRouting{"Routing"}, kMachine{"Machine"},
    kMachineOfStep{"Machine", Scopes::kStep}, kDispatcher{"Dispatcher"}, kStep{"Step", Scopes::kStep},
    kQuestion{"Question"}, kMoney{"Money"};

// Returns the location of a path that the value's file contains.
inline std::string beside(const JsonNode& value, const std::string& path) {
  return models::beside(value.place().file, path);
}

// The member at the end of a chain of pointers: member<&Scenario::parallel, &Parallel::tp>(scenario).
template <auto First, auto... Rest, class Object>
auto& member(Object& object) {
  if constexpr (sizeof...(Rest) == 0)
    return object.*First;
  else
    return member<Rest...>(object.*First);
}

inline const Scenario& defaults() {
  static const Scenario kDefaults;
  return kDefaults;
}
// Whether the value is not the default.
inline bool changed(const Field& field, const Scenario& s) {
  return field.same ? !field.same(s, defaults()) : field.value(field, s) != field.value(field, defaults());
}
inline bool never(const Field&, const Scenario&) { return false; }

// A field with a member of its own. What a maker below sets stays where `more` has it already.
template <auto... Path>
Field field(FieldType type, std::string_view path, std::string_view flag, const Section& section,
            std::string_view help, Field more) {
  using Member = std::remove_cvref_t<decltype(member<Path...>(std::declval<Scenario&>()))>;
  more.type = type;
  more.path = path;
  more.flag = flag;
  more.group = section.name;
  more.scopes = section.scopes;
  more.help = help;
  if (!is_number(type) && type != FieldType::kObject) more.low = more.high = 0;
  if (!more.take)
    more.take = [](Scenario& to, const Scenario& from) { member<Path...>(to) = member<Path...>(from); };
  if constexpr (std::equality_comparable<Member>)
    if (!more.same)
      more.same = [](const Scenario& one, const Scenario& other) {
        return member<Path...>(one) == member<Path...>(other);
      };
  if constexpr (std::is_constructible_v<ordered_json, Member>)
    if (!more.value)
      more.value = [](const Field&, const Scenario& s) -> ordered_json { return member<Path...>(s); };
  return more;
}

template <auto... Path>
Field integer(std::string_view path, std::string_view flag, const Section& section, std::string_view help,
              Field more = {}) {
  static const std::string kDefault = std::to_string(member<Path...>(defaults()));
  if (more.fallback.empty()) more.fallback = kDefault;
  more.read = [](const Field& f, Scenario& s, const JsonNode& value) {
    auto& to = member<Path...>(s);
    to = static_cast<std::remove_reference_t<decltype(to)>>(
        value.integer(static_cast<std::int64_t>(f.low), static_cast<std::int64_t>(f.high)));
  };
  return field<Path...>(FieldType::kInteger, path, flag, section, help, std::move(more));
}

// A number that is not written where it is the default, 0: none.
template <auto... Path>
Field number(std::string_view path, std::string_view flag, const Section& section, std::string_view help,
             Field more) {
  more.read = [](const Field& f, Scenario& s, const JsonNode& value) {
    member<Path...>(s) = value.number(f.low, f.high);
  };
  more.written = changed;
  return field<Path...>(FieldType::kNumber, path, flag, section, help, std::move(more));
}

template <auto... Path>
Field boolean(std::string_view path, std::string_view flag, const Section& section, std::string_view help,
              Field more = {}) {
  more.fallback = member<Path...>(defaults()) ? "true" : "false";
  more.read = [](const Field&, Scenario& s, const JsonNode& value) { member<Path...>(s) = value.boolean(); };
  return field<Path...>(FieldType::kBoolean, path, flag, section, help, std::move(more));
}

// Returns the words of a path for messages about its value: "overload report".
std::string words_of(std::string_view path);

// One of the choices, which stand in the order of the member's values.
template <auto... Path>
Field choice(std::span<const std::string_view> choices, std::string_view path, std::string_view flag,
             const Section& section, std::string_view help, Field more = {}) {
  more.choices = choices;
  more.fallback = choices[static_cast<std::size_t>(member<Path...>(defaults()))];
  if (!more.read)
    more.read = [](const Field& f, Scenario& s, const JsonNode& value) {
      auto& to = member<Path...>(s);
      to = static_cast<std::remove_reference_t<decltype(to)>>(
          index_named(words_of(f.path), value.string(), f.choices));
    };
  more.value = [](const Field& f, const Scenario& s) -> ordered_json {
    return f.choices[static_cast<std::size_t>(member<Path...>(s))];
  };
  return field<Path...>(FieldType::kChoice, path, flag, section, help, std::move(more));
}

// One of an enum's names.
template <auto... Path>
Field enum_field(std::string_view path, std::string_view flag, const Section& section, std::string_view help,
                 Field more = {}) {
  using Enum = std::remove_cvref_t<decltype(member<Path...>(std::declval<Scenario&>()))>;
  return choice<Path...>(kNamesOf<Enum>, path, flag, section, help, std::move(more));
}

// A text of a type that reads and writes itself.
template <auto... Path>
Field text(std::string_view path, std::string_view flag, const Section& section, std::string_view help,
           Field more) {
  using Type = std::remove_cvref_t<decltype(member<Path...>(std::declval<Scenario&>()))>;
  if (!more.read)
    more.read = [](const Field&, Scenario& s, const JsonNode& value) {
      member<Path...>(s) = Type::parse(value.string());
    };
  more.value = [](const Field&, const Scenario& s) -> ordered_json { return member<Path...>(s).text(); };
  return field<Path...>(FieldType::kText, path, flag, section, help, std::move(more));
}

}  // namespace moesim::models::fields
