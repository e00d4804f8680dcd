#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "tools/moesim/jobs/job_file.h"
#include "tools/moesim/jobs/shell_run.h"

namespace moesim::tools {

namespace {

bool is_ascii(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

}  // namespace

void ShellRun::add_value(const Found& found, std::vector<ShellText>& out, bool in_double) {
  const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
  for (const std::string& item : found.items) count(item.size());
  if (found.list && (found.star ? !in_double && !assigning_ : true)) {
    if (found.items.empty()) empty_list_ = true;
    for (std::size_t i = 0; i < found.items.size(); ++i) {
      if (i > 0) out.emplace_back();
      out.back().add(found.items[i], mark);
      if (in_double && found.items[i].empty()) out.back().add({&kShellEmpty, 1}, mark);
    }
    return;
  }
  std::string with = " ";
  if (found.star) {
    bool known = true;
    with = separators(known).substr(0, 1);
    if (!known) with = unknown("$IFS", "$IFS cannot be told");
  }
  out.back().add(join(found.items, with), mark);
}

void ShellRun::expand(std::string_view raw, std::vector<ShellText>& out, bool in_double, char literal,
                      bool document) {
  if (++depth_ > kMaxShellDepth) fail("expansions inside of each other, 200 deep", "fewer");
  const auto plain = [&](std::string_view text) {
    out.back().add(text, in_double ? ShellText::kQuoted : literal);
  };
  for (std::size_t i = 0; i < raw.size();) {
    const char c = raw[i], next = i + 1 < raw.size() ? raw[i + 1] : '\0';
    charge(1);
    if (c == kShellUnknown) {
      const std::size_t end = after_unknown(raw, i);
      out.back().add(raw.substr(i, end - i), ShellText::kQuoted);
      i = end;
    } else if (c == '\\') {
      i += 2;
      if (next == '\0') {
        out.back().add("\\", ShellText::kQuoted);
      } else if (next == '\n') {
        continue;
      } else if (in_double &&
                 std::string_view(document ? "$`\\" : "$`\"\\").find(next) == std::string_view::npos) {
        out.back().add(raw.substr(i - 2, 2), ShellText::kQuoted);
      } else {
        out.back().add({&next, 1}, ShellText::kQuoted);
      }
    } else if (c == '\'' && !in_double) {
      const std::size_t end = std::min(raw.find('\'', i + 1), raw.size());
      out.back().add(raw.substr(i + 1, end - i - 1), ShellText::kQuoted);
      if (end == i + 1) out.back().add({&kShellEmpty, 1}, ShellText::kQuoted);
      i = end + 1;
    } else if ((c == '"' && !in_double) || (c == '$' && next == '"' && !in_double)) {
      const std::size_t from = c == '$' ? i + 1 : i, end = piece_end(raw, from, false);
      const std::size_t texts = out.size(), size = out.back().chars.size();
      empty_list_ = false;
      expand(raw.substr(from + 1, end - from - 2), out, true, ShellText::kQuoted);
      if (out.size() == texts && out.back().chars.size() == size && !empty_list_)
        out.back().add({&kShellEmpty, 1}, ShellText::kQuoted);
      i = end;
    } else if (c == '"' && !document) {
      ++i;  // quotes inside of "${x:-"..."}"
    } else if (c == '$' || c == '`') {
      const std::size_t end = piece_end(raw, i, in_double);
      i = expansion(raw, i, end, out, in_double, literal);
    } else if ((c == '<' || c == '>') && next == '(' && !in_double && literal == ShellText::kLiteral) {
      const std::size_t end = piece_end_of_process(raw, i);
      command_output(raw.substr(i + 2, end - i - 3));
      out.back().add(unknown(raw.substr(i, end - i), "it is a file that bash makes"), ShellText::kQuoted);
      i = end;
    } else {
      plain(raw.substr(i, 1));
      ++i;
    }
  }
  --depth_;
}

std::size_t ShellRun::piece_end(std::string_view raw, std::size_t at, bool in_double) const {
  const std::size_t end = after_shell_piece(raw, at, in_double);
  if (end > raw.size())
    fail("an expansion that does not end: " + in_quotes(one_line(raw.substr(at, 20))), "its end");
  return end;
}

std::size_t ShellRun::piece_end_of_process(std::string_view raw, std::size_t at) {
  // As a command's output is written.
  std::string& text = sources_.emplace_back("$");
  text += raw.substr(at + 1);
  return at + piece_end(text, 0, false);
}

std::size_t ShellRun::expansion(std::string_view raw, std::size_t at, std::size_t end,
                                std::vector<ShellText>& out, bool in_double, char literal) {
  const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
  const std::string_view rest = raw.substr(at, end - at);
  if (rest[0] == '`') {
    std::string inside;
    for (std::size_t i = 1; i + 1 < rest.size(); ++i) {
      if (rest[i] == '\\' && i + 2 < rest.size() &&
          std::string_view(in_double ? "$`\\\"" : "$`\\").find(rest[i + 1]) != std::string_view::npos)
        ++i;
      inside += rest[i];
    }
    out.back().add(command_output(sources_.emplace_back(inside)), mark);
  } else if (rest.starts_with("${")) {
    braced(rest.substr(2, rest.size() - 3), out, in_double);
  } else if (rest.starts_with("$((") || rest.starts_with("$[")) {
    const bool old = rest[1] == '[';
    const std::string_view inside = rest.substr(old ? 2 : 3, rest.size() - (old ? 3 : 5));
    const Number number = arithmetic(double_quoted(inside));
    out.back().add(number ? std::to_string(*number)
                          : unknown(rest, fmt::format("$(({})) cannot be told", one_line(inside))),
                   mark);
  } else if (rest.starts_with("$(")) {
    out.back().add(command_output(rest.substr(2, rest.size() - 3)), mark);
  } else if (rest.starts_with("$'")) {
    out.back().add(escaped(rest.substr(2, rest.size() - 3)), ShellText::kQuoted);
  } else {
    std::size_t n = at + 1;
    const auto is_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    if (n < raw.size() && std::string_view("@*#?$!-").find(raw[n]) != std::string_view::npos)
      ++n;
    else if (n < raw.size() && std::isdigit(static_cast<unsigned char>(raw[n])) != 0)
      ++n;
    else
      while (n < raw.size() && is_name(raw[n])) ++n;
    const std::string name(raw.substr(at + 1, n - at - 1));
    if (name.empty()) {
      out.back().add("$", in_double ? ShellText::kQuoted : literal);
      return at + 1;
    }
    Found found = find(name, std::nullopt, "$" + name);
    if (state_.nounset && !found.list && !assuming_) {
      if (found.how == Found::kUnset) ends_unset(name);
      if (found.how == Found::kOutside) needs(name);
    }
    add_value(found, out, in_double);
    return n;
  }
  return end;
}

void ShellRun::ends_unset(const std::string& name) const {
  fail("$" + name + ", which is not set: the script ends here", "a value for it");
}

void ShellRun::needs(const std::string& name) {
  script_.notes_.insert(
      fmt::format("{}:{}: ${} is taken as set from outside: the script ends without it", file_, line_, name));
}

std::string ShellRun::escaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    constexpr std::string_view kFrom = "nt\\'\"rab", kTo = "\n\t\\'\"\r\a\b";
    if (const std::size_t at = kFrom.find(c); at != std::string_view::npos)
      out += kTo[at];
    else
      return unknown("$'" + std::string(text) + "'", "its escapes are not followed");
  }
  return out.empty() ? std::string(1, kShellEmpty) : out;
}

