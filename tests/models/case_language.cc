#include "tests/models/case_language.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "base/text.h"

namespace moesim::models::testing {

namespace {

// A parser of formulas that evaluates while it reads.
class Formula {
 public:
  Formula(std::string_view text, const Figures& figures) : text_(text), rest_(text), figures_(figures) {}

  Value sum() {
    Value value = product();
    for (;;) {
      if (take('+'))
        value = each(value, product(), [](double a, double b) { return a + b; });
      else if (take('-'))
        value = each(value, product(), [](double a, double b) { return a - b; });
      else
        return value;
    }
  }

  bool take_word(std::string_view word) {
    skip();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  void finish() {
    skip();
    if (!rest_.empty()) fail("the end");
  }

 private:
  template <class Function>
  Value each(const Value& a, const Value& b, Function function) {
    const std::size_t n = std::max(a.numbers.size(), b.numbers.size());
    if (a.is_text || b.is_text || (a.numbers.size() != n && a.numbers.size() != 1) ||
        (b.numbers.size() != n && b.numbers.size() != 1))
      fail("numbers of the same count");
    Value value;
    for (std::size_t i = 0; i < n; ++i)
      value.numbers.push_back(
          function(a.numbers[a.numbers.size() == 1 ? 0 : i], b.numbers[b.numbers.size() == 1 ? 0 : i]));
    return value;
  }

  Value product() {
    Value value = factor();
    for (;;) {
      if (take('*'))
        value = each(value, factor(), [](double a, double b) { return a * b; });
      else if (take('/'))
        value = each(value, factor(), [](double a, double b) { return a / b; });
      else if (take('%'))
        value = each(value, factor(), [](double a, double b) { return std::fmod(a, b); });
      else if (take('^'))
        value = each(value, factor(), [](double a, double b) { return std::pow(a, b); });
      else
        return value;
    }
  }

  Value factor() {
    skip();
    if (take('-')) return each(Value::of(0), factor(), [](double a, double b) { return a - b; });
    if (take('(')) {
      Value value = sum();
      expect(')');
      return value;
    }
    if (take('[')) return list(']');
    if (!rest_.empty() && std::isdigit(static_cast<unsigned char>(rest_.front()))) return number();
    Path path{{word(), {}}};
    if (take('(')) return call(path.front().name, list(')'));
    for (;;) {
      if (take('.')) {
        path.push_back({word(), {}});
      } else if (take('[')) {
        const bool behind = take('-');
        path.back().at.push_back((behind ? -1 : 1) * static_cast<int>(number().numbers[0]));
        expect(']');
      } else {
        break;
      }
    }
    Value value = figures_(path);
    for (const int at : path.back().at) {
      const auto count = static_cast<int>(value.numbers.size());
      if (at < -count || at >= count) fail("an index of a figure");
      value = Value::of(value.numbers[static_cast<std::size_t>(at < 0 ? count + at : at)]);
    }
    return value;
  }

  Value list(char end) {
    Value all;
    while (!take(end)) {
      const Value one = sum();
      if (one.is_text) return expect(end), one;
      all.numbers.insert(all.numbers.end(), one.numbers.begin(), one.numbers.end());
      take(',');
    }
    return all;
  }

  Value call(const std::string& name, const Value& of) {
    const std::vector<double>& n = of.numbers;
    if (name == "size") return Value::of(static_cast<double>(of.is_text ? of.texts.size() : n.size()));
    if (n.empty()) fail("numbers");
    if (name == "sum") return Value::of(std::accumulate(n.begin(), n.end(), 0.0));
    if (name == "max") return Value::of(*std::max_element(n.begin(), n.end()));
    if (name == "min") return Value::of(*std::min_element(n.begin(), n.end()));
    if (name == "count") return Value::of(static_cast<double>(std::count(n.begin(), n.end() - 1, n.back())));
    if (name == "log") return Value::of(std::log(n[0]));
    fail("size, sum, max, min, count or log");
  }

  Value number() {
    const char* begin = rest_.data();
    char* end = nullptr;
    const double value = std::strtod(begin, &end);
    rest_.remove_prefix(static_cast<std::size_t>(end - begin));
    return Value::of(value);
  }

  std::string word() {
    skip();
    std::size_t size = 0;
    if (take('\'')) {
      size = rest_.find('\'');
      if (size == std::string_view::npos) fail("a closing quote");
      const std::string name(rest_.substr(0, size));
      rest_.remove_prefix(size + 1);
      return name;
    }
    while (size < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[size])) || rest_[size] == '_'))
      ++size;
    if (size == 0) fail("a number or a figure");
    const std::string name(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return name;
  }

