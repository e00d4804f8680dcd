#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "tools/moesim/jobs/job_file.h"
#include "tools/moesim/jobs/shell_run.h"

namespace moesim::tools {

ShellRun::Number ShellRun::arithmetic(std::string_view text, int depth) {
  if (depth > kMaxJobFileDepth) fail("sums inside of each other, 64 deep", "fewer");
  charge(text.size());
  Cursor c{text, 0, depth};
  blanks(c);
  if (c.at == text.size()) return 0;
  const Number all = comma(c);
  blanks(c);
  if (c.at < text.size()) not_a_number(c);
  return all;
}

void ShellRun::not_a_number(const Cursor& c) const {
  fail("the sum " + in_quotes(one_line(script_.shown(c.text))), "numbers, variables and signs");
}

void ShellRun::blanks(Cursor& c) {
  while (c.at < c.text.size() && std::isspace(static_cast<unsigned char>(c.text[c.at])) != 0) ++c.at;
}

bool ShellRun::take(Cursor& c, std::string_view sign) {
  blanks(c);
  if (!c.text.substr(c.at).starts_with(sign)) return false;
  c.at += sign.size();
  return true;
}

ShellRun::Number ShellRun::comma(Cursor& c) {
  Number v = choice(c);
  while (take(c, ",")) v = choice(c);
  return v;
}

ShellRun::Number ShellRun::choice(Cursor& c) {
  if (++c.depth > kMaxJobFileDepth) fail("sums inside of each other, 64 deep", "fewer");
  Number which = binary(c, 0);
  blanks(c);
  if (take(c, "?")) {
    const auto branch = [&](bool taken) {
      const Cursor before = c;
      c.skipped = c.skipped || (which && !taken);
      c.unsure = c.unsure || !which;
      const Number v = choice(c);
      c.skipped = before.skipped, c.unsure = before.unsure;
      return v;
    };
    const Number yes = branch(which && *which != 0);
    if (!take(c, ":")) not_a_number(c);
    const Number no = branch(which && *which == 0);
    which = !which ? Number() : *which != 0 ? yes : no;
  }
  --c.depth;
  return which;
}

ShellRun::Number ShellRun::binary(Cursor& c, std::size_t level) {
  static constexpr std::array<std::array<std::string_view, 4>, 11> kLevels{{{"||"},
                                                                            {"&&"},
                                                                            {"|"},
                                                                            {"^"},
                                                                            {"&"},
                                                                            {"==", "!="},
                                                                            {"<=", ">=", "<", ">"},
                                                                            {"<<", ">>"},
                                                                            {"+", "-"},
                                                                            {"*", "/", "%"},
                                                                            {"**"}}};
  if (level == kLevels.size()) return unary(c);
  Number left = binary(c, level + 1);
  for (;;) {
    blanks(c);
    const std::string_view rest = c.text.substr(c.at);
    std::string_view op;
    for (const std::string_view one : kLevels[level]) {
      if (one.empty() || !rest.starts_with(one)) continue;
      const std::string_view more = rest.substr(one.size(), 1);
      // "&" is no "&&", "<" no "<<", "+" no "+=".
      if (one.size() == 1 && (more == one || (more == "=" && one != "<" && one != ">")) && one != "+" &&
          one != "-")
        continue;
      if ((one == "<<" || one == ">>" || one == "+" || one == "-") && more == "=") continue;
      op = one;
      break;
    }
    if (op.empty()) return left;
    c.at += op.size();
    const bool before = c.skipped, unsure = c.unsure;
    if (op == "||" || op == "&&") {
      c.skipped = c.skipped || (left && (*left != 0) == (op == "||"));
      c.unsure = c.unsure || !left;
    }
    const Number right = op == "**" ? binary(c, level) : binary(c, level + 1);
    c.skipped = before, c.unsure = unsure;
    if (op == "||" || op == "&&") {
      if (left && (*left != 0) == (op == "||"))
        left = op == "||" ? 1 : 0;
      else
        left = left && right ? Number(*right != 0 ? 1 : 0) : Number();
      continue;
    }
    left = left && right && !c.skipped ? result(op, *left, *right, c) : c.skipped ? Number(0) : Number();
  }
}

ShellRun::Number ShellRun::result(std::string_view op, std::int64_t a, std::int64_t b,
                                  const Cursor& c) const {
  const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
  const auto number = [](std::uint64_t v) { return static_cast<std::int64_t>(v); };
  if (op == "+") return number(x + y);
  if (op == "-") return number(x - y);
  if (op == "*") return number(x * y);
  if (op == "/" || op == "%") {
    if (b == 0) fail("a division by 0 in " + in_quotes(one_line(c.text)), "another divisor");
    if (b == -1) return op == "/" ? number(0 - x) : 0;
    return op == "/" ? a / b : a % b;
  }
  if (op == "**") {
    if (b < 0) not_a_number(c);
    std::uint64_t power = 1;
    for (std::int64_t i = 0; i < b; ++i) {
      if (i > 1000) return std::nullopt;
      power *= x;
    }
    return number(power);
  }
  if (op == "<<" || op == ">>") {
    if (b < 0 || b > 63) return std::nullopt;
    return op == "<<" ? number(x << y) : a >> b;
  }
  if (op == "|") return a | b;
  if (op == "^") return a ^ b;
  if (op == "&") return a & b;
  return op == "=="   ? a == b
         : op == "!=" ? a != b
         : op == "<=" ? a <= b
         : op == ">=" ? a >= b
         : op == "<"  ? a < b
                      : a > b;
}

ShellRun::Number ShellRun::unary(Cursor& c) {
  if (++c.depth > kMaxJobFileDepth) fail("sums inside of each other, 64 deep", "fewer");
  Number v;
  if (take(c, "++") || take(c, "--")) {
    const bool up = c.text[c.at - 1] == '+';
    blanks(c);
    if (c.at < c.text.size() &&
        (std::isalpha(static_cast<unsigned char>(c.text[c.at])) != 0 || c.text[c.at] == '_'))
      v = named(c, up ? 1 : -1);
    else
      v = unary(c);
  } else if (take(c, "!")) {
    v = unary(c);
    if (v) v = *v == 0 ? 1 : 0;
  } else if (take(c, "~")) {
    v = unary(c);
    if (v) v = ~*v;
  } else if (take(c, "-")) {
    v = unary(c);
    if (v) v = static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(*v));
  } else if (take(c, "+")) {
    v = unary(c);
  } else if (take(c, "(")) {
    v = comma(c);
    if (!take(c, ")")) not_a_number(c);
  } else {
    v = atom(c);
  }
  --c.depth;
  return v;
}

