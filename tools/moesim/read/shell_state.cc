#include "tools/moesim/read/shell_state.h"

#include <algorithm>
#include <utility>

namespace moesim::tools {

namespace {

// Merges two texts: unknown from their first different word on.
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

ShellVariablePtr merged_variable(const ShellVariablePtr& a, const ShellVariablePtr& b,
                                 const std::string& unknown) {
  if (a == b || (a && b && *a == *b)) return a;
  ShellVariable one;
  for (const ShellVariablePtr& v : {a, b})
    if (v) {
      one.array |= v->array, one.exported |= v->exported;
      one.readonly |= v->readonly;
    }
  if (a && b && !one.array && a->items.size() == 1 && b->items.size() == 1) {
    one.items = {merged_text(a->items[0], b->items[0], unknown)};
  } else {
    if (a && b && a->array && b->array)
      for (std::size_t i = 0; i < a->items.size() && i < b->items.size() && a->items[i] == b->items[i]; ++i)
        one.items.push_back(a->items[i]);
    if (one.items.empty() || one.items.back() != unknown) one.items.push_back(unknown);
  }
  return std::make_shared<const ShellVariable>(std::move(one));
}

}  // namespace

bool may_be_empty(std::string_view text) {
  bool inside = false;
  for (const char c : text) {
    if (c == kShellUnknown)
      inside = !inside;
    else if (!inside)
      return false;
  }
  return true;
}

std::string ShellText::plain() const {
  std::string text = chars;
  std::erase(text, kShellEmpty);
  return text;
}

bool ShellText::is_pattern() const {
  for (std::size_t i = 0; i < chars.size(); ++i) {
    if (marks[i] == kQuoted) continue;
    if (chars[i] == '*' || chars[i] == '?') return true;
    if (chars[i] == '[' && chars.find(']', i + 1) != std::string::npos) return true;
  }
  return false;
}

std::optional<bool> shell_match(const ShellText& pattern, std::string_view text) {
  std::string signs;  // '\x03' for *, '\x04' for ?
  for (std::size_t i = 0; i < pattern.chars.size(); ++i) {
    const char c = pattern.chars[i];
    if (c == kShellEmpty) continue;
    const bool active = pattern.marks[i] != ShellText::kQuoted;
    if (c == kShellUnknown || static_cast<unsigned char>(c) >= 0x80 ||
        (active && std::string_view("[\\(").find(c) != std::string_view::npos))
      return std::nullopt;
    signs += active && c == '*' ? '\x03' : active && c == '?' ? '\x04' : c;
  }
  if (signs == "\x03") return true;
  for (const char c : text)
    if (c == kShellUnknown || static_cast<unsigned char>(c) >= 0x80) return std::nullopt;
  std::size_t s = 0, t = 0, star = std::string::npos, from = 0;
  while (t < text.size()) {
    if (s < signs.size() && signs[s] == '\x03') {
      star = s++, from = t;
    } else if (s < signs.size() && (signs[s] == '\x04' || signs[s] == text[t])) {
      ++s, ++t;
    } else if (star != std::string::npos) {
      s = star + 1, t = ++from;
    } else {
      return false;
    }
  }
  return signs.find_first_not_of('\x03', s) == std::string::npos;
}

ShellState merged(ShellState a, const ShellState& b, const ShellUnknown& unknown) {
  for (const auto& [name, value] : b.variables) a.variables.try_emplace(name, nullptr);
  for (auto& [name, value] : a.variables) {
    const auto at = b.variables.find(name);
    value = merged_variable(value, at == b.variables.end() ? nullptr : at->second, unknown(name));
  }
  for (const auto& [name, body] : b.functions) a.functions.try_emplace(name, nullptr);
  for (auto& [name, body] : a.functions) {
    const auto at = b.functions.find(name);
    if (at == b.functions.end() || at->second != body) body = nullptr;
  }
  if (a.arguments != b.arguments) a.arguments = {unknown("@")};
  a.arguments_given = a.arguments_given && b.arguments_given;
  a.out = merged_text(a.out, b.out, unknown(""));
  if (a.anything.empty()) a.anything = b.anything;
  if (a.status != b.status) a.status = std::nullopt;
  return a;
}

}  // namespace moesim::tools