void ShellRun::braced(std::string_view inside, std::vector<ShellText>& out, bool in_double) {
  const std::string written = "${" + std::string(inside) + "}";
  const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
  const auto cannot = [&](const std::string& why) { out.back().add(unknown(written, why), mark); };
  const std::string not_followed = written + " is not followed";
  std::string_view rest = inside;
  const bool length = rest.size() > 1 && rest[0] == '#' && rest != "#}" &&
                      std::string_view("-=?+:%#/").find(rest[1]) == std::string_view::npos;
  const bool indirect = rest.size() > 1 && rest[0] == '!';
  if (length || indirect) rest.remove_prefix(1);
  std::string name;
  std::optional<std::string_view> subscript;
  if (!rest.empty() && std::string_view("@*#?$!-").find(rest[0]) != std::string_view::npos) {
    name = rest.substr(0, 1);
    rest.remove_prefix(1);
  } else if (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest[0])) != 0) {
    while (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest[0])) != 0)
      name += rest[0], rest.remove_prefix(1);
  } else {
    std::size_t bracket = 0;
    const std::size_t n = shell_variable_length(rest, bracket);
    name = rest.substr(0, std::min(n, bracket));
    if (bracket < n) subscript = rest.substr(bracket + 1, n - bracket - 2);
    rest.remove_prefix(n);
  }
  if (name.empty()) return cannot(not_followed);
  if (indirect) {
    if (subscript && (*subscript == "@" || *subscript == "*")) return cannot(not_followed);
    const Found pointer = find(name, subscript, written);
    const std::string to = pointer.text();
    if (pointer.how != Found::kSet || pointer.list || has_unknown(to) ||
        (!is_shell_name(to) &&
         !std::ranges::all_of(to, [](unsigned char c) { return std::isdigit(c) != 0; })) ||
        to.empty() || rest == "@" || rest == "*")
      return cannot(not_followed);
    name = to;
    subscript.reset();
  }
  Found found = find(name, subscript, written);
  const bool assumed_outside = found.how == Found::kOutside;
  if (length) {
    const bool all = found.list || name == "@" || name == "*";
    if (!rest.empty() || found.how == Found::kOutside || found.how == Found::kUnknown)
      return cannot(found.how == Found::kSet ? not_followed
                                             : script_.unknown(found.items.empty() ? "" : found.items[0]));
    for (const std::string& item : found.items)
      if (has_unknown(item) || (!all && !is_ascii(item))) return cannot(not_followed);
    out.back().add(std::to_string(all ? found.items.size() : found.text().size()), mark);
    return;
  }
  if (rest.empty()) {
    if (state_.nounset && !found.list && !assuming_) {
      if (found.how == Found::kUnset) ends_unset(name);
      if (found.how == Found::kOutside) needs(name);
    }
    return add_value(found, out, in_double);
  }
  const bool colon =
      rest[0] == ':' && rest.size() > 1 && std::string_view("-=+?").find(rest[1]) != std::string_view::npos;
  const char kind = rest[colon ? 1 : 0];
  const std::string_view operand = rest.substr(std::min(rest.size(), std::size_t{colon ? 2U : 1U}));
  if (colon || std::string_view("-=+?").find(kind) != std::string_view::npos) {
    const std::string text = found.text();
    bool empty = colon && text.empty();
    // A piece that cannot be told may be empty.
    bool may_be_empty = found.how == Found::kUnknown;
    if (colon && has_unknown(text) && !assumed_outside && found.how == Found::kSet) {
      std::size_t at = 0;
      while (at < text.size() && text[at] == kShellUnknown) at = after_unknown(text, at);
      may_be_empty = at == text.size();
    }
    if (may_be_empty) return cannot(script_.unknown(text));
    const bool said = found.how == Found::kSet && !empty;
    if (kind == '+') {
      if (assumed_outside) script_.assumed_.insert("$" + name);
      if (said) expand(home_of(operand, out, in_double), out, in_double, mark);
      return;
    }
    if (said) return add_value(found, out, in_double);
    if (kind == '?') {
      if (!assumed_outside) ends_unset(name);
      needs(name);
      return add_value(found, out, in_double);
    }
    if (kind == '=') {
      const std::string given = value({operand, line_});
      if (!is_shell_name(name)) return cannot(not_followed);
      assign(name, subscript ? std::optional<std::string>(value({*subscript, line_})) : std::nullopt, false,
             given);
      return add_value(known_value(given), out, in_double);
    }
    return expand(home_of(operand, out, in_double), out, in_double, mark);
  }
  if (found.how == Found::kOutside || found.how == Found::kUnknown)
    return cannot(script_.unknown(found.items.empty() ? "" : found.items[0]));
  if (found.how == Found::kUnset && state_.nounset && !found.list) ends_unset(name);
  if (kind == ':') {
    if (!slice(found, operand, name)) return cannot(not_followed);
    return add_value(found, out, in_double);
  }
  for (std::string& item : found.items) {
    std::optional<std::string> made;
    if (!has_unknown(item) && is_ascii(item)) made = changed_text(item, rest);
    if (!made) return cannot(has_unknown(item) ? script_.unknown(item) : not_followed);
    item = std::move(*made);
  }
  add_value(found, out, in_double);
}

