#include <fmt/format.h>

#include <cctype>

#include "base/text.h"
#include "tools/moesim/jobs/job_file.h"
#include "tools/moesim/jobs/shell_run.h"

namespace moesim::tools {

namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_special(char c) { return std::string_view("@*#?$!-").find(c) != std::string_view::npos; }

// The length of a parameter's name at the start of a text.
std::size_t parameter_length(std::string_view text, bool digits) {
  if (text.empty()) return 0;
  if (is_special(text[0])) return 1;
  std::size_t n = 0;
  if (is_digit(text[0])) {
    while (n < text.size() && is_digit(text[n]) && (digits || n == 0)) ++n;
  } else {
    while (is_shell_name(text.substr(0, n + 1)) && n < text.size()) ++n;
  }
  return n;
}

// Where the unknown piece ends that begins at `at`.
std::size_t after_unknown(std::string_view text, std::size_t at) {
  return std::min(text.find(kShellUnknown, at + 1), text.size() - 1) + 1;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string unescaped_backquotes(std::string_view text) {
  std::string inside;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() &&
        std::string_view("$`\\").find(text[i + 1]) != std::string_view::npos)
      ++i;
    inside += text[i];
  }
  return inside;
}

}  // namespace

void ShellRun::expand(std::string_view raw, std::vector<ShellText>& out, bool in_double, bool document) {
  if (++depth_ > 3 * kMaxJobFileDepth) refuse("expansions inside of each other, 192 deep");
  const char literal = in_double ? ShellText::kQuoted : ShellText::kLiteral;
  for (std::size_t i = 0; i < raw.size();) {
    const char c = raw[i], next = i + 1 < raw.size() ? raw[i + 1] : '\0';
    charge(1);
    if (c == kShellUnknown) {
      const std::size_t end = after_unknown(raw, i);
      out.back().add(raw.substr(i, end - i), ShellText::kQuoted);
      i = end;
    } else if (c == '\\') {
      const bool stays = next == '\0' || (in_double && next != '\n' &&
                                          std::string_view(document ? "$`\\" : "$`\"\\").find(next) ==
                                              std::string_view::npos);
      if (stays) out.back().add("\\", ShellText::kQuoted);
      if (next != '\0' && next != '\n') out.back().add({&next, 1}, ShellText::kQuoted);
      i += 2;
    } else if (c == '\'' && !in_double) {
      const std::size_t end = std::min(raw.find('\'', i + 1), raw.size());
      out.back().add(std::string(1, kShellEmpty), ShellText::kQuoted);
      out.back().add(raw.substr(i + 1, end - i - 1), ShellText::kQuoted);
      i = end + 1;
    } else if (c == '"' && !document && in_double) {
      refuse("quotes inside of quotes");
    } else if (c == '"' && !in_double) {
      const std::size_t end = after_shell_piece(raw, i, false);
      const std::size_t texts = out.size(), size = out.back().chars.size();
      empty_list_ = false;
      expand(raw.substr(i + 1, end - i - 2), out, true);
      if (out.size() == texts && out.back().chars.size() == size && !empty_list_)
        out.back().add(std::string(1, kShellEmpty), ShellText::kQuoted);
      i = end;
    } else if (c == '$' && next == '"' && !in_double) {
      ++i;
    } else if (c == '`' ||
               (c == '$' && (next == '{' || next == '(' || next == '[' || (next == '\'' && !in_double)))) {
      const std::size_t end = after_shell_piece(raw, i, in_double);
      if (end > raw.size())
        fail("an expansion that does not end: " + in_quotes(one_line(raw.substr(i, 20))), "its end");
      expansion(raw.substr(i, end - i), out, in_double);
      i = end;
    } else if (const std::size_t n = c == '$' ? parameter_length(raw.substr(i + 1), false) : 0; n > 0) {
      braced(raw.substr(i + 1, n), out, in_double);
      i += n + 1;
    } else if ((c == '<' || c == '>') && next == '(' && !in_double) {
      const std::string& text = sources_.emplace_back("$" + std::string(raw.substr(i + 1)));
      const std::size_t end = after_shell_piece(text, 0, false);
      if (end > text.size()) refuse(std::string(raw.substr(i)));
      output_of(std::string_view(text).substr(2, end - 3));
      out.back().add(unknown(raw.substr(i, end), "it is a file that bash makes"), ShellText::kQuoted);
      i += end;
    } else {
      out.back().add(raw.substr(i++, 1), literal);
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
    if (piece.find('\\') != std::string_view::npos) refuse("escapes in " + one_line(piece));
    out.back().add(std::string(1, kShellEmpty), ShellText::kQuoted);
    out.back().add(piece.substr(2, piece.size() - 3), ShellText::kQuoted);
  } else if (piece[1] == '[') {
    refuse("$[ ]");
  } else if (piece.starts_with("$((")) {
    const std::string inside = quoted(piece.substr(3, piece.size() - 5));
    const Number number = arithmetic(inside);
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

// What stands between ${ and }, or behind $.
void ShellRun::braced(std::string_view inside, std::vector<ShellText>& out, bool in_double) {
  const std::string written = is_shell_name(inside) || inside.size() == 1 ? "$" + std::string(inside)
                                                                          : "${" + std::string(inside) + "}";
  const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
  const auto not_followed = [&] {
    for (const std::string_view sign : {"$(", "`", "++", "--", "="})
      if (inside.find(sign) != std::string_view::npos) refuse(written);
    out.back().add(unknown(written, written + " is not followed"), mark);
  };
  std::string_view rest = inside;
  const bool length = rest.size() > 1 && rest[0] == '#' &&
                      (is_shell_name(rest.substr(1, 1)) || is_digit(rest[1]) || rest == "#@" || rest == "#*");
  if (length) rest.remove_prefix(1);
  const std::size_t n = parameter_length(rest, true);
  const std::string name(rest.substr(0, n));
  rest.remove_prefix(n);
  std::string_view subscript;
  if (rest.starts_with('[') && is_shell_name(name)) {
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos ||
        rest.substr(1, end - 1).find_first_of("[${") != std::string_view::npos)
      return not_followed();
    subscript = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
  }
  if (name.empty() || (name == "!" && !rest.empty())) return not_followed();
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
  if (rest.empty()) return add(found, out, in_double);
  if (std::string_view("#%/").find(rest[0]) == std::string_view::npos) return not_followed();
  for (std::string& item : found.items) item = changed_text(item, rest, written);
  add(found, out, in_double);
}

// ${X:-d} and its like; false: it is another expansion.
bool ShellRun::with_default(const Found& found, const std::string& name, std::string_view operation,
                            std::vector<ShellText>& out, bool in_double) {
  const bool colon = operation.starts_with(':');
  if (colon) operation.remove_prefix(1);
  if (operation.empty() || std::string_view("-=+?").find(operation[0]) == std::string_view::npos)
    return false;
  const char kind = operation[0];
  const std::string_view operand = operation.substr(1);
  const std::string text = join(found.items, " ");
  bool said = found.set && !found.outside && !(colon && text.empty());
  if (said && !text.empty() && may_be_empty(text)) {
    if (kind == '=' || operand.find_first_of("=`(") != std::string_view::npos)
      refuse(fmt::format("a default for ${}, of which it cannot be told whether it is set,", name));
    out.back().add(unknown("${" + name + "}", script_.unknown(text)), ShellText::kQuoted);
    return true;
  }
  if (kind == '?') {
    if (!said && !found.outside) refuse("$" + name + ", which is not set,");
    if (found.outside) note(fmt::format("${} is taken as set from outside", name));
    add(found, out, in_double);
    return true;
  }
  if (kind == '+') {
    if (found.outside) script_.assumed_.insert("$" + name);
    said = !said;
  }
  if (said) {
    if (kind != '+') add(found, out, in_double);
    if (kind == '+' && found.list) empty_list_ = true;
    return true;
  }
  if (kind == '=') {
    if (!is_shell_name(name)) refuse("an assignment to $" + name);
    const std::string given = value(operand);
    set(name, given);
    Found now;
    now.items = {given};
    add(now, out, in_double);
    return true;
  }
  if (operand.starts_with('~')) refuse("~ behind a default");
  const std::size_t texts = out.size(), from = out.back().chars.size();
  if (in_double && operand.find('\'') != std::string_view::npos) refuse("a quote in a default");
  if (in_double && operand.size() > 1 && operand.starts_with('"') &&
      operand.find('"', 1) == operand.size() - 1)
    expand(operand.substr(1, operand.size() - 2), out, true);
  else
    expand(operand, out, in_double);
  // Outside of quotes a default is split as a variable is.
  for (std::size_t t = texts - 1; t < out.size(); ++t)
    for (std::size_t i = t + 1 == texts ? from : 0; i < out[t].marks.size(); ++i)
      if (out[t].marks[i] == ShellText::kLiteral) out[t].marks[i] = ShellText::kExpanded;
  return true;
}

// ${X#a}, ${X%a}, ${X/a/b}
std::string ShellRun::changed_text(const std::string& text, std::string_view operation,
                                   const std::string& written) {
  const char kind = operation[0];
  const bool twice = operation.size() > 1 && operation[1] == kind;
  operation.remove_prefix(twice ? 2 : 1);
  const auto cannot = [&] {
    if (operation.find_first_of("=`(") != std::string_view::npos) refuse(written);
    return unknown(written, written + " is not followed");
  };
  if (!is_ascii(text) || has_unknown(text)) return cannot();
  if (kind != '/') {
    const ShellText fits = pattern(operation);
    std::string best = text;
    for (std::size_t n = 0; n <= text.size(); ++n) {
      charge(1 + text.size() / 16);
      const std::string_view all = text, cut = kind == '#' ? all.substr(0, n) : all.substr(text.size() - n);
      const auto matches = shell_match(fits, cut);
      if (!matches) return cannot();
      if (!*matches) continue;
      best = kind == '#' ? text.substr(n) : text.substr(0, text.size() - n);
      if (!twice) break;
    }
    return best;
  }
  std::size_t slash = 0;
  while (slash < operation.size() && operation[slash] != '/')
    slash = after_shell_piece(operation, slash, false);
  if (!twice && (operation.starts_with('#') || operation.starts_with('%'))) return cannot();
  const ShellText from = pattern(operation.substr(0, std::min(slash, operation.size())));
  const std::string to = slash < operation.size() ? value(operation.substr(slash + 1)) : "",
                    what = from.plain();
  if (from.is_pattern() || what.empty() || has_unknown(what) ||
      to.find_first_of("&\\") != std::string::npos || what.find('\\') != std::string::npos)
    return cannot();
  std::string made;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(what, at);
    made += text.substr(at, found == std::string::npos ? found : found - at);
    if (found == std::string::npos) return made;
    made += to;
    count(to.size());
    at = found + what.size();
    if (!twice) return made + text.substr(at);
  }
}

std::string ShellRun::output_of(std::string_view inside) {
  const std::string written = "$(" + std::string(inside) + ")";
  if (trim(inside).starts_with('<')) return unknown(written, "it is the text of a file");
  const bool assuming = std::exchange(assuming_, false);
  const std::string before = std::exchange(state_.out, "");
  const long line = line_;
  std::string out;
  ++capturing_;
  in_subshell([&] {
    state_.errexit = false;
    evaluate(std::string(inside));
  });
  --capturing_;
  out = std::exchange(state_.out, before);
  assuming_ = assuming, line_ = line;
  substitution_ = state_.status;
  while (out.ends_with('\n')) out.pop_back();
  return has_unknown(out) ? unknown(written, "it is the output of a command") : out;
}

std::string ShellRun::value(std::string_view raw) {
  if (raw.starts_with('~') || raw.find(":~") != std::string_view::npos)
    return unknown(raw, "~ is a folder of the machine");
  std::vector<ShellText> out(1);
  expand(raw, out, false);
  std::string text;
  for (std::size_t i = 0; i < out.size(); ++i) text += (i > 0 ? " " : "") + out[i].plain();
  return text;
}

std::string ShellRun::quoted(std::string_view raw, bool document) {
  std::vector<ShellText> out(1);
  expand(raw, out, true, document);
  std::string text;
  for (std::size_t i = 0; i < out.size(); ++i) text += (i > 0 ? " " : "") + out[i].plain();
  return text;
}

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
  if (raw.starts_with('~') || raw.find("=~/") != std::string_view::npos) {
    all.push_back(unknown(raw, "~ is a folder of the machine"));
    return;
  }
  for (const std::string_view one : braces(raw)) {
    std::vector<ShellText> out(1);
    expand(one, out, false);
    for (const ShellText& text : out) split_text(text, all);
  }
}

