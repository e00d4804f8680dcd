// Words: quotes and expansions, splitting.
#include <fmt/format.h>

#include <cctype>

#include "base/text.h"
#include "tools/moesim/read/job_file.h"
#include "tools/moesim/read/shell_run.h"

namespace moesim::tools {

namespace {

constexpr std::size_t npos = std::string_view::npos;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Returns the length of a parameter's name at the start of a text. `digits`: it may have several.
std::size_t parameter_length(std::string_view text, bool digits) {
  if (text.empty()) return 0;
  if (std::string_view("@*#?$!-").find(text[0]) != std::string_view::npos) return 1;
  std::size_t n = 0;
  while (n < text.size() && is_digit(text[n]) && (digits || n == 0)) ++n;
  return n > 0 ? n : shell_name_length(text);
}

// Returns the end of the unknown piece that begins at `at`.
std::size_t after_unknown(std::string_view text, std::size_t at) {
  return std::min(text.find(kShellUnknown, at + 1), text.size() - 1) + 1;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string unescaped_backquotes(std::string_view text) {
  std::string inside;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escapes = text[i] == '\\' && i + 1 < text.size() &&
                         std::string_view("$`\\").find(text[i + 1]) != std::string_view::npos;
    inside += text[escapes ? ++i : i];
  }
  return inside;
}

}  // namespace

std::size_t ShellRun::after_piece(std::string_view raw, std::size_t at, bool in_double) const {
  return raw[at] == kShellUnknown ? after_unknown(raw, at)
                                  : after_shell_piece(raw, at, in_double, file_, line_);
}

void ShellRun::expand(std::string_view raw, std::vector<ShellText>& out, bool in_double, bool document) {
  if (++depth_ > 3 * kMaxJobFileDepth) refuse("expansions inside of each other, 192 deep");
  constexpr std::string_view kEmpty(&kShellEmpty, 1);
  for (std::size_t i = 0, end = 0; i < raw.size(); i = end) {
    const char c = raw[i], next = i + 1 < raw.size() ? raw[i + 1] : '\0';
    charge(1);
    const bool quotes = c == '"' && !document;
    if (quotes && in_double) refuse("quotes inside of quotes");
    end = document && c == '"' ? i + 1 : after_piece(raw, i, in_double);
    const std::string_view piece = raw.substr(i, end - i);
    if (c == kShellUnknown) {
      out.back().add(piece, ShellText::kQuoted);
    } else if (c == '\\') {
      const std::string_view escaped = document ? "$`\\" : "$`\"\\";
      const bool stays = in_double && next != '\n' && escaped.find(next) == std::string_view::npos;
      if (stays || next == '\0') out.back().add("\\", ShellText::kQuoted);
      if (next != '\n') out.back().add(piece.substr(1), ShellText::kQuoted);
    } else if (c == '\'' && !in_double) {
      out.back().add(kEmpty, ShellText::kQuoted);
      out.back().add(piece.substr(1, piece.size() - 2), ShellText::kQuoted);
    } else if (quotes) {
      const std::size_t texts = out.size(), size = out.back().chars.size();
      empty_list_ = false;
      expand(piece.substr(1, piece.size() - 2), out, true);
      if (out.size() == texts && out.back().chars.size() == size && !empty_list_)
        out.back().add(kEmpty, ShellText::kQuoted);
    } else if (c == '`' || (piece.size() > 1 && c == '$')) {
      expansion(piece, out, in_double);
    } else if (c == '$' && next == '[') {
      refuse("$[ ]");
    } else if (const std::size_t n = c == '$' ? parameter_length(raw.substr(i + 1), false) : 0; n > 0) {
      end = i + 1 + n;
      braced(raw.substr(i + 1, n), out, in_double);
    } else if (c != '$' || next != '"' || in_double) {
      out.back().add(piece, in_double ? ShellText::kQuoted : ShellText::kLiteral);
    }
  }
  --depth_;
}

// $( ), $(( )), ` `, ${ }, $' '
void ShellRun::expansion(std::string_view piece, std::vector<ShellText>& out, bool in_double) {
  const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
  if (piece[0] == '`') {
    out.back().add(output_of(unescaped_backquotes(piece.substr(1, piece.size() - 2))), mark);
  } else if (piece[1] == '{') {
    braced(piece.substr(2, piece.size() - 3), out, in_double);
  } else if (piece[1] == '\'') {
    refuse(one_line(piece));
  } else if (piece.starts_with("$((")) {
    const Number number = arithmetic(quoted(piece.substr(3, piece.size() - 5)));
    out.back().add(number ? std::to_string(*number) : unknown(piece, one_line(piece) + " cannot be told"),
                   mark);
  } else {
    out.back().add(output_of(piece.substr(2, piece.size() - 3)), mark);
  }
}

void ShellRun::add(const Found& found, std::vector<ShellText>& out, bool in_double) {
  const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
  for (const std::string& item : found.items) count(item.size());
  if (!found.list || (in_double && found.star)) {
    out.back().add(join(found.items, " "), mark);
    return;
  }
  if (found.items.empty()) empty_list_ = true;
  for (std::size_t i = 0; i < found.items.size(); ++i) {
    if (i > 0) out.emplace_back();
    if (in_double) out.back().add(std::string(1, kShellEmpty), mark);
    out.back().add(found.items[i], mark);
  }
}

// Expands the text between ${ and }, or after $.
void ShellRun::braced(std::string_view inside, std::vector<ShellText>& out, bool in_double) {
  const std::string written = is_shell_name(inside) || inside.size() == 1 ? "$" + std::string(inside)
                                                                          : "${" + std::string(inside) + "}";
  const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
  const auto not_followed = [&] { out.back().add(not_changed(inside, written), mark); };
  std::string_view rest = inside;
  const bool length = rest.size() > 1 && rest[0] == '#' && std::string_view("%:/#-=+?").find(rest[1]) == npos;
  if (length) rest.remove_prefix(1);
  const std::string name(rest.substr(0, parameter_length(rest, true)));
  rest.remove_prefix(name.size());
  std::string_view subscript;
  if (rest.starts_with('[') && is_shell_name(name)) {
    const std::size_t end = std::min(rest.find(']'), rest.size() - 1);
    subscript = rest.substr(1, end - 1);
    if (subscript.find_first_of("[${") != npos) return not_followed();
    rest.remove_prefix(end + 1);
  }
  if (name.empty() || ((name == "!" || name == "#") && !rest.empty())) return not_followed();
  Found found = find(name, subscript, written);
  const bool unsure = found.outside || std::ranges::any_of(found.items, has_unknown);
  if (length) {
    const std::string text = join(found.items, " ");
    if (!rest.empty() || unsure || !found.set || !is_ascii(text)) return not_followed();
    out.back().add(std::to_string(found.list ? found.items.size() : text.size()), mark);
    return;
  }
  if (with_default(found, name, rest, out, in_double)) return;
  if (!found.set && state_.nounset && !found.list) refuse(written + ", which is not set under set -u,");
  if (found.outside && state_.nounset) note(written + " is taken as set from outside");
  if (rest.starts_with(':')) return sliced(found, rest) ? add(found, out, in_double) : not_followed();
  if (!rest.empty() && std::string_view("#%/").find(rest[0]) == npos) return not_followed();
  for (std::string& item : found.items)
    if (!rest.empty()) item = changed_text(item, rest, written);
  add(found, out, in_double);
}

// Returns the result of an unsupported expansion, which must not change a variable.
std::string ShellRun::not_changed(std::string_view inside, const std::string& written) {
  for (const std::string_view sign : {"$(", "`", "++", "--", "="})
    if (inside.find(sign) != npos) refuse(written);
  return unknown(written, written + " is not followed");
}

// Slices ${X:2}, ${X:2:3}, ${A[@]:1} and ${@:2} with plain numbers; returns false where that is not
// supported.
bool ShellRun::sliced(Found& found, std::string_view operation) const {
  const std::size_t colon = std::min(operation.find(':', 1), operation.size());
  const Number from = decimal(operation.substr(1, colon - 1)),
               length = colon < operation.size() ? decimal(operation.substr(colon + 1)) : Number(INT32_MAX);
  if (!from || !length || *from < 0 || *length < 0 || found.outside ||
      std::ranges::any_of(found.items, has_unknown))
    return false;
  // A plain variable is sliced as text, even with [@].
  if (found.list && !found.arguments && found.items.size() == 1) return false;
  const auto start = static_cast<std::size_t>(*from), size = static_cast<std::size_t>(*length);
  if (!found.list) {
    if (found.items.empty() || !is_ascii(found.items[0])) return false;
    found.items[0] = start < found.items[0].size() ? found.items[0].substr(start, size) : "";
    return true;
  }
  // The first argument is $1.
  const std::size_t first = found.arguments ? start - 1 : start;
  if (found.arguments && start == 0) return false;
  Words some;
  for (std::size_t i = first; i < found.items.size() && i - first < size; ++i) some.push_back(found.items[i]);
  found.items = std::move(some);
  return true;
}

// Expands ${X:-d} and similar; returns false for other expansions.
bool ShellRun::with_default(const Found& found, const std::string& name, std::string_view operation,
                            std::vector<ShellText>& out, bool in_double) {
  const bool colon = operation.starts_with(':');
  if (colon) operation.remove_prefix(1);
  if (operation.empty() || std::string_view("-=+?").find(operation[0]) == npos) return false;
  const char kind = operation[0];
  const std::string_view operand = operation.substr(1);
  const std::string text = join(found.items, " ");
  const bool set = found.set && !found.outside && !(colon && text.empty());
  if (set && !text.empty() && may_be_empty(text)) {
    if (kind == '=' || operand.find_first_of("=`(") != npos)
      refuse(fmt::format("a default for ${}, of which it cannot be told whether it is set,", name));
    out.back().add(unknown("${" + name + "}", script_.unknown(text)), ShellText::kQuoted);
  } else if (kind == '?') {
    if (!set && !found.outside) refuse("$" + name + ", which is not set,");
    if (found.outside) note(fmt::format("${} is taken as set from outside", name));
    add(found, out, in_double);
  } else if (kind == '+') {
    if (found.outside) script_.assumed_.insert("$" + name);
    if (set)
      add_default(operand, out, in_double);
    else
      empty_list_ = empty_list_ || found.list;
  } else if (set) {
    add(found, out, in_double);
  } else if (kind == '=') {
    if (!is_shell_name(name)) refuse("an assignment to $" + name);
    Found now;
    now.items = {value(operand)};
    set_variable(name, now.items[0]);
    add(now, out, in_double);
  } else {
    add_default(operand, out, in_double);
  }
  return true;
}

void ShellRun::add_default(std::string_view operand, std::vector<ShellText>& out, bool in_double) {
  if (operand.starts_with('~')) refuse("~ behind a default");
  if (in_double && operand.find('\'') != npos) refuse("a quote in a default");
  const std::size_t texts = out.size(), from = out.back().chars.size();
  const bool quoted = in_double && operand.size() > 1 && operand.find('"', 1) == operand.size() - 1;
  if (quoted && operand.starts_with('"'))
    expand(operand.substr(1, operand.size() - 2), out, true);
  else
    expand(operand, out, in_double);
  // Outside of quotes a default is split like a variable.
  for (std::size_t t = texts - 1; t < out.size(); ++t)
    for (std::size_t i = t + 1 == texts ? from : 0; i < out[t].marks.size(); ++i)
      if (out[t].marks[i] == ShellText::kLiteral) out[t].marks[i] = ShellText::kExpanded;
}

// ${X#a}, ${X%a}, ${X/a/b}
std::string ShellRun::changed_text(const std::string& text, std::string_view operation,
                                   const std::string& written) {
  const char kind = operation[0];
  const bool twice = operation.size() > 1 && operation[1] == kind;
  operation.remove_prefix(twice ? 2 : 1);
  if (!is_ascii(text) || has_unknown(text)) return not_changed(operation, written);
  if (kind == '/') return replaced_text(text, operation, twice, written);
  const ShellText fits = pattern(operation);
  std::string best = text;
  for (std::size_t n = 0; n <= text.size(); ++n) {
    charge(1 + text.size() / 16);
    const std::string_view all = text, cut = kind == '#' ? all.substr(0, n) : all.substr(text.size() - n);
    const auto matches = shell_match(fits, cut);
    if (!matches) return not_changed(operation, written);
    if (!*matches) continue;
    best = kind == '#' ? text.substr(n) : text.substr(0, text.size() - n);
    if (!twice) break;
  }
  return best;
}

// For literal text only.
std::string ShellRun::replaced_text(const std::string& text, std::string_view operation, bool every,
                                    const std::string& written) {
  std::size_t slash = 0;
  while (slash < operation.size() && operation[slash] != '/') slash = after_piece(operation, slash, false);
  const ShellText from = pattern(operation.substr(0, slash));
  const std::string to = slash < operation.size() ? value(operation.substr(slash + 1)) : "",
                    what = from.plain();
  const bool at_an_end = !every && (operation.starts_with('#') || operation.starts_with('%'));
  if (at_an_end || from.is_pattern() || what.empty() || has_unknown(what) ||
      to.find_first_of("&\\") != npos || what.find('\\') != npos)
    return not_changed(operation, written);
  std::string made;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(what, at);
    made += text.substr(at, found == npos ? npos : found - at);
    if (found == npos) return made;
    made += to;
    count(to.size());
    at = found + what.size();
    if (!every) return made + text.substr(at);
  }
}