bool ShellRun::slice(Found& found, std::string_view operand, const std::string& name) {
  std::size_t colon = 0;
  for (int nested = 0; colon < operand.size(); ++colon) {
    nested += operand[colon] == '(' ? 1 : operand[colon] == ')' ? -1 : 0;
    if (operand[colon] == '?') return false;
    if (operand[colon] == ':' && nested == 0) break;
  }
  const Number from = arithmetic(double_quoted(operand.substr(0, colon)));
  const bool limited = colon < operand.size();
  const Number length = limited ? arithmetic(double_quoted(operand.substr(colon + 1))) : Number(0);
  if (!from || !length) return false;
  for (const std::string& item : found.items)
    if (has_unknown(item) || !is_ascii(item)) return false;
  if (found.list && name != "@" && name != "*")
    if (const ShellVariable* v = variable(name);
        v && (v->named ||
              (!v->items.empty() && v->items.rbegin()->first + 1 != static_cast<long long>(v->items.size()))))
      return false;                                                            // indices with gaps
  if (found.list && (name == "@" || name == "*") && *from <= 0) return false;  // with $0
  const auto size = static_cast<long long>(found.list ? found.items.size() : found.text().size());
  long long start = found.list && (name == "@" || name == "*") ? *from - 1 : *from;
  if (start < 0) start += size;
  if (start < 0 || start > size) {
    found.items = found.list ? Words{} : Words{""};
    return true;
  }
  long long end = !limited      ? size
                  : *length < 0 ? size + *length
                                : std::min(size, start + std::min<long long>(*length, size));
  if (limited && *length < 0 && (found.list || end < start)) return false;  // bash says no
  end = std::max(end, start);
  if (found.list)
    found.items = Words(found.items.begin() + start, found.items.begin() + end);
  else
    found.items = {
        found.text().substr(static_cast<std::size_t>(start), static_cast<std::size_t>(end - start))};
  return true;
}

