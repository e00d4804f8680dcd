// Cases as data: figures of named subjects beside the values that were worked out by hand, as JSON under
// tests/models/cases/.
//
// A key names a figure, "less.saved_bytes", "forward.'tokens'[1].tx" or "sum(forward.'tokens'.tx)". Its value is a
// number (of every rank, where a figure has one for each), an array of them, or a text: of figures that are texts
// the text itself ("..." at an end: whatever stands there; "= figure": that of another), else a formula over numbers, lists, the case's own
// names ("let") and figures, "plain.saved_bytes - [30, 14, 11, 9] * 32", behind a relation ("> ", "<= ", "!= ")
// or before a tolerance ("1 within 0.15").
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.h"

namespace moesim::models::testing {

// Numbers, or texts.
struct Value {
  std::vector<double> numbers;
  std::vector<std::string> texts;
  bool is_text = false;

  static Value of(double number) { return {{number}, {}, false}; }
  static Value of(std::string text) { return {{}, {std::move(text)}, true}; }
  static Value of(std::vector<std::string> texts) { return {{}, std::move(texts), true}; }
  template <class Range>
  static Value of_each(const Range& range) {
    Value value;
    for (const auto& each : range) value.numbers.push_back(static_cast<double>(each));
    return value;
  }
  std::string str() const;
};

// One step of a path, "tokens" of "forward.'tokens'[1].tx" with its indices.
struct Step {
  std::string name;
  std::vector<int> at;
};
using Path = std::vector<Step>;

// Returns the figure of a path; throws InputError where there is none. Indices of the last step that it does not
// clear choose among the figure's numbers.
using Figures = std::function<Value(Path&)>;

// Returns the value of a formula without a relation.
Value evaluated(std::string_view formula, const Figures& figures);

// Fails the running test unless the figure `key` is what `expected` says.
void expect_figure(const std::string& key, const JsonNode& expected, const Figures& figures);

// Whether a text is the expected one, "..." at an end standing for anything.
bool matches(std::string_view text, std::string_view expected);

}  // namespace moesim::models::testing