  void skip() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  bool take(char c) {
    skip();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("'{}'", c));
  }
  [[noreturn]] void fail(const std::string& expected) {
    throw InputError(fmt::format("formula '{}': found '{}', expected {}", text_, rest_, expected));
  }

  std::string_view text_, rest_;
  const Figures& figures_;
};

bool alike(double a, double b) {
  return a == b ||
         std::abs(a - b) <= 4 * std::numeric_limits<double>::epsilon() * std::max(std::abs(a), std::abs(b));
}

// What a value says about numbers.
struct Expected {
  std::string relation = "==";
  Value value;
  double tolerance = 0;

  bool holds(double found, double expected) const {
    if (relation == ">=") return found >= expected;
    if (relation == "<=") return found <= expected;
    if (relation == ">") return found > expected;
    if (relation == "<") return found < expected;
    if (relation == "!=") return found != expected;
    return tolerance > 0 ? std::abs(found - expected) <= tolerance : alike(found, expected);
  }
};

Expected expected_numbers(const JsonNode& node, const Figures& figures) {
  Expected expected;
  if (node.is_boolean()) {
    expected.value = Value::of(node.boolean() ? 1 : 0);
  } else if (node.is_number()) {
    expected.value = Value::of(node.number());
  } else if (node.is_array()) {
    for (const JsonNode& item : node.items()) {
      const Expected one = expected_numbers(item, figures);
      expected.value.numbers.insert(expected.value.numbers.end(), one.value.numbers.begin(),
                                    one.value.numbers.end());
    }
  } else {
    const std::string text = node.string();
    Formula formula(text, figures);
    for (const char* relation : {">=", "<=", "!=", ">", "<"})
      if (formula.take_word(relation)) {
        expected.relation = relation;
        break;
      }
    expected.value = formula.sum();
    if (formula.take_word("within")) expected.tolerance = formula.sum().numbers.at(0);
    formula.finish();
  }
  return expected;
}

std::string problem(const Value& found, const JsonNode& node, const Figures& figures) {
  if (found.is_text) {
    std::vector<std::string> texts;
    if (node.is_array())
      for (const JsonNode& item : node.items()) texts.push_back(item.string());
    else if (node.is_string() && node.string().starts_with("= "))
      texts = evaluated(node.string().substr(2), figures).texts;
    else if (node.is_string())
      texts.push_back(node.string());
    else
      return node.describe();
    const bool same = std::equal(found.texts.begin(), found.texts.end(), texts.begin(), texts.end(), matches);
    return same ? "" : fmt::format("{}", texts);
  }
  const Expected expected = expected_numbers(node, figures);
  const std::vector<double>& n = expected.value.numbers;
  bool same = !expected.value.is_text && !found.numbers.empty() &&
              (n.size() == found.numbers.size() || (n.size() == 1 && !node.is_array()));
  for (std::size_t i = 0; same && i < found.numbers.size(); ++i)
    same = expected.holds(found.numbers[i], n[n.size() == 1 ? 0 : i]);
  if (same || (found.numbers.empty() && n.empty())) return "";
  return fmt::format("{} {}{}", expected.relation, expected.value.str(),
                     expected.tolerance > 0 ? fmt::format(" within {}", expected.tolerance) : "");
}

}  // namespace

std::string Value::str() const { return is_text ? fmt::format("{}", texts) : fmt::format("{}", numbers); }

Value evaluated(std::string_view formula, const Figures& figures) {
  Formula parser(formula, figures);
  Value value = parser.sum();
  parser.finish();
  return value;
}

void expect_figure(const std::string& key, const JsonNode& expected, const Figures& figures) {
  try {
    const Value found = evaluated(key, figures);
    const std::string wanted = problem(found, expected, figures);
    if (!wanted.empty())
      ADD_FAILURE() << expected.place().str() << ": " << key << ": found " << found.str() << ", expected "
                    << wanted;
  } catch (const std::exception& error) {
    ADD_FAILURE() << expected.place().str() << ": " << key << ": " << error.what();
  }
}

bool matches(std::string_view text, std::string_view expected) {
  const bool before = expected.starts_with("..."), after = expected.size() > 3 && expected.ends_with("...");
  if (before) expected.remove_prefix(3);
  if (after) expected.remove_suffix(3);
  if (before && after) return text.find(expected) != std::string_view::npos;
  return before ? text.ends_with(expected) : after ? text.starts_with(expected) : text == expected;
}

}  // namespace moesim::models::testing