std::optional<std::string> ShellRun::changed_text(const std::string& text, std::string_view operation) {
  const char kind = operation[0];
  const bool twice = operation.size() > 1 && operation[1] == kind;
  std::string_view operand = operation.substr(twice ? 2 : 1);
  if (kind == '#' || kind == '%') {
    const ShellText pattern = pattern_of(operand);
    std::optional<std::string> best;
    for (std::size_t n = 0; n <= text.size(); ++n) {
      charge(text.size());
      const std::size_t size = twice ? text.size() - n : n;
      const auto fits =
          shell_match(pattern, kind == '#' ? text.substr(0, size) : text.substr(text.size() - size));
      if (!fits) return std::nullopt;
      if (*fits) return kind == '#' ? text.substr(size) : text.substr(0, text.size() - size);
    }
    return text;
  }
  if (kind == '/') {
    const char anchor =
        !twice && !operand.empty() && (operand[0] == '#' || operand[0] == '%') ? operand[0] : '\0';
    if (anchor != '\0') operand.remove_prefix(1);
    std::size_t slash = 0;
    while (slash < operand.size() && operand[slash] != '/')
      slash = std::min(after_shell_piece(operand, slash, false), operand.size());
    const ShellText pattern = pattern_of(operand.substr(0, slash));
    const std::string with = value({operand.substr(std::min(slash + 1, operand.size())), line_});
    if (with.find('&') != std::string::npos || has_unknown(with) || pattern.chars.empty())
      return std::nullopt;
    std::string made;
    for (std::size_t at = 0; at <= text.size();) {
      bool replaced = false;
      for (std::size_t n = text.size() - at; n > 0 && !replaced; --n) {
        charge(n);
        if ((anchor == '#' && at > 0) || (anchor == '%' && at + n < text.size())) continue;
        const auto fits = shell_match(pattern, std::string_view(text).substr(at, n));
        if (!fits) return std::nullopt;
        if (!*fits) continue;
        made += with;
        at += n;
        replaced = true;
      }
      if (replaced && !twice) return made + text.substr(at);
      if (!replaced && at < text.size()) made += text[at];
      if (!replaced) ++at;
    }
    count(made.size());
    return made;
  }
  if ((kind == '^' || kind == ',') && operand.empty()) {
    std::string made = text;
    for (std::size_t i = 0; i < (twice ? made.size() : std::min<std::size_t>(1, made.size())); ++i) {
      const auto c = static_cast<unsigned char>(made[i]);
      made[i] = static_cast<char>(kind == '^' ? std::toupper(c) : std::tolower(c));
    }
    return made;
  }
  return std::nullopt;
}

