#include "tools/moesim/jobs/shell_state.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace moesim::tools {

namespace {

// One text for two, from their first difference on unknown. Whole words are kept, so that arguments in front
// of what a condition adds stay known.
std::string merged(const std::string& a, const std::string& b, const std::string& unknown) {
  if (a == b || (a.ends_with(kShellUnknown) && b.starts_with(a))) return a;
  std::size_t same = 0, kept = 0;
  bool inside = false;
  for (; same < a.size() && same < b.size() && a[same] == b[same]; ++same) {
    if (a[same] == kShellUnknown) inside = !inside;
    if (!inside && (a[same] == ' ' || a[same] == '\n')) kept = same + 1;
  }
  const auto ended = [&](const std::string& t) {
    return same == t.size() || t[same] == ' ' || t[same] == '\n';
  };
  if (!inside && same > 0 && ended(a) && ended(b)) return a.substr(0, same) + " " + unknown;
  return a.substr(0, kept) + unknown;
}

ShellVariablePtr merged(const ShellVariablePtr& a, const ShellVariablePtr& b, const std::string& unknown) {
  if (a == b || (a && b && *a == *b)) return a;
  ShellVariable one = a ? *a : *b;
  if (b) {
    one.array |= b->array, one.named |= b->named, one.integer &= b->integer, one.exported |= b->exported;
    one.readonly |= b->readonly, one.odd |= b->odd;
  }
  if (a && b && !one.array && !one.named && a->items.size() == 1 && b->items.size() == 1) {
    one.items = {{0, merged(a->items.begin()->second, b->items.begin()->second, unknown)}};
    return one == *a ? a : std::make_shared<const ShellVariable>(std::move(one));
  }
  std::map<long long, std::string> items;
  if (a && b && a->array && b->array) {
    auto x = a->items.begin(), y = b->items.begin();
    for (; x != a->items.end() && y != b->items.end() && *x == *y; ++x, ++y) items.insert(*x);
    if (x == a->items.end() && !items.empty() && items.rbegin()->second == unknown) return a;
    if (x != a->items.end() && std::next(x) == a->items.end() && x->second == unknown) return a;
  }
  items[items.empty() ? 0 : items.rbegin()->first + 1] = unknown;
  one.items = std::move(items);
  one.keyed.clear();
  if (one.named) one.keyed[unknown] = unknown;
  return a && one == *a ? a : std::make_shared<const ShellVariable>(std::move(one));
}

template <class Map, class Merge>
Map merged_maps(const Map& a, const Map& b, const Merge& merge) {
  if (a == b) return a;
  Map all;
  for (const auto& [name, value] : a) {
    const auto at = b.find(name);
    all[name] = merge(name, value, at == b.end() ? typename Map::mapped_type{} : at->second);
  }
  for (const auto& [name, value] : b)
    if (!a.contains(name)) all[name] = merge(name, typename Map::mapped_type{}, value);
  return all;
}

// A pattern's sign: one character, any, any number of any, one of a set.
struct Sign {
  enum Kind { kChar, kAny, kStar, kSet } kind;
  char c = 0;
  std::string set;  // every character that fits
};

std::optional<std::vector<Sign>> signs_of(const ShellText& pattern) {
  std::vector<Sign> signs;
  const std::string& text = pattern.chars;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == kShellEmpty) continue;
    if (c == kShellUnknown || static_cast<unsigned char>(c) >= 0x80) return std::nullopt;
    if (pattern.marks[i] == ShellText::kQuoted) {
      signs.push_back({Sign::kChar, c, {}});
      continue;
    }
    // Other kinds of patterns: ?(a|b), and a backslash that an expansion gave.
    const bool opens = i + 1 < text.size() && text[i + 1] == '(';
    if ((opens && std::string_view("?*+@!").find(c) != std::string_view::npos) || c == '\\')
      return std::nullopt;
    if (c == '*') {
      signs.push_back({Sign::kStar, 0, {}});
    } else if (c == '?') {
      signs.push_back({Sign::kAny, 0, {}});
    } else if (c == '[') {
      std::size_t j = i + 1;
      const bool turned = j < text.size() && (text[j] == '!' || text[j] == '^');
      if (turned) ++j;
      std::string members;
      const std::size_t first = j;
      for (; j < text.size() && (text[j] != ']' || j == first); ++j) {
        if (text[j] == '[' || text[j] == '\\' || static_cast<unsigned char>(text[j]) >= 0x80 ||
            text[j] == kShellUnknown)
          return std::nullopt;  // [:digit:]
        if (j + 2 < text.size() && text[j + 1] == '-' && text[j + 2] != ']') {
          for (int m = text[j]; m <= text[j + 2]; ++m) members += static_cast<char>(m);
          j += 2;
        } else {
          members += text[j];
        }
      }
      if (j >= text.size()) {
        signs.push_back({Sign::kChar, '[', {}});
        continue;
      }
      std::string set;
      for (int m = 1; m < 128; ++m)
        if ((members.find(static_cast<char>(m)) != std::string::npos) != turned) set += static_cast<char>(m);
      signs.push_back({Sign::kSet, 0, set});
      i = j;
    } else {
      signs.push_back({Sign::kChar, c, {}});
    }
  }
  return signs;
}

}  // namespace

