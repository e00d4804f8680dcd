// Values of a script: texts and patterns, sums of decimal numbers, tests.
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <map>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "models/hardware/embedded_profiles.h"
#include "tools/moesim/read/job_file.h"
#include "tools/moesim/read/shell_syntax.h"
#include "tools/moesim/read/shell_words.h"

namespace moesim::tools {

ShellValue::ShellValue(std::string_view text)
    : name(text.substr(0, text.find('='))), value(text.substr(std::min(name.size() + 1, text.size()))) {
  if (const auto n = parse_int(name); n && *n > 0 && *n < 1000) argument = static_cast<std::size_t>(*n);
}

namespace {

constexpr std::size_t npos = std::string_view::npos;

// Compares by an operator of sums or of tests; nullopt: it is another operator.
ShellTruth compared(std::string_view op, std::int64_t a, std::int64_t b) {
  if (op == "==" || op == "-eq") return a == b;
  if (op == "!=" || op == "-ne") return a != b;
  if (op == "<=" || op == "-le") return a <= b;
  if (op == ">=" || op == "-ge") return a >= b;
  if (op == "<" || op == "-lt") return a < b;
  if (op == ">" || op == "-gt") return a > b;
  return std::nullopt;
}

class Sum {
 public:
  Sum(std::string_view text, const std::function<ShellNumber(const std::string&)>& variable)
      : text_(text), variable_(variable) {}

  std::optional<ShellNumber> read() {
    const ShellNumber value = choice(0);
    if (ok_ && at_ == text_.size()) return value;
    return std::nullopt;
  }