ShellText ShellRun::pattern_of(std::string_view raw) {
  std::vector<ShellText> out(1);
  expand(raw, out, false, ShellText::kLiteral);
  ShellText all;
  for (const ShellText& text : out) {
    if (!all.chars.empty()) all.add(" ", ShellText::kQuoted);
    all.add(text.chars, ShellText::kLiteral);
    all.marks.replace(all.marks.size() - text.marks.size(), text.marks.size(), text.marks);
  }
  return all;
}

std::string ShellRun::double_quoted(std::string_view raw) {
  std::vector<ShellText> out(1);
  expand(raw, out, true, ShellText::kQuoted);
  return joined(out);
}

std::string ShellRun::joined(const std::vector<ShellText>& texts) {
  std::string all;
  for (const ShellText& text : texts) all += (&text == texts.data() ? "" : " ") + text.plain();
  return all;
}

std::string_view ShellRun::home_of(std::string_view raw, std::vector<ShellText>& out, bool in_double) {
  std::size_t bracket = 0;
  const std::size_t name = shell_variable_length(raw, bracket);
  const bool assigns = name > 0 && raw.substr(name, 2) == "=~";
  if (!in_double && (assigns || (assigning_ && raw.find(":~") != std::string_view::npos))) {
    out.back().add(unknown(raw, "it names a user's folder"), ShellText::kQuoted);
    return {};
  }
  if (!raw.starts_with('~') || in_double) return raw;
  const std::size_t end = std::min(raw.find('/'), raw.size());
  out.back().add(unknown(raw.substr(0, end), "it is a user's folder"), ShellText::kQuoted);
  return raw.substr(end);
}

std::string ShellRun::value(const ShellWord& word) {
  std::vector<ShellText> out(1);
  const bool before = std::exchange(assigning_, true);
  expand(home_of(word.raw, out, false), out, false, ShellText::kLiteral);
  assigning_ = before;
  return joined(out);
}

std::vector<std::string_view> ShellRun::braces(std::string_view raw, int depth) {
  for (std::size_t i = 0; i < raw.size();) {
    if (raw[i] != '{') {
      i = raw[i] == kShellUnknown ? after_unknown(raw, i)
                                  : std::min(after_shell_piece(raw, i, false), raw.size());
      continue;
    }
    std::vector<std::string_view> parts;
    std::size_t from = i + 1, at = from;
    int nested = 0;
    for (; at < raw.size();) {
      if (raw[at] == '{') ++nested;
      if (raw[at] == '}' && nested-- == 0) break;
      if (raw[at] == ',' && nested == 0) parts.push_back(raw.substr(from, at - from)), from = at + 1;
      at = std::min(after_shell_piece(raw, at, false), raw.size());
    }
    if (at < raw.size()) {
      const std::string_view last = raw.substr(from, at - from);
      if (!parts.empty())
        parts.push_back(last);
      else
        parts = range(last);
    }
    if (at >= raw.size() || parts.empty()) {
      ++i;
      continue;
    }
    if (depth > 8) fail("braces inside of each other, 8 deep", "fewer");
    std::vector<std::string_view> all;
    const std::vector<std::string_view> tails = braces(raw.substr(at + 1), depth + 1);
    for (const std::string_view part : parts)
      for (const std::string_view middle : braces(part, depth + 1))
        for (const std::string_view tail : tails) {
          count(raw.size());
          std::string& made = sources_.emplace_back(raw.substr(0, i));
          made += middle;
          made += tail;
          all.emplace_back(made);
        }
    return all;
  }
  return {raw};
}