std::string ShellText::plain() const {
  std::string text = chars;
  std::erase(text, kShellEmpty);
  return text;
}

std::optional<bool> shell_match(const ShellText& pattern, std::string_view text) {
  if (pattern.chars == "*" && pattern.marks[0] != ShellText::kQuoted) return true;
  const auto signs = signs_of(pattern);
  if (!signs || has_unknown(text)) return std::nullopt;
  std::size_t at = 0, sign = 0, star = std::string::npos, from = 0;
  while (at < text.size()) {
    const Sign* s = sign < signs->size() ? &(*signs)[sign] : nullptr;
    if (s && s->kind == Sign::kStar) {
      star = sign++;
      from = at;
    } else if (s && (s->kind == Sign::kAny || (s->kind == Sign::kChar && s->c == text[at]) ||
                     (s->kind == Sign::kSet && s->set.find(text[at]) != std::string::npos))) {
      if (static_cast<unsigned char>(text[at]) >= 0x80) return std::nullopt;
      ++at, ++sign;
    } else if (star != std::string::npos) {
      sign = star + 1;
      at = ++from;
    } else {
      return false;
    }
  }
  while (sign < signs->size() && (*signs)[sign].kind == Sign::kStar) ++sign;
  return sign == signs->size();
}

ShellState merged(ShellState a, ShellState b, const ShellUnknown& unknown) {
  if (a.dead) return b;
  if (b.dead) return a;
  if (a == b) return a;
  const auto variable = [&](const std::string& name, const ShellVariablePtr& x, const ShellVariablePtr& y) {
    return merged(x, y, unknown(name));
  };
  ShellState all = a;
  all.variables = merged_maps(a.variables, b.variables, variable);
  all.functions = merged_maps(a.functions, b.functions,
                              [](const std::string&, const ShellNodePtr& x, const ShellNodePtr& y) {
                                return x == y ? x : ShellNodePtr{};
                              });
  if (a.arguments != b.arguments) {
    const std::string piece = unknown("@");
    if (a.arguments.empty() || a.arguments.back() != piece) all.arguments = {piece};
    all.arguments_given = true;
  }
  // What one way has hidden and the other has not comes back as unknown.
  for (std::size_t i = 0; i < all.outer.size() && i < b.outer.size(); ++i)
    all.outer[i] = merged_maps(a.outer[i], b.outer[i], variable);
  all.out = merged(a.out, b.out, unknown(""));
  if (a.trap.empty()) all.trap = b.trap;
  if (a.anything.empty()) all.anything = b.anything;
  if (a.status != b.status) all.status = std::nullopt;
  all.errexit &= b.errexit, all.noglob &= b.noglob, all.pipefail &= b.pipefail;
  all.nounset |= b.nounset, all.allexport |= b.allexport, all.odd_globs |= b.odd_globs;
  return all;
}

}  // namespace moesim::tools