ShellRun::Number ShellRun::atom(Cursor& c) {
  blanks(c);
  if (c.at == c.text.size()) not_a_number(c);
  const char first = c.text[c.at];
  if (first == kShellUnknown) {
    // Beside it more digits or names may stand: "1$X".
    while (c.at < c.text.size() &&
           (c.text[c.at] == kShellUnknown || std::isalnum(static_cast<unsigned char>(c.text[c.at])) != 0))
      c.at = c.text[c.at] == kShellUnknown ? after_unknown(c.text, c.at) : c.at + 1;
    return std::nullopt;
  }
  if (std::isalpha(static_cast<unsigned char>(first)) != 0 || first == '_') return named(c, 0);
  if (std::isdigit(static_cast<unsigned char>(first)) == 0) not_a_number(c);
  std::size_t end = c.at;
  while (end < c.text.size() && (std::isalnum(static_cast<unsigned char>(c.text[end])) != 0 ||
                                 c.text[end] == '#' || c.text[end] == '_' || c.text[end] == '@'))
    ++end;
  std::string_view digits = c.text.substr(c.at, end - c.at);
  if (end < c.text.size() && c.text[end] == kShellUnknown) {
    c.at = end;
    return atom(c);
  }
  c.at = end;
  unsigned base = 10;
  if (const std::size_t sharp = digits.find('#'); sharp != std::string_view::npos) {
    const auto b = parse_int(digits.substr(0, sharp));
    if (!b || *b < 2 || *b > 36) return std::nullopt;
    base = static_cast<unsigned>(*b);
    digits.remove_prefix(sharp + 1);
  } else if (digits.starts_with("0x") || digits.starts_with("0X")) {
    base = 16;
    digits.remove_prefix(2);
  } else if (digits.size() > 1 && digits[0] == '0') {
    base = 8;
  }
  std::uint64_t number = 0;
  for (const char d : digits) {
    const int lower = std::tolower(static_cast<unsigned char>(d));
    const unsigned n = std::isdigit(lower) != 0 ? static_cast<unsigned>(lower - '0')
                                                : static_cast<unsigned>(lower - 'a' + 10);
    if (std::isalnum(lower) == 0 || n >= base) not_a_number(c);
    number = number * base + n;
  }
  return static_cast<std::int64_t>(number);
}