// {a,b} and {1..4}, once in a word.
std::vector<std::string_view> ShellRun::braces(std::string_view raw) {
  std::size_t open = std::string_view::npos, close = open, dots = open;
  std::vector<std::size_t> commas;
  for (std::size_t i = 0; i < raw.size() && close == std::string_view::npos;) {
    if (raw[i] == '{' && open != std::string_view::npos) refuse("braces inside of braces");
    if (raw[i] == '{') open = i;
    if (open != std::string_view::npos && raw[i] == ',') commas.push_back(i);
    if (open != std::string_view::npos && raw.substr(i).starts_with("..")) dots = i;
    if (open != std::string_view::npos && raw[i] == '}') close = i;
    i = raw[i] == kShellUnknown ? after_unknown(raw, i) : after_shell_piece(raw, i, false);
  }
  if (close == std::string_view::npos || (commas.empty() && dots == std::string_view::npos)) return {raw};
  if (raw.find('{', close) != std::string_view::npos) refuse("several braces in a word");
  std::vector<std::string> middles;
  if (!commas.empty()) {
    commas.push_back(close);
    for (std::size_t from = open + 1; const std::size_t to : commas)
      middles.emplace_back(raw.substr(from, to - from)), from = to + 1;
  } else {
    const Number low = decimal(raw.substr(open + 1, dots - open - 1)),
                 high = decimal(raw.substr(dots + 2, close - dots - 2));
    if (raw.find('$', open) < close) return {raw};  // bash does not count to a variable
    if (!low || !high || *high < *low || *high - *low > 10'000) refuse("the braces of " + std::string(raw));
    for (std::int64_t i = *low; i <= *high; ++i) middles.push_back(std::to_string(i));
  }
  std::vector<std::string_view> all;
  for (const std::string& middle : middles) {
    count(raw.size() + middle.size());
    const std::string& word =
        sources_.emplace_back(std::string(raw.substr(0, open)) + middle + std::string(raw.substr(close + 1)));
    if (word.starts_with('~')) refuse("~ behind braces");
    if (!word.empty()) all.push_back(word);
  }
  return all;
}

void ShellRun::split_text(const ShellText& text, Words& all) {
  ShellText open;
  const auto push = [&] {
    std::string word = open.plain();
    count(word.size());
    if (open.is_pattern()) {
      // Names of files have a dot or a slash; a job's layout, as of layers, has none.
      if (word.find_first_of("./") != std::string::npos || word.find_first_not_of('*') == std::string::npos)
        word = unknown(word, "files may match " + in_quotes(word));
      else
        note(script_.shown(word) + ": taken as it stands: no file is taken to match it");
    }
    if (!open.chars.empty()) all.push_back(std::move(word));
    open = {};
  };
  for (std::size_t i = 0; i < text.chars.size(); ++i) {
    const char c = text.chars[i];
    if (c == kShellUnknown) {
      const std::size_t end = after_unknown(text.chars, i);
      open.add(std::string_view(text.chars).substr(i, end - i), ShellText::kQuoted);
      i = end - 1;
    } else if (text.marks[i] == ShellText::kExpanded && (c == ' ' || c == '\t' || c == '\n')) {
      push();
    } else {
      open.add({&c, 1}, text.marks[i]);
    }
  }
  push();
}

}  // namespace moesim::tools