std::vector<std::string_view> ShellRun::range(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return {};
  const auto low = parse_int(text.substr(0, dots)), high = parse_int(text.substr(dots + 2));
  const std::string whole = "{" + std::string(text) + "}";
  // Leading zeros, steps and letters have rules of their own.
  const bool plain = low && high && std::to_string(*low) == text.substr(0, dots) &&
                     std::to_string(*high) == text.substr(dots + 2);
  if (!plain || text.size() > 20 || std::abs(*high - *low) > 10'000)
    return {sources_.emplace_back(unknown(whole, whole + " is not followed"))};
  std::vector<std::string_view> all;
  for (long long n = *low;; n += *low <= *high ? 1 : -1) {
    all.emplace_back(sources_.emplace_back(std::to_string(n)));
    if (n == *high) return all;
  }
}

ShellRun::Words ShellRun::fields(const ShellWord& word) {
  Words all;
  for (const std::string_view raw : braces(word.raw)) {
    std::vector<ShellText> out(1);
    expand(home_of(raw, out, false), out, false, ShellText::kLiteral);
    for (const ShellText& text : out) split_text(text, all);
  }
  return all;
}

ShellRun::Words ShellRun::fields(const std::vector<ShellWord>& words) {
  Words all;
  for (const ShellWord& word : words) {
    line_ = word.line;
    for (std::string& field : fields(word)) all.push_back(std::move(field));
  }
  return all;
}

void ShellRun::split_text(const ShellText& text, Words& all) {
  bool known = true;
  const std::string ifs = separators(known);
  if (!known && text.marks.find(ShellText::kExpanded) != std::string::npos) {
    all.push_back(unknown("$IFS", "$IFS cannot be told"));
    return;
  }
  ShellText open;
  bool started = false, blank = false;
  const auto push = [&] {
    all.push_back(could_match_files(open)
                      ? unknown(open.plain(), "files may match " + in_quotes(open.plain()))
                      : open.plain());
    open = {};
    started = false;
  };
  for (std::size_t i = 0; i < text.chars.size(); ++i) {
    const char c = text.chars[i];
    if (c == kShellUnknown) {
      const std::size_t end = after_unknown(text.chars, i);
      open.add(std::string_view(text.chars).substr(i, end - i), ShellText::kQuoted);
      started = true;
      i = end - 1;
    } else if (text.marks[i] == ShellText::kExpanded && ifs.find(c) != std::string::npos) {
      const bool white = c == ' ' || c == '\t' || c == '\n';
      if (started)
        push(), blank = white;
      else if (!white && !std::exchange(blank, false))
        all.emplace_back();
    } else {
      open.add({&c, 1}, text.marks[i]);
      started = true;
      blank = false;
    }
  }
  if (started) push();
}

bool ShellRun::could_match_files(const ShellText& text) const {
  if (state_.noglob) return false;
  bool glob = false, never = false;
  for (std::size_t i = 0; i < text.chars.size(); ++i) {
    const char c = text.chars[i];
    const bool active = text.marks[i] != ShellText::kQuoted;
    if (active && c == '[') {
      const std::size_t end = text.chars.find(']', i + 2);
      if (end == std::string::npos) continue;
      glob = true;
      i = end;
    } else if (active && (c == '*' || c == '?')) {
      glob = true;
    } else if (c == '(' || c == ')' || c == '|') {
      never = true;
    }
  }
  return glob && (!never || state_.odd_globs);
}

}  // namespace moesim::tools