ShellRun::Number ShellRun::named(Cursor& c, int step) {
  std::size_t bracket = 0;
  const std::size_t n = shell_variable_length(c.text.substr(c.at), bracket);
  const std::string name(c.text.substr(c.at, std::min(n, bracket)));
  std::optional<std::string> key;
  if (bracket < n) key = std::string(c.text.substr(c.at + bracket + 1, n - bracket - 2));
  c.at += n;
  const auto now = [&]() -> Number {
    if (c.skipped) return 0;
    const Found found = find(name, key ? std::optional<std::string_view>(*key) : std::nullopt, "$" + name);
    if (found.how == Found::kOutside || found.how == Found::kUnknown) return std::nullopt;
    if (found.how == Found::kUnset) {
      if (state_.nounset) ends_unset(name);
      return 0;
    }
    return arithmetic(std::string(found.text()), c.depth + 1);
  };
  const auto store = [&](const Number& v) {
    if (c.skipped) return;
    assign(name, key, false,
           v && !c.unsure ? std::to_string(*v)
                          : unknown("$" + name, "$" + name + " is a sum that cannot be told"));
  };
  if (step != 0) {
    Number v = now();
    if (v) v = result("+", *v, step, c);
    store(v);
    return v;
  }
  if (take(c, "++") || take(c, "--")) {
    const int by = c.text[c.at - 1] == '+' ? 1 : -1;
    const Number v = now();
    store(v ? result("+", *v, by, c) : v);
    return v;
  }
  blanks(c);
  const std::string_view rest = c.text.substr(c.at);
  for (const std::string_view op : {"<<=", ">>=", "+=", "-=", "*=", "/=", "%=", "&=", "^=", "|=", "="}) {
    if (!rest.starts_with(op) || (op == "=" && rest.starts_with("=="))) continue;
    c.at += op.size();
    const Number right = choice(c);
    Number v = right;
    if (op != "=") {
      const Number left = now();
      v = left && right && !c.skipped ? result(op.substr(0, op.size() - 1), *left, *right, c) : Number();
    }
    store(v);
    return v;
  }
  return now();
}

ShellRun::Truth ShellRun::either(const Truth& a, const Truth& b) {
  if ((a && *a) || (b && *b)) return true;
  return a && b ? Truth(false) : Truth();
}

