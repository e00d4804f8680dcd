// Makers of the table's fields by type, and the sections of the table. fields.cc joins them; others use
// fields.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "models/workload/fields.h"
#include "models/workload/scenario.h"

namespace moesim::models::fields {

// The sections, in the table's order.
std::vector<Field> subject_fields();  // model, machine, dispatchers, routing
std::vector<Field> step_fields();     // recomputation, framework, precision, schedule, launches, overload log
std::vector<Field> overlap_fields();  // overlap within a step, kernels, types, order of ranks
std::vector<Field> scope_fields();    // scope, placement of experts
std::vector<Field> sharding_fields();   // of parameters, gradients and optimizer state
std::vector<Field> optimizer_fields();  // optimizer, loss, adapters
std::vector<Field> fault_fields();
std::vector<Field> parallel_fields();   // mesh, sizes, batch
std::vector<Field> question_fields();   // experts per token, training, seed, rent
std::vector<Field> ownership_fields();  // of a machine that is bought

using nlohmann::ordered_json;

inline constexpr double kMaxSize = 2147483648.0;  // 2^31
inline constexpr std::string_view kModel = "Model", kPlan = "Plan", kRouting = "Routing",
                                  kMachine = "Machine", kDispatcher = "Dispatcher", kStep = "Step",
                                  kQuestion = "Question", kMoney = "Money";
inline constexpr std::array<std::string_view, 2> kScopes{"layer", "step"};

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

template <auto... Path>
void take_member(Scenario& to, const Scenario& from) {
  member<Path...>(to) = member<Path...>(from);
}

template <auto... Path>
Field integer(Field f) {
  f.type = FieldType::kInteger;
  f.read = [](const Field& field, Scenario& s, const JsonNode& value) {
    auto& to = member<Path...>(s);
    to = static_cast<std::remove_reference_t<decltype(to)>>(
        value.integer(static_cast<std::int64_t>(field.low), static_cast<std::int64_t>(field.high)));
  };
  f.write = [](const Scenario& s) -> ordered_json { return member<Path...>(s); };
  f.take = take_member<Path...>;
  return f;
}

// An optional integer: 0 is none and is not written.
template <auto... Path>
Field optional_integer(Field f) {
  f = integer<Path...>(f);
  f.write = [](const Scenario& s) -> ordered_json {
    return member<Path...>(s) > 0 ? ordered_json(member<Path...>(s)) : ordered_json();
  };
  return f;
}

template <auto... Path>
Field number(Field f) {
  f.type = FieldType::kNumber;
  f.read = [](const Field& field, Scenario& s, const JsonNode& value) {
    member<Path...>(s) = value.number(field.low, field.high);
  };
  f.write = [](const Scenario& s) -> ordered_json { return member<Path...>(s); };
  f.take = take_member<Path...>;
  return f;
}

// An optional number: 0 is none and is not written.
template <auto... Path>
Field optional_number(Field f) {
  f = number<Path...>(f);
  f.write = [](const Scenario& s) -> ordered_json {
    return member<Path...>(s) > 0 ? ordered_json(member<Path...>(s)) : ordered_json();
  };
  return f;
}

template <auto... Path>
Field boolean(Field f) {
  f.type = FieldType::kBoolean;
  f.read = [](const Field&, Scenario& s, const JsonNode& value) { member<Path...>(s) = value.boolean(); };
  f.write = [](const Scenario& s) -> ordered_json { return member<Path...>(s); };
  f.take = take_member<Path...>;
  return f;
}

// Writes nothing: other fields write the value.
inline ordered_json nothing(const Scenario&) { return {}; }

}  // namespace moesim::models::fields
