// Arithmetic on decimal numbers, and tests.
#include <fmt/format.h>

#include <cctype>
#include <functional>

#include "base/text.h"
#include "tools/moesim/read/job_file.h"
#include "tools/moesim/read/shell_run.h"

namespace moesim::tools {

namespace {

using Number = std::optional<std::int64_t>;

// An expression without assignments. An unknown variable makes the result unknown.
class Sum {
 public:
  Sum(std::string_view text, std::function<Number(const std::string&)> value)
      : text_(text), value_(std::move(value)) {}

  // Returns false for anything else.
  bool read(Number& result) {
    result = choice(0);
    return ok_ && at_ == text_.size();
  }
  bool by_zero() const { return by_zero_; }

 private:
  bool take(std::string_view sign) {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    if (!text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }
  Number choice(int depth) {
    const Number which = binary(0, depth);
    if (!take("?")) return which;
    const Number yes = choice(depth + 1);
    ok_ = take(":") && ok_;
    const Number no = choice(depth + 1);
    return !which ? which : *which != 0 ? yes : no;
  }
  // Operators by precedence, loosest first.
  Number binary(std::size_t level, int depth) {
    static const std::vector<std::vector<std::string_view>> kLevels{
        {"||"}, {"&&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}};
    if (level == kLevels.size()) return unary(depth);
    Number left = binary(level + 1, depth);
    const auto& signs = kLevels[level];
    for (auto op = signs.begin(); ok_ && op != signs.end();) {
      if (!take(*op)) {
        ++op;
        continue;
      }
      const Number right = binary(level + 1, depth);
      left = left && right ? result(*op, *left, *right) : Number();
      op = signs.begin();
    }
    return left;
  }
  Number result(std::string_view op, std::int64_t a, std::int64_t b) {
    const bool divides = op == "/" || op == "%";
    by_zero_ = by_zero_ || (divides && b == 0);
    if (divides) ok_ = ok_ && b != 0 && (b != -1 || a != INT64_MIN);
    if (!ok_) return std::nullopt;
    if (op == "||") return a != 0 || b != 0;
    if (op == "&&") return a != 0 && b != 0;
    if (op == "==") return a == b;
    if (op == "!=") return a != b;
    if (op == "<=") return a <= b;
    if (op == ">=") return a >= b;
    if (op == "<") return a < b;
    if (op == ">") return a > b;
    if (divides) return op == "/" ? a / b : a % b;
    std::int64_t r = 0;
    ok_ = !(op == "+"   ? __builtin_add_overflow(a, b, &r)
            : op == "-" ? __builtin_sub_overflow(a, b, &r)
                        : __builtin_mul_overflow(a, b, &r));
    return r;
  }
  Number unary(int depth) {
    if (depth > kMaxJobFileDepth) ok_ = false;
    if (!ok_) return std::nullopt;
    if (take("-")) {
      const Number v = unary(depth + 1);
      return v && *v != INT64_MIN ? Number(-*v) : std::nullopt;
    }
    if (take("!")) {
      const Number v = unary(depth + 1);
      return v ? Number(*v == 0) : v;
    }
    if (take("(")) {
      const Number v = choice(depth + 1);
      ok_ = take(")") && ok_;
      return v;
    }
    return atom();
  }
  Number atom() {
    take("");
    if (text_.substr(at_).starts_with(kShellUnknown)) {
      at_ = std::min(text_.find(kShellUnknown, at_ + 1), text_.size() - 1) + 1;
      ok_ = take("") && (at_ == text_.size() ||
                         std::string_view("+-*/%)<>=!&|?:").find(text_[at_]) != std::string_view::npos);
      return std::nullopt;
    }
    const std::string_view rest = text_.substr(at_);
    const std::size_t name = shell_name_length(rest);
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const std::string word(rest.substr(0, std::max(name, digits)));
    at_ += word.size();
    take("");
    if (name > 0) return value_(word);
    const auto v = parse_int(word);
    ok_ = v && std::to_string(*v) == word;
    return ok_ ? Number(*v) : std::nullopt;
  }

  std::string_view text_;
  std::function<Number(const std::string&)> value_;
  std::size_t at_ = 0;
  bool ok_ = true, by_zero_ = false;
};

constexpr std::array<std::string_view, 6> kComparisons{"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};

std::optional<bool> compared(std::string_view op, const Number& a, const Number& b) {
  if (!a || !b) return std::nullopt;
  if (op == "-eq") return *a == *b;
  if (op == "-ne") return *a != *b;
  if (op == "-lt") return *a < *b;
  if (op == "-le") return *a <= *b;
  return op == "-gt" ? *a > *b : *a >= *b;
}

std::optional<bool> turned(const std::optional<bool>& a) { return a ? std::optional(!*a) : a; }

// -z and -n; tests of files are unknown.
std::optional<bool> unary_test(std::string_view op, const std::string& word) {
  if ((op != "-z" && op != "-n") || (!word.empty() && may_be_empty(word))) return std::nullopt;
  return word.empty() == (op == "-z");
}

}  // namespace

ShellRun::Number ShellRun::decimal(std::string_view text) {
  const auto v = parse_int(text);
  return v && std::to_string(*v) == text ? Number(*v) : std::nullopt;
}

ShellRun::Number ShellRun::value_of(const std::string& name) {
  const Found found = find(name, "", "$" + name);
  if (found.outside) return std::nullopt;
  const std::string text = found.items.empty() ? "" : found.items[0];
  if (!found.set && state_.nounset) refuse("$" + name + ", which is not set under set -u,");
  if (has_unknown(text)) return std::nullopt;
  const Number v = text.empty() ? Number(0) : decimal(text);
  if (!v) refuse(fmt::format("a sum of {}, which is {},", name, in_quotes(one_line(text))));
  return v;
}

// Evaluates an expression, or one assignment: NAME = expression, NAME += expression, NAME++.
ShellRun::Number ShellRun::arithmetic(const std::string& all) {
  std::string_view text = trim(all);
  count(text.size());
  if (text.empty()) return 0;
  const std::string shown = in_quotes(one_line(script_.shown(all)));
  const bool first = text.starts_with("++") || text.starts_with("--");
  const char step = text[0];
  if (first) text = trim(text.substr(2));
  const std::size_t n = shell_name_length(text);
  const std::string name(text.substr(0, n));
  const std::string_view rest = trim(text.substr(n));
  const bool last = n > 0 && !first && (rest == "++" || rest == "--");
  const bool plain = n > 0 && !first && rest.starts_with('=') && !rest.starts_with("==");
  const bool with = n > 0 && !first && rest.size() > 2 && rest[1] == '=' &&
                    std::string_view("+-*/%").find(rest[0]) != std::string_view::npos;
  if (first && (n == 0 || !rest.empty())) refuse("the arithmetic " + shown);
  std::string made(text);
  if (first || last) made = fmt::format("{}{}1", name, first ? step : rest[0]);
  if (plain) made = rest.substr(1);
  if (with) made = fmt::format("{}{}({})", name, rest[0], rest.substr(2));
  const Number old = last ? value_of(name) : Number();
  Number result;
  Sum sum(made, [this](const std::string& one) { return value_of(one); });
  const bool read = sum.read(result);
  if (sum.by_zero()) fail("a division by 0", "another divisor");
  if (!read) refuse("the arithmetic " + shown);
  if (!first && !last && !plain && !with) return result;
  set_variable(name, result ? std::to_string(*result) : unknown("$" + name, shown + " cannot be told"));
  return last ? old : result;
}

// Evaluates like `test`, by the number of words.
ShellRun::Truth ShellRun::test_words(std::span<const std::string> w) {
  if (std::ranges::any_of(w, [](const std::string& x) { return !x.empty() && may_be_empty(x); }))
    return std::nullopt;
  if (w.empty()) return false;
  if (w.size() == 1) return !w[0].empty();
  if (w.size() == 2) return w[0] == "!" ? Truth(w[1].empty()) : unary_test(w[0], w[1]);
  if (w.size() == 3 && (w[1] == "=" || w[1] == "==" || w[1] == "!=")) {
    if (has_unknown(w[0]) || has_unknown(w[2])) return std::nullopt;
    return (w[0] == w[2]) == (w[1] != "!=");
  }
  if (w.size() == 3 && among(kComparisons, w[1])) return compared(w[1], decimal(w[0]), decimal(w[2]));
  if (w[0] == "!" && (w.size() == 4 || (w.size() == 3 && w[1].starts_with('-'))))
    return turned(test_words(w.subspan(1)));
  return std::nullopt;
}

// Evaluates [[ ]]: tests joined by `sign`, "||" or "&&". `skip`: bash would not evaluate this part.
ShellRun::Truth ShellRun::double_test(Tokens& t, std::string_view sign, bool skip, int depth) {
  const bool wins = sign == "||";
  const auto next = [&](bool skipped) {
    return wins ? double_test(t, "&&", skipped, depth) : double_one(t, skipped, depth);
  };
  Truth truth = next(skip);
  while (t.raw() == sign) {
    ++t.at;
    const Truth right = next(skip || truth == Truth(wins));
    truth = truth == Truth(wins) || right == Truth(wins) ? Truth(wins)
            : truth && right                             ? Truth(!wins)
                                                         : Truth();
  }
  return truth;
}

ShellRun::Truth ShellRun::double_one(Tokens& t, bool skip, int depth) {
  if (depth > kMaxJobFileDepth) refuse("a test 64 deep");
  if (t.raw() == "!") {
    ++t.at;
    return turned(double_one(t, skip, depth + 1));
  }
  if (t.raw() == "(") {
    ++t.at;
    const Truth a = double_test(t, "||", skip, depth + 1);
    if (t.raw() != ")") refuse("a test in parentheses");
    ++t.at;
    return a;
  }
  std::vector<std::string_view> raws;
  while (t.at < t.words.size() && t.raw() != "&&" && t.raw() != "||" && t.raw() != ")")
    raws.push_back(t.words[t.at++].raw);
  if (skip) return std::nullopt;
  if (raws.size() == 1) return unary_test("-n", value(raws[0]));
  if (raws.size() == 2) {
    assuming_ = raws[0] == "-z" || raws[0] == "-n";
    const std::string word = value(raws[1]);
    assuming_ = false;
    return unary_test(raws[0], word);
  }
  if (raws.size() != 3)
    refuse(raws.empty() ? "an empty test" : "the test [[ " + std::string(raws[0]) + " ]]");
  return double_pair(raws[0], raws[1], raws[2]);
}

ShellRun::Truth ShellRun::double_pair(std::string_view a, std::string_view op, std::string_view b) {
  const std::string left = value(a);
  if (op == "=" || op == "==" || op == "!=") {
    const Truth fits = shell_match(pattern(b), left);
    return op == "!=" ? turned(fits) : fits;
  }
  const std::string right = value(b);
  if (!among(kComparisons, op)) return std::nullopt;
  for (const std::string& side : {left, right})
    if (!decimal(side) && !has_unknown(side)) refuse("a comparison of " + in_quotes(side));
  return compared(op, decimal(left), decimal(right));
}

}  // namespace moesim::tools