 private:
  // A later level binds tighter.
  static inline const std::vector<std::vector<std::string_view>> kLevels{
      {"||"}, {"&&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}};

  bool take(std::string_view sign) {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    if (!text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }
  ShellNumber choice(int depth) {
    const ShellNumber which = binary(0, depth);
    if (!take("?")) return which;
    const ShellNumber yes = choice(depth + 1);
    ok_ = take(":") && ok_;
    const ShellNumber no = choice(depth + 1);
    return !which ? which : *which != 0 ? yes : no;
  }
  ShellNumber binary(std::size_t level, int depth) {
    if (level == kLevels.size()) return unary(depth);
    ShellNumber left = binary(level + 1, depth);
    while (ok_) {
      const auto sign = std::ranges::find_if(kLevels[level], [&](std::string_view one) { return take(one); });
      if (sign == kLevels[level].end()) break;
      const ShellNumber right = binary(level + 1, depth);
      left = left && right ? result(*sign, *left, *right) : ShellNumber();
    }
    return left;
  }
  ShellNumber result(std::string_view op, std::int64_t a, std::int64_t b) {
    if (op == "||") return a != 0 || b != 0;
    if (op == "&&") return a != 0 && b != 0;
    if (const ShellTruth truth = compared(op, a, b)) return *truth;
    std::int64_t r = 0;
    if (op == "/" || op == "%") {
      ok_ = ok_ && b != 0 && (b != -1 || a != INT64_MIN);
      return !ok_ ? ShellNumber() : op == "/" ? a / b : a % b;
    }
    ok_ = !(op == "+"   ? __builtin_add_overflow(a, b, &r)
            : op == "-" ? __builtin_sub_overflow(a, b, &r)
                        : __builtin_mul_overflow(a, b, &r));
    return r;
  }
  ShellNumber unary(int depth) {
    if (depth > kMaxJobFileDepth) ok_ = false;
    if (!ok_) return std::nullopt;
    if (const bool minus = take("-"); minus || take("!")) {
      const ShellNumber v = unary(depth + 1);
      return !v ? v : minus ? result("-", 0, *v) : ShellNumber(*v == 0);
    }
    if (take("(")) {
      const ShellNumber v = choice(depth + 1);
      ok_ = take(")") && ok_;
      return v;
    }
    take("");
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with(kShellUnknown)) {
      at_ = after_unknown(text_, at_);
      ok_ = take("") && (at_ == text_.size() || std::string_view("+-*/%)<>=!&|?:").find(text_[at_]) != npos);
      return std::nullopt;
    }
    const std::size_t name = shell_name_length(rest);
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const std::string word(rest.substr(0, std::max(name, digits)));
    at_ += word.size();
    take("");
    if (name > 0) return variable_(word);
    const ShellNumber v = shell_number(word);
    ok_ = v.has_value();
    return v;
  }

  std::string_view text_;
  const std::function<ShellNumber(const std::string&)>& variable_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace

const std::vector<std::string>& script_words(std::string_view list) {
  static const auto lists = [] {
    auto file = nlohmann::json::parse(models::embedded_table("script_words"));
    file.erase("about");
    return file.get<std::map<std::string, std::vector<std::string>, std::less<>>>();
  }();
  return lists.find(list)->second;
}

bool is_script_word(std::string_view list, std::string_view word) {
  return std::ranges::any_of(script_words(list), [&](std::string_view one) {
    return one.ends_with('*') ? word.starts_with(one.substr(0, one.size() - 1)) : word == one;
  });
}

std::size_t after_unknown(std::string_view text, std::size_t at) {
  return std::min(text.find(kShellUnknown, at + 1), text.size() - 1) + 1;
}

bool may_be_empty(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); i = after_unknown(text, i))
    if (text[i] != kShellUnknown) return false;
  return true;
}

std::string ShellText::plain() const {
  std::string text = chars;
  std::erase(text, kShellEmpty);
  return text;
}

bool ShellText::is_pattern() const {
  for (std::size_t i = 0; i < chars.size(); ++i) {
    const bool list = chars[i] == '[' && chars.find(']', i + 1) != npos;
    if (marks[i] != kQuoted && (list || chars[i] == '*' || chars[i] == '?')) return true;
  }
  return false;
}

std::string merged_text(const std::string& a, const std::string& b, const std::string& unknown) {
  if (a == b) return a;
  std::size_t kept = 0;
  bool inside = false;
  for (std::size_t same = 0; same < a.size() && same < b.size() && a[same] == b[same]; ++same) {
    if (a[same] == kShellUnknown) inside = !inside;
    if (!inside && a[same] == ' ') kept = same + 1;
    if (!inside && same + 1 >= unknown.size() && std::string_view(a).substr(0, same + 1).ends_with(unknown))
      return a.substr(0, same + 1);
  }
  return a.substr(0, kept) + unknown;
}

ShellTruth shell_match(const ShellText& pattern, const std::string& text) {
  std::string signs;
  for (std::size_t i = 0; i < pattern.chars.size(); ++i) {
    const char c = pattern.chars[i];
    if (c == kShellEmpty) continue;
    const bool active = pattern.marks[i] != ShellText::kQuoted;
    if (c == kShellUnknown || (active && std::string_view("[\\(").find(c) != npos)) return std::nullopt;
    if (!active && std::string_view("*?[\\").find(c) != npos) signs += '\\';
    signs += c;
  }
  if (signs == "*") return true;
  const auto ascii = [](unsigned char c) { return c < 0x80 && c != kShellUnknown; };
  if (!std::ranges::all_of(text + signs, ascii)) return std::nullopt;
  return ::fnmatch(signs.c_str(), text.c_str(), 0) == 0;
}

ShellNumber shell_number(std::string_view text) {
  const auto v = parse_int(text);
  return v && std::to_string(*v) == text ? ShellNumber(*v) : std::nullopt;
}

std::optional<ShellNumber> shell_sum(std::string_view text,
                                     const std::function<ShellNumber(const std::string&)>& variable) {
  return Sum(text, variable).read();
}

ShellTruth shell_test(std::span<const std::string> w) {
  if (std::ranges::any_of(w, [](const std::string& x) { return !x.empty() && may_be_empty(x); }))
    return std::nullopt;
  if (w.size() < 2) return !w.empty() && !w[0].empty();
  if (w.size() == 2 && (w[0] == "!" || w[0] == "-z" || w[0] == "-n")) return w[1].empty() == (w[0] != "-n");
  if (w.size() == 3 && (w[1] == "=" || w[1] == "==" || w[1] == "!=")) {
    if (has_unknown(w[0]) || has_unknown(w[2])) return std::nullopt;
    return (w[0] == w[2]) == (w[1] != "!=");
  }
  if (w.size() == 3 && w[1].starts_with('-') && compared(w[1], 0, 0)) {
    const ShellNumber left = shell_number(w[0]), right = shell_number(w[2]);
    return left && right ? compared(w[1], *left, *right) : std::nullopt;
  }
  if (w[0] != "!" || w.size() > 4 || (w.size() == 3 && !w[1].starts_with('-'))) return std::nullopt;
  const ShellTruth truth = shell_test(w.subspan(1));
  return truth ? ShellTruth(!*truth) : truth;
}

}  // namespace moesim::tools