std::string ShellRun::output_of(std::string_view inside) {
  const std::string written = "$(" + std::string(inside) + ")";
  if (trim(inside).starts_with('<')) return unknown(written, "it is the text of a file");
  const bool assuming = std::exchange(assuming_, false);
  const std::string before = std::exchange(state_.out, "");
  const long line = line_;
  ++capturing_;
  in_subshell([&] {
    state_.errexit = false;
    evaluate(std::string(inside));
  });
  --capturing_;
  std::string out = std::exchange(state_.out, before);
  assuming_ = assuming, line_ = line;
  substitution_ = state_.status;
  while (out.ends_with('\n')) out.pop_back();
  return has_unknown(out) ? unknown(written, "it is the output of a command") : out;
}

std::string ShellRun::joined(std::string_view raw, bool in_double, bool document) {
  std::vector<ShellText> out(1);
  expand(raw, out, in_double, document);
  std::string text;
  for (std::size_t i = 0; i < out.size(); ++i) text += (i > 0 ? " " : "") + out[i].plain();
  return text;
}

std::string ShellRun::value(std::string_view raw) {
  if (raw.starts_with('~') || raw.find(":~") != npos) return unknown(raw, "~ is a folder of the machine");
  return joined(raw, false);
}

std::string ShellRun::quoted(std::string_view raw, bool document) { return joined(raw, true, document); }