std::optional<long long> ShellRun::decimal(std::string_view text) {
  text = trim(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  return parse_int(text);
}

ShellRun::Truth ShellRun::compared(std::string_view op, const std::optional<long long>& a,
                                   const std::optional<long long>& b) {
  if (!a || !b) return std::nullopt;
  return op == "-eq"   ? *a == *b
         : op == "-ne" ? *a != *b
         : op == "-lt" ? *a < *b
         : op == "-le" ? *a <= *b
         : op == "-gt" ? *a > *b
                       : *a >= *b;
}

bool ShellRun::compares_numbers(std::string_view op) {
  return among(std::array<std::string_view, 6>{"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}, op);
}

ShellRun::Truth ShellRun::unary_test(std::string_view op, const std::string& word) {
  if (op == "-z" || op == "-n") {
    if (!has_unknown(word)) return word.empty() == (op == "-z");
    std::size_t at = 0;
    while (at < word.size() && word[at] == kShellUnknown) at = after_unknown(word, at);
    return at < word.size() ? Truth(op == "-n") : Truth();
  }
  if (op == "-v" && is_shell_name(word)) {
    const bool before = std::exchange(assuming_, true);
    const Found found = find(word, std::nullopt, "$" + word);
    assuming_ = before;
    if (found.how != Found::kUnknown) return found.how == Found::kSet;
  }
  return std::nullopt;
}

ShellRun::Truth ShellRun::binary_test(const std::string& a, std::string_view op, const std::string& b) {
  if (has_unknown(a) || has_unknown(b)) return std::nullopt;
  if (op == "=" || op == "==") return a == b;
  if (op == "!=") return a != b;
  if (compares_numbers(op)) {
    const auto x = decimal(a), y = decimal(b);
    return x && y ? compared(op, x, y) : Truth(false);  // bash complains, and the test fails
  }
  return std::nullopt;
}

bool ShellRun::is_unary(std::string_view op) {
  return op.size() == 2 && op[0] == '-' &&
         std::string_view("abcdefghknoprstuvwxzGLNOS").find(op[1]) != std::string_view::npos;
}

bool ShellRun::is_binary(std::string_view op) {
  return op == "=" || op == "==" || op == "!=" || op == "<" || op == ">" || compares_numbers(op) ||
         op == "-nt" || op == "-ot" || op == "-ef";
}

ShellRun::Truth ShellRun::test_words(std::span<const std::string> w) {
  if (w.empty()) return false;
  if (w.size() == 1) return unary_test("-n", w[0]);
  if (w.size() == 3 && is_binary(w[1])) return binary_test(w[0], w[1], w[2]);
  if (w.size() == 3 && (w[1] == "-a" || w[1] == "-o")) {
    const Truth a = unary_test("-n", w[0]), b = unary_test("-n", w[2]);
    return w[1] == "-o" ? either(a, b) : negated(either(negated(a), negated(b)));
  }
  if (w[0] == "!" && w.size() <= 4) return negated(test_words(w.subspan(1)));
  if (w.size() == 2) return is_unary(w[0]) ? unary_test(w[0], w[1]) : Truth();
  if (w[0] == "(" && w.back() == ")" && w.size() <= 4) return test_words(w.subspan(1, w.size() - 2));
  // Longer ones: tests of the same kind between -a or -o.
  for (const std::string_view sign : {"-o", "-a"})
    for (std::size_t i = 1; i + 1 < w.size(); ++i)
      if (w[i] == sign &&
          std::ranges::none_of(w, [](const std::string& x) { return x == "(" || x == "!"; })) {
        const Truth a = test_words(w.subspan(0, i)), b = test_words(w.subspan(i + 1));
        return sign == "-o" ? either(a, b) : negated(either(negated(a), negated(b)));
      }
  return std::nullopt;
}

ShellRun::Truth ShellRun::double_or(Tokens& t, int depth) {
  Truth v = double_and(t, depth);
  while (t.raw() == "||") ++t.at, v = either(v, double_and(t, depth));
  return v;
}

ShellRun::Truth ShellRun::double_and(Tokens& t, int depth) {
  Truth v = double_one(t, depth);
  while (t.raw() == "&&") ++t.at, v = negated(either(negated(v), negated(double_one(t, depth))));
  return v;
}

ShellRun::Truth ShellRun::double_one(Tokens& t, int depth) {
  if (depth > kMaxJobFileDepth) fail("tests inside of each other, 64 deep", "fewer");
  if (t.ended()) fail("[[ ]] without its test", "one");
  if (t.raw() == "!") {
    ++t.at;
    return negated(double_one(t, depth + 1));
  }
  if (t.raw() == "(") {
    ++t.at;
    const Truth v = double_or(t, depth + 1);
    if (t.raw() != ")") fail("( without its end", ")");
    ++t.at;
    return v;
  }
  const auto ends = [&](std::size_t ahead) {
    const std::string_view r = t.raw(ahead);
    return r.empty() || r == "&&" || r == "||" || r == ")";
  };
  const std::string_view op = t.raw(1);
  if (is_unary(t.raw()) && !ends(1) && !(is_binary(op) && !ends(2))) {
    const std::string_view sign = t.raw();
    const std::string word = assumed_value(t.words[t.at + 1], sign == "-z" || sign == "-n");
    t.at += 2;
    return unary_test(sign, word);
  }
  if (ends(1)) return unary_test("-n", assumed_value(t.words[t.at++], true));
  const ShellWord& left = t.words[t.at];
  if (ends(2) || !(is_binary(op) || op == "=~")) fail("[[ ]] with " + in_quotes(op), "a test");
  const ShellWord& right = t.words[t.at + 2];
  t.at += 3;
  const std::string a = value(left);
  if (op == "=" || op == "==" || op == "!=") {
    const ShellText pattern = pattern_of(right.raw);
    const Truth same = has_unknown(a) && pattern.chars != "*" ? Truth() : shell_match(pattern, a);
    return op == "!=" ? negated(same) : same;
  }
  const std::string b = value(right);
  if (op == "=~") {
    ShellVariable groups;
    groups.array = true;
    groups.items = {{0, unknown("$BASH_REMATCH", "it is what an expression has matched")}};
    put("BASH_REMATCH", std::move(groups));
    return std::nullopt;
  }
  if (compares_numbers(op)) return compared(op, arithmetic(a), arithmetic(b));
  return std::nullopt;
}

std::string ShellRun::assumed_value(const ShellWord& word, bool assume) {
  const bool before = std::exchange(assuming_, assume);
  const std::string text = value(word);
  assuming_ = before;
  return text;
}

}  // namespace moesim::tools