ShellText ShellRun::pattern(std::string_view raw) {
  std::vector<ShellText> out(1);
  expand(raw, out, false);
  if (raw.starts_with('~') || out.size() > 1) refuse("the pattern " + std::string(raw));
  return out[0];
}

ShellRun::Words ShellRun::fields(const std::vector<ShellWord>& words) {
  Words all;
  for (const ShellWord& word : words) {
    line_ = word.line;
    fields(word.raw, all);
  }
  return all;
}

void ShellRun::fields(std::string_view raw, Words& all) {
  if (raw.starts_with('~') || raw.find("=~/") != npos) {
    all.push_back(unknown(raw, "~ is a folder of the machine"));
    return;
  }
  if (braces(raw, all)) return;
  std::vector<ShellText> out(1);
  expand(raw, out, false);
  for (const ShellText& text : out) split_text(text, all);
}

// Expands {1..4} as a word, with which scripts count; returns false where the word has no braces. Refuses
// other braces.
bool ShellRun::braces(std::string_view raw, Words& all) {
  const std::size_t dots = raw.find("..");
  const Number low = dots == npos ? Number() : decimal(raw.substr(1, dots - 1)),
               high = low ? decimal(raw.substr(dots + 2, raw.size() - dots - 3)) : Number();
  if (high && raw[0] == '{' && raw.ends_with('}') && *high >= *low && *high - *low < 10'000) {
    for (std::int64_t i = *low; i <= *high; ++i) all.push_back(std::to_string(i));
    return true;
  }
  bool open = false, several = false;
  for (std::size_t i = 0; i < raw.size(); i = after_piece(raw, i, false)) {
    open = open || raw[i] == '{';
    // Bash does not expand a range with a variable.
    several = several || (open && (raw[i] == ',' || (dots == i && raw.find('$') == npos)));
    if (several && raw[i] == '}') refuse("the braces of " + std::string(raw));
  }
  return false;
}

void ShellRun::split_text(const ShellText& text, Words& all) {
  ShellText open;
  const auto push = [&] {
    std::string word = open.plain();
    count(word.size());
    if (open.is_pattern()) {
      // File names have a dot or a slash; a job's layout, as of layers, has none.
      if (word.find_first_of("./") != npos || word.find_first_not_of('*') == npos)
        word = unknown(word, "files may match " + in_quotes(word));
      else
        note(script_.shown(word) + ": taken as it stands: no file is taken to match it");
    }
    if (!open.chars.empty()) all.push_back(std::move(word));
    open = {};
  };
  for (std::size_t i = 0, end = 0; i < text.chars.size(); i = end) {
    const char c = text.chars[i];
    end = c == kShellUnknown ? after_unknown(text.chars, i) : i + 1;
    if (text.marks[i] == ShellText::kExpanded && (c == ' ' || c == '\t' || c == '\n'))
      push();
    else
      open.add(std::string_view(text.chars).substr(i, end - i),
               c == kShellUnknown ? ShellText::kQuoted : text.marks[i]);
  }
  push();
}

}  // namespace moesim::tools
