// Interprets a script command by command.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <map>
#include <utility>

#include "base/text.h"
#include "tools/moesim/read/job_file.h"
#include "tools/moesim/read/shell_syntax.h"
#include "tools/moesim/read/shell_words.h"

namespace moesim::tools {

namespace {

constexpr std::size_t npos = std::string_view::npos;
constexpr std::size_t kMaxWork = 4'000'000;  // commands, characters read, variables copied

bool kept_by_bash(std::string_view name) { return is_script_word("kept", name); }

// Returns the length of a parameter's name at the start of a text. `digits`: it may have several.
std::size_t parameter_length(std::string_view text, bool digits) {
  if (text.empty()) return 0;
  if (std::string_view("@*#?$!-").find(text[0]) != npos) return 1;
  const std::size_t n = std::min(text.find_first_not_of("0123456789"), text.size());
  return n > 0 ? (digits ? n : 1) : shell_name_length(text);
}

std::string unescaped_backquotes(std::string_view text) {
  std::string inside;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escapes =
        text[i] == '\\' && i + 1 < text.size() && std::string_view("$`\\").find(text[i + 1]) != npos;
    inside += text[escapes ? ++i : i];
  }
  return inside;
}

std::string_view name_of_program(std::string_view word) { return word.substr(word.rfind('/') + 1); }

struct Variable {
  bool array = false, exported = false;
  std::vector<std::string> items;  // one for a plain variable; empty: not set

  bool operator==(const Variable&) const = default;
};
using Variables = std::map<std::string, Variable>;

const Variable* found_in(const Variables& variables, const std::string& name) {
  const auto at = variables.find(name);
  return at == variables.end() ? nullptr : &at->second;
}

Variable merged(const Variable* a, const Variable* b, const std::string& unknown) {
  if (a && b && *a == *b) return *a;
  Variable one;
  for (const Variable* v : {a, b})
    if (v) one.array |= v->array, one.exported |= v->exported;
  if (a && b && !one.array && a->items.size() == 1 && b->items.size() == 1) {
    one.items = {merged_text(a->items[0], b->items[0], unknown)};
    return one;
  }
  if (a && b && a->array && b->array)
    for (std::size_t i = 0; i < a->items.size() && i < b->items.size() && a->items[i] == b->items[i]; ++i)
      one.items.push_back(a->items[i]);
  if (one.items.empty() || one.items.back() != unknown) one.items.push_back(unknown);
  return one;
}

// The state of bash at one point of a script.
struct State {
  Variables variables;
  std::map<std::string, ShellNodePtr> functions;
  std::vector<std::string> arguments;  // $1, ...
  bool arguments_given = false;
  std::string anything;  // why every variable may have changed; empty: none has
  std::optional<int> status = 0;
  bool errexit = false, nounset = false, pipefail = false;
  bool left = false;  // by exit

  bool operator==(const State&) const = default;
};

// A script that submits itself, with sbatch's words.
struct Submitted {
  std::vector<std::string> words;
  std::size_t self;  // index of the script
  long line;
};

}  // namespace

class ShellRun {
 public:
  ShellRun(ShellScript& script, const std::string& file) : script_(script), file_(file) {}

  void run(std::string_view text, const std::vector<std::string>& variables,
           const Submitted& submitted = {}) {
    slurm_lines(text);
    slurm_options(submitted.words);
    for (const std::string& one : variables) {
      const std::size_t equals = std::min(one.find('='), one.size());
      const std::string name = one.substr(0, equals), given = one.substr(std::min(equals + 1, one.size()));
      if (const auto n = parse_int(name); n && *n > 0 && *n < 1000) {
        state_.arguments_given = true;
        state_.arguments.resize(std::max(state_.arguments.size(), static_cast<std::size_t>(*n)));
        state_.arguments[static_cast<std::size_t>(*n - 1)] = given;
      } else {
        state_.variables[name] = {false, true, {given}};
      }
    }
    for (const char sign : {kShellUnknown, kShellEmpty, '\0'})
      if (text.find(sign) != npos) fail("a control character", "a script's text");
    evaluate(std::string(text));
  }

 private:
  using Words = std::vector<std::string>;
  using Texts = std::vector<ShellText>;
  using Kind = ShellNode::Kind;
  // A looked-up parameter. `outside`: the script does not set it.
  struct Found {
    bool set = true, outside = false, list = false, star = false;
    Words items;
  };

  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw InputError(SourcePlace{file_, line_}, found, expected);
  }
  // Refuses an unsupported construct by name.
  [[noreturn]] void refuse(const std::string& what) const {
    fail(script_.shown(what) + (what.ends_with(",") ? " which is not followed" : ", which is not followed"),
         "a script without it");
  }
  [[noreturn]] void refuse_unset(const std::string& name) const {
    fail(fmt::format("${}, which is not set", name), fmt::format("its value (--with {}=VALUE)", name));
  }
  void charge(std::size_t work) {
    work_ += work;
    if (work_ > kMaxWork)
      fail("more steps than can be followed (a loop without end?)", "the arguments of one job");
  }
  void count(std::size_t bytes) {
    expanded_ += bytes;
    charge(1 + bytes / 64);
    if (expanded_ > kMaxExpandedBytes)
      fail("variables that expand to more than 16 MiB", "the arguments of one job");
  }
  // Returns a copy of the state, which costs its size.
  State copied() {
    std::size_t bytes = 0;
    for (const auto& [name, v] : state_.variables)
      for (const std::string& item : v.items) bytes += 64 + item.size();
    charge(state_.variables.size() + bytes / 64);
    return state_;
  }
  void note(const std::string& text) { script_.notes_.insert(fmt::format("{}:{}: {}", file_, line_, text)); }
  // Uses one index in the list for equal pieces, so that loops come to an end.
  std::string unknown(std::string_view text, const std::string& why) {
    const std::string shown = script_.shown(text);
    const auto [at, is_new] = unknowns_.try_emplace(shown + '\n' + why, script_.reasons_.size());
    if (is_new) script_.reasons_.push_back({shown, why});
    return kShellUnknown + std::to_string(at->second) + kShellUnknown;
  }

  // ---- Variables.

  const Variable* variable(const std::string& name) const { return found_in(state_.variables, name); }

  // Returns the variable for modification; refuses those that bash keeps.
  Variable& changed(const std::string& name) {
    if (kept_by_bash(name) && (name != "IFS" || substituting_ == 0))
      refuse("a change of " + name + ", which bash keeps,");
    return state_.variables[name];
  }

  void set_variable(const std::string& name, const std::string& given) {
    ShellAssignment a;
    a.name = name;
    assign(a, {given});
  }

  // Expands the right side of an assignment.
  Words items_of(const ShellAssignment& a) {
    line_ = a.value.line;
    return a.array ? fields(a.items) : Words{value(a.value.raw)};
  }

  void assign(const ShellAssignment& a, const Words& items) {
    const bool outside = a.append && !variable(a.name);
    const Words before = outside ? find(a.name, "", "$" + a.name).items : Words();
    Variable& v = changed(a.name);
    if (outside) v.items = before;
    if (a.array) {
      if (!a.append) v.items.clear();
      v.array = true;
      v.items.insert(v.items.end(), items.begin(), items.end());
      charge(v.items.size());
    } else {
      if (v.items.empty()) v.items.emplace_back();
      v.items[0] = (a.append ? v.items[0] : "") + items[0];
      count(v.items[0].size());
    }
  }

  // Marks every variable as possibly changed.
  void everything(const std::string& why) {
    state_.anything = why;
    state_.variables.clear();
    state_.functions.clear();
    state_.status = std::nullopt;
  }

  Found not_set(const std::string& name, const std::string& written) {
    Found found;
    found.outside = state_.anything.empty() && !is_script_word("present", name) && !kept_by_bash(name);
    if (found.outside &&
        (assuming_ == kTested || (assuming_ == kCompared && !is_script_word("of_launchers", name)))) {
      script_.assumed_.insert("$" + name);
      return {false, false, false, false, {}};
    }
    found.items = {unknown(
        written, state_.anything.empty() ? written + " is said outside of the file" : state_.anything)};
    return found;
  }

  // Finds $@, $#, $?, $1 and parameters known only in a run.
  Found find_special(const std::string& name, const std::string& written) {
    const Words& all = state_.arguments;
    const bool unsure = std::ranges::any_of(all, has_unknown);
    const auto n = parse_int(name);
    if (name == "@" || name == "*") return {!all.empty(), false, true, name == "*", all};
    if (name == "#" && !unsure) return {.items = {std::to_string(all.size())}};
    if (name == "?" && state_.status) return {.items = {std::to_string(*state_.status)}};
    if (!n || *n < 1 || unsure) return {.items = {unknown(written, written + " is only known in a run")}};
    if (static_cast<std::size_t>(*n) <= all.size()) return {.items = {all[static_cast<std::size_t>(*n - 1)]}};
    return state_.arguments_given ? Found{.set = false, .items = {}} : not_set(name, written);
  }

  Found find(const std::string& name, std::string_view subscript, const std::string& written) {
    if (!is_shell_name(name)) return find_special(name, written);
    const bool all = subscript == "@" || subscript == "*";
    const Variable* v = variable(name);
    Found found = v ? Found{} : not_set(name, written);
    if (!v || all || (v->items.empty() && subscript.empty())) {
      if (v) found.items = v->items, found.set = !v->items.empty();
      found.list = all, found.star = subscript == "*";
      return found;
    }
    if (!subscript.empty()) return {.items = {unknown(written, "which element it is is not followed")}};
    return {.items = {v->items[0]}};
  }

  void set_status(const ShellTruth& truth) {
    state_.status = truth ? std::optional(*truth ? 0 : 1) : std::nullopt;
  }

  // ---- Words.

  std::size_t after_piece(std::string_view raw, std::size_t at, bool in_double) const {
    return raw[at] == kShellUnknown ? after_unknown(raw, at)
                                    : after_shell_piece(raw, at, in_double, file_, line_);
  }

  void expand(std::string_view raw, Texts& out, bool in_double, bool document = false) {
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
        const bool stays = in_double && next != '\n' && escaped.find(next) == npos;
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
  void expansion(std::string_view piece, Texts& out, bool in_double) {
    const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
    if (piece[0] == '`') {
      out.back().add(output_of(unescaped_backquotes(piece.substr(1, piece.size() - 2))), mark);
    } else if (piece[1] == '{') {
      braced(piece.substr(2, piece.size() - 3), out, in_double);
    } else if (piece[1] == '\'') {
      refuse(one_line(piece));
    } else if (piece.starts_with("$((")) {
      const ShellNumber number = arithmetic(joined(piece.substr(3, piece.size() - 5), true));
      out.back().add(number ? std::to_string(*number) : unknown(piece, one_line(piece) + " cannot be told"),
                     mark);
    } else {
      out.back().add(output_of(piece.substr(2, piece.size() - 3)), mark);
    }
  }

  void add(const Found& found, Texts& out, bool in_double) {
    const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
    for (const std::string& item : found.items) count(item.size());
    if (!found.list || (in_double && found.star)) {
      const Variable* ifs = variable("IFS");
      out.back().add(join(found.items, ifs ? ifs->items[0].substr(0, 1) : " "), mark);
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
  void braced(std::string_view inside, Texts& out, bool in_double) {
    const std::string written = is_shell_name(inside) || inside.size() == 1
                                    ? "$" + std::string(inside)
                                    : "${" + std::string(inside) + "}";
    const char mark = in_double ? ShellText::kQuoted : ShellText::kExpanded;
    // The result of an unsupported expansion, which must not change a variable.
    const auto not_followed = [&] {
      for (const std::string_view sign : {"$(", "`", "++", "--", "="})
        if (inside.find(sign) != npos) refuse(written);
      out.back().add(unknown(written, written + " is not followed"), mark);
    };
    std::string_view rest = inside;
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
    const Found found = find(name, subscript, written);
    if (with_default(found, name, rest, out, in_double)) return;
    if (!found.set && state_.nounset && !found.list) refuse_unset(name);
    if (found.outside && state_.nounset) note(written + " is taken as set from outside");
    return rest.empty() ? add(found, out, in_double) : not_followed();
  }

  // Expands ${X:-d} and similar; returns false for other expansions.
  bool with_default(const Found& found, const std::string& name, std::string_view operation, Texts& out,
                    bool in_double) {
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
      if (!set && !found.outside) refuse_unset(name);
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

  void add_default(std::string_view operand, Texts& out, bool in_double) {
    if (operand.starts_with('~')) refuse("~ behind a default");
    if (in_double && operand.find('\'') != npos) refuse("a quote in a default");
    const std::size_t texts = out.size(), from = out.back().chars.size();
    expand(operand, out, in_double);
    // Outside of quotes a default is split like a variable.
    for (std::size_t t = texts - 1; t < out.size(); ++t)
      for (std::size_t i = t + 1 == texts ? from : 0; i < out[t].marks.size(); ++i)
        if (out[t].marks[i] == ShellText::kLiteral) out[t].marks[i] = ShellText::kExpanded;
  }

  // What commands print is unknown, except for one echo.
  std::string output_of(std::string_view inside) {
    const std::string written = "$(" + std::string(inside) + ")";
    if (trim(inside).starts_with('<')) return unknown(written, "it is the text of a file");
    const Assuming assuming = std::exchange(assuming_, kNo);
    const long line = line_;
    ShellNodePtr program;
    echoed_ = kShellUnknown;
    ++substituting_;
    in_subshell([&] {
      state_.errexit = false;
      program = evaluate(std::string(inside));
    });
    --substituting_;
    substitution_ = state_.status;
    assuming_ = assuming, line_ = line;
    while (echoed_.ends_with('\n')) echoed_.pop_back();
    // Assignments before it print nothing.
    const auto prints = [](const ShellNodePtr& part) {
      return part->kind != Kind::kSimple || !part->words.empty();
    };
    const bool one = std::ranges::count_if(program->parts, prints) == 1 && prints(program->parts.back());
    const ShellNode& command = one ? *program->parts.back() : *program;
    const auto is = [&](std::size_t i, auto name) {
      return command.words.size() > i && command.words[i].raw == name;
    };
    const bool echoes = command.redirects.empty() && (is(0, "echo") || (is(0, "eval") && is(1, "echo")));
    return echoes && !has_unknown(echoed_) && !echoed_.starts_with('-')
               ? echoed_
               : unknown(written, "it is the output of a command");
  }

  std::string joined(std::string_view raw, bool in_double, bool document = false) {
    Texts out(1);
    expand(raw, out, in_double, document);
    std::string text;
    for (std::size_t i = 0; i < out.size(); ++i) text += (i > 0 ? " " : "") + out[i].plain();
    return text;
  }

  std::string value(std::string_view raw) {
    if (raw.starts_with('~') || raw.find(":~") != npos) return unknown(raw, "~ is a folder of the machine");
    return joined(raw, false);
  }

  ShellText pattern(std::string_view raw) {
    Texts out(1);
    expand(raw, out, false);
    if (raw.starts_with('~') || out.size() > 1) refuse("the pattern " + std::string(raw));
    return out[0];
  }

  Words fields(const std::vector<ShellWord>& words) {
    Words all;
    for (const ShellWord& word : words) {
      line_ = word.line;
      fields(word.raw, all);
    }
    return all;
  }

  void fields(std::string_view raw, Words& all) {
    if (raw.starts_with('~') || raw.find("=~/") != npos)
      return all.push_back(unknown(raw, "~ is a folder of the machine"));
    if (braces(raw, all)) return;
    Texts out(1);
    expand(raw, out, false);
    for (const ShellText& text : out) split_text(text, all);
  }

  // Expands {1..4} as a word, with which scripts count; returns false where the word has no braces. Refuses
  // other braces.
  bool braces(std::string_view raw, Words& all) {
    const std::size_t dots = raw.find("..");
    const ShellNumber low = dots == npos ? ShellNumber() : shell_number(raw.substr(1, dots - 1)),
                      high = low ? shell_number(raw.substr(dots + 2, raw.size() - dots - 3)) : ShellNumber();
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

  void split_text(const ShellText& text, Words& all) {
    if (variable("IFS") && text.marks.find(ShellText::kExpanded) != npos) refuse("words that IFS splits,");
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

  // ---- Sums and tests.

  ShellNumber value_of(const std::string& name) {
    const Found found = find(name, "", "$" + name);
    if (found.outside) return std::nullopt;
    const std::string text = found.items.empty() ? "" : found.items[0];
    if (!found.set && state_.nounset) refuse_unset(name);
    if (has_unknown(text)) return std::nullopt;
    const ShellNumber v = text.empty() ? ShellNumber(0) : shell_number(text);
    if (!v) refuse(fmt::format("a sum of {}, which is {},", name, in_quotes(one_line(text))));
    return v;
  }

  // Evaluates an expression, or one assignment: NAME = expression, NAME += expression, NAME++.
  ShellNumber arithmetic(const std::string& all) {
    std::string text(trim(all));
    count(text.size());
    if (text.empty()) return 0;
    const std::string shown = in_quotes(one_line(script_.shown(all)));
    const auto steps = [](std::string_view two) { return two == "++" || two == "--"; };
    const bool first = steps(std::string_view(text).substr(0, 2)),
               last = !first && text.size() > 2 && steps(std::string_view(text).substr(text.size() - 2));
    if (first) text = fmt::format("{}{}=1", trim(text).substr(2), text[0]);
    if (last) text = fmt::format("{}{}=1", trim(text).substr(0, text.size() - 2), text.back());
    const std::string_view made = trim(text);
    const std::size_t n = shell_name_length(made);
    const std::string name(made.substr(0, n));
    const std::string_view rest = trim(made.substr(n));
    const bool plain = n > 0 && rest.starts_with('=') && !rest.starts_with("==");
    const bool with =
        n > 0 && rest.size() > 2 && rest[1] == '=' && std::string_view("+-*/%").find(rest[0]) != npos;
    const std::string right = with    ? fmt::format("{}{}({})", name, rest[0], rest.substr(2))
                              : plain ? std::string(rest.substr(1))
                                      : text;
    const ShellNumber old = last && with ? value_of(name) : ShellNumber();
    const ShellSum sum = shell_sum(right, [this](const std::string& one) { return value_of(one); });
    if (sum.by_zero) fail("a division by 0", "another divisor");
    if (!sum.read) refuse("the arithmetic " + shown);
    if (!plain && !with) return sum.value;
    set_variable(name,
                 sum.value ? std::to_string(*sum.value) : unknown("$" + name, shown + " cannot be told"));
    return last ? old : sum.value;
  }

  // Evaluates [[ ]]: tests joined by `sign`, "||" or "&&", from the words that are left. `skip`: bash would
  // not evaluate this part.
  ShellTruth tests(std::span<const ShellWord>& left, std::string_view sign, bool skip) {
    const ShellTruth wins = sign == "||", loses = sign != "||";
    const auto next = [&](bool skipped) {
      return sign == "||" ? tests(left, "&&", skipped) : one_test(left, skipped);
    };
    ShellTruth truth = next(skip);
    while (!left.empty() && left[0].raw == sign) {
      left = left.subspan(1);
      const ShellTruth right = next(skip || truth == wins);
      truth = truth == wins || right == wins ? wins : truth && right ? loses : ShellTruth();
    }
    return truth;
  }

  ShellTruth one_test(std::span<const ShellWord>& left, bool skip) {
    bool turned = false;
    for (; !left.empty() && left[0].raw == "!"; left = left.subspan(1)) turned = !turned;
    std::vector<std::string_view> raws;
    for (; !left.empty() && left[0].raw != "&&" && left[0].raw != "||"; left = left.subspan(1))
      raws.push_back(left[0].raw);
    if (skip || raws.size() > 3) return std::nullopt;
    const bool matches = raws.size() == 3 && (raws[1] == "=" || raws[1] == "==" || raws[1] == "!=");
    Words words;
    for (const std::string_view raw : raws) {
      assuming_ = matches                                                    ? kCompared
                  : raws.size() == 2 && (raws[0] == "-z" || raws[0] == "-n") ? kTested
                                                                             : kNo;
      if (!matches || words.empty()) words.push_back(value(raw));
      assuming_ = kNo;
    }
    const ShellTruth truth = matches ? shell_match(pattern(raws[2]), words[0]) : shell_test(words);
    return truth ? ShellTruth(*truth != ((matches && raws[1] == "!=") != turned)) : truth;
  }

  // ---- Commands.

  void execute(const ShellNode& node) {
    if (state_.left) return;
    charge(1);
    line_ = node.line;
    if (++depth_ > 3 * kMaxJobFileDepth) refuse("commands inside of each other, 192 deep");
    execute_kind(node);
    --depth_;
  }

  void execute_kind(const ShellNode& node) {
    switch (node.kind) {
      case Kind::kSimple:
        return simple(node);
      case Kind::kList:
        for (const ShellNodePtr& part : node.parts) execute(*part);
        return;
      case Kind::kAndOr:
        return and_or(node);
      case Kind::kNot:
        condition(*node.parts[0]);
        if (state_.status) state_.status = *state_.status == 0 ? 1 : 0;
        return;
      case Kind::kPipe:
        return pipe(node);
      case Kind::kIf:
        return if_of(node, 0);
      case Kind::kWhile:
        return while_of(node);
      case Kind::kFor:
        return for_of(node);
      case Kind::kCase: {
        const std::string subject = value(node.words[0].raw);
        state_.status = 0;
        return case_of(node, 0, subject);
      }
      case Kind::kFunction:
        state_.functions[node.text] = node.parts[0];
        state_.status = 0;
        return;
      case Kind::kSubshell:
        in_subshell([&] { execute(*node.parts[0]); });
        return leave_if_failed();
      case Kind::kArithmetic: {
        const ShellNumber v = arithmetic(joined(node.words[0].raw, true));
        set_status(v ? ShellTruth(*v != 0) : ShellTruth());
        return leave_if_failed();
      }
      case Kind::kTest: {
        std::span<const ShellWord> words = node.words;
        set_status(tests(words, "||", false));
        return leave_if_failed();
      }
    }
  }

  void condition(const ShellNode& node) {
    ++guarded_;
    execute(node);
    --guarded_;
  }

  // Runs something whose changes are lost; its status stays.
  template <class Run>
  void in_subshell(const Run& run) {
    State outside = copied();
    run();
    outside.status = state_.status;
    state_ = std::move(outside);
  }

  // Runs both of two alternatives where bash's choice is unknown, and joins their states.
  template <class One, class Other>
  void either(const One& one, const Other& other) {
    const State before = copied();
    ++uncertain_;
    one();
    State after = std::exchange(state_, before);
    other();
    --uncertain_;
    join_with(std::move(after));
  }

  // Runs a loop with an unknown number of iterations: variables that change in it become unknown.
  template <class Turn>
  void any_number_of(const Turn& turn) {
    for (bool changes = true; changes;) {
      state_.status = std::nullopt;
      const State before = copied();
      const std::size_t commands = script_.commands_.size();
      charge(1000);
      either(turn, [] {});
      state_.status = std::nullopt;
      changes = state_ != before;
      if (changes) script_.commands_.resize(commands);
    }
  }

  // Joins this path's state with the other's.
  void join_with(State other) {
    for (const auto& [one, two] : {std::pair(&state_, &other), std::pair(&other, &state_)})
      if (one->left && !two->left) {
        note("exit under a condition that cannot be told: taken as not reached");
        if (one == &state_) state_ = std::move(other);
        return;
      }
    if (state_.functions != other.functions) refuse("a function under a condition that cannot be told,");
    const auto either_of = [this](const std::string& name) {
      return unknown("$" + name, "$" + name + " is set under a condition that cannot be told");
    };
    Variables all = state_.variables;
    all.insert(other.variables.begin(), other.variables.end());
    for (auto& [name, value] : all)
      value = merged(variable(name), found_in(other.variables, name), either_of(name));
    state_.variables = std::move(all);
    if (state_.arguments != other.arguments) state_.arguments = {either_of("@")};
    state_.arguments_given = state_.arguments_given && other.arguments_given;
    if (state_.anything.empty()) state_.anything = other.anything;
    if (state_.status != other.status) state_.status = std::nullopt;
  }

  void and_or(const ShellNode& node) {
    const auto is_test = [](const ShellNode& part) {
      const std::string_view first = part.words.empty() ? "" : part.words[0].raw;
      return part.kind != Kind::kSimple || first == "[" || first == "test";
    };
    bool tests = false;
    for (std::size_t i = 0; i < node.parts.size() && !state_.left; ++i) {
      const auto run = [&] {
        i + 1 == node.parts.size() ? execute(*node.parts[i]) : condition(*node.parts[i]);
      };
      const bool with = i > 0 && node.text[i - 1] == '&';
      if (i == 0 || (state_.status && (*state_.status == 0) == with)) {
        run();
      } else if (!state_.status) {
        const std::size_t commands = script_.commands_.size();
        either(run, [] {});
        // A program that a job needs is assumed to succeed.
        if (with && !tests && uncertain_ == 0 && script_.commands_.size() > commands) {
          note("what stands before && is taken to succeed");
          for (std::size_t c = commands; c < script_.commands_.size(); ++c)
            script_.commands_[c].perhaps = false;
        }
      }
      tests = tests || is_test(*node.parts[i]);
    }
  }

  void pipe(const ShellNode& node) {
    for (const ShellNodePtr& part : node.parts) in_subshell([&] { execute(*part); });
    if (state_.pipefail) state_.status = std::nullopt;
    leave_if_failed();
  }

  void if_of(const ShellNode& node, std::size_t from) {
    if (from == node.parts.size()) state_.status = 0;
    if (from + 1 == node.parts.size()) execute(*node.parts[from]);
    if (from + 1 >= node.parts.size()) return;
    condition(*node.parts[from]);
    if (state_.left) return;
    if (state_.status) return *state_.status == 0 ? execute(*node.parts[from + 1]) : if_of(node, from + 2);
    either([&] { execute(*node.parts[from + 1]); }, [&] { if_of(node, from + 2); });
  }

  void case_of(const ShellNode& node, std::size_t from, const std::string& subject) {
    for (std::size_t i = from; i < node.parts.size(); ++i) {
      bool fits = false, unsure = false;
      for (const ShellWord& word : node.patterns[i]) {
        const ShellTruth one = shell_match(pattern(word.raw), subject);
        fits = fits || one.value_or(false);
        unsure = unsure || !one;
      }
      if (fits) return execute(*node.parts[i]);
      if (!unsure) continue;
      return either([&] { execute(*node.parts[i]); }, [&] { case_of(node, i + 1, subject); });
    }
  }

  void for_of(const ShellNode& node) {
    const Words words = node.given ? fields(node.words) : state_.arguments;
    state_.status = 0;
    const auto turn = [&](const std::string& word) {
      set_variable(node.text, word);
      execute(*node.parts[0]);
    };
    if (std::ranges::any_of(words, has_unknown))
      return any_number_of(
          [&] { turn(unknown("$" + node.text, "$" + node.text + " is one of a list that cannot be told")); });
    for (std::size_t i = 0; i < words.size() && !state_.left; ++i) turn(words[i]);
  }

  void while_of(const ShellNode& node) {
    if (node.parts.size() > 3) condition(*node.parts[3]);
    const auto body = [&] {
      execute(*node.parts[1]);
      if (node.parts.size() > 2) condition(*node.parts[2]);
    };
    while (!state_.left) {
      const State before = copied();
      const std::size_t commands = script_.commands_.size();
      condition(*node.parts[0]);
      if (state_.status && *state_.status != 0) break;
      if (state_.status) {
        body();
        continue;
      }
      state_ = before;
      script_.commands_.resize(commands);
      any_number_of([&] {
        condition(*node.parts[0]);
        body();
      });
      break;
    }
    state_.status = std::nullopt;
  }

  void simple(const ShellNode& node) {
    substitution_ = 0;
    const std::string_view first = node.words.empty() ? "" : node.words[0].raw;
    const std::string_view middle = node.words.size() == 5 ? node.words[2].raw : "";
    const bool compares = middle == "=" || middle == "==" || middle == "!=";
    Words words;
    for (std::size_t i = 0; i < node.words.size(); ++i) {
      line_ = node.words[i].line;
      const std::string_view before = i > 0 ? node.words[i - 1].raw : "";
      if (first == "[" || first == "test")
        assuming_ = compares ? kCompared : before == "-z" || before == "-n" ? kTested : kNo;
      fields(node.words[i].raw, words);
      assuming_ = kNo;
    }
    line_ = node.line;
    const auto prefix =
        std::span(node.assignments).first(words.empty() ? node.assignments.size() : node.prefix);
    if (words.empty()) {
      for (const ShellAssignment& a : prefix) assign(a, items_of(a));
      state_.status = substitution_;
    } else if (prefix.empty()) {
      run_words(node, words);
    } else {
      // Assignments before a command apply to its environment only.
      in_subshell([&] {
        for (const ShellAssignment& a : prefix) {
          assign(a, items_of(a));
          state_.variables[a.name].exported = true;
        }
        if (state_.functions.contains(words[0]) || builtin(node, words))
          refuse("an assignment in front of " + words[0]);
        external(node, words);
      });
    }
    leave_if_failed();
  }

  void run_words(const ShellNode& node, const Words& words) {
    if (const auto at = state_.functions.find(words[0]); at != state_.functions.end())
      return call(*at->second, words);
    // "$A" with the value "X=1" is neither an assignment nor a program.
    if (words[0].find('=') != npos)
      state_.status = 127;
    else if (!builtin(node, words))
      external(node, words);
  }

  void call(const ShellNode& body, const Words& words) {
    if (++calls_ > kMaxJobFileDepth) fail("functions inside of each other, 64 deep", "fewer");
    const Words arguments = std::exchange(state_.arguments, Words(words.begin() + 1, words.end()));
    const bool given = std::exchange(state_.arguments_given, true);
    execute(body);
    state_.arguments = arguments;
    state_.arguments_given = given;
    --calls_;
  }

  ShellNodePtr evaluate(std::string text) {
    if (++calls_ > kMaxJobFileDepth) fail("scripts inside of each other, 64 deep", "fewer");
    count(text.size());
    const ShellNodePtr program = parse_shell(sources_.emplace_back(std::move(text)), file_, line_);
    trees_.push_back(program);
    execute(*program);
    --calls_;
    return program;
  }

  // Applies `set -e` after a command.
  void leave_if_failed() {
    if (!state_.errexit || guarded_ > 0 || state_.left) return;
    if (!state_.status) may_have_failed_ = true;
    if (state_.status && *state_.status != 0) state_.left = true;
  }

  std::optional<std::string> input_of(const ShellNode& node) {
    std::optional<std::string> text;
    for (const ShellRedirect& r : node.redirects) {
      if (r.input) text.reset();
      if (r.input && r.body) text = r.verbatim ? *r.body : joined(*r.body, true, true);
    }
    return text;
  }

  // ---- Builtins and programs.

  bool builtin(const ShellNode& node, const Words& words) {
    const std::string& name = words[0];
    const std::span<const std::string> rest = std::span(words).subspan(1);
    const auto is = [&](auto... names) { return ((name == names) || ...); };
    if (is_script_word("not_followed", name) ||
        (name == "command" && !rest.empty() && !rest[0].starts_with('-')))
      refuse(name);
    state_.status = 0;
    if (is(":", "true")) return true;
    if (name == "false") return state_.status = 1, true;
    if (is("[", "test")) {
      const bool bracket = name == "[";
      if (bracket && (rest.empty() || rest.back() != "]")) refuse("[ without ]");
      return set_status(shell_test(rest.first(rest.size() - (bracket ? 1 : 0)))), true;
    }
    if (is("export", "declare", "typeset")) return declare(node, words), true;
    if (name == "unset") return unset(rest), true;
    if (name == "set") return set_options(rest), true;
    if (is("source", ".")) return source(words), true;
    if (name == "exit") {
      const auto n = rest.empty() ? std::nullopt : parse_int(rest[0]);
      state_.status = n ? std::optional(static_cast<int>(*n & 255)) : std::nullopt;
      return state_.left = true;
    }
    if (name == "exec") {
      if (rest.empty()) return true;
      external(node, Words(rest.begin(), rest.end()));
      return state_.left = true, true;
    }
    if (name == "eval") {
      const std::string text = join(rest, " ");
      const bool told = trim(text).empty() || !may_be_empty(text.substr(0, text.find(' ')));
      return told ? void(evaluate(text)) : everything("eval of a command that cannot be told"), true;
    }
    if (name == "shift") {
      const auto n = rest.empty() ? 1 : parse_int(rest[0]);
      Words& all = state_.arguments;
      if (!n || *n < 0 || std::ranges::any_of(all, has_unknown)) refuse("this shift");
      if (static_cast<std::size_t>(*n) > all.size()) return state_.status = 1, true;
      return all.erase(all.begin(), all.begin() + *n), true;
    }
    if (name == "trap") return note("the command of trap is taken to change nothing"), true;
    if (name == "echo") return echoed_ = join(rest, " "), true;
    state_.status = std::nullopt;
    if (name == "printf" && !rest.empty() && rest[0] == "-v") {
      const std::size_t at = rest.size() == 4 ? rest[2].find("%s") : npos;
      if (at == npos || rest[2].find('\\') != npos || std::ranges::count(rest[2], '%') > 1)
        refuse("printf -v");
      set_variable(rest[1], std::string(rest[2]).replace(at, 2, rest[3]));
      return state_.status = 0, true;
    }
    return is_script_word("harmless", name);
  }

  // export, declare, typeset
  void declare(const ShellNode& node, const Words& words) {
    const std::string& kind = words[0];
    // Bash expands every value before it declares a name.
    std::vector<std::pair<ShellAssignment, Words>> all;
    for (const ShellAssignment& a : std::span(node.assignments).subspan(node.prefix))
      all.emplace_back(a, items_of(a));
    bool array = false, exported = kind == "export";
    for (const std::string& word : std::span(words).subspan(1)) {
      array = array || word == "-a";
      exported = exported || word == "-x";
      if (word == "-a" || word == "-x") continue;
      ShellAssignment a;
      const std::size_t equals = word.find('=');
      a.name = word.substr(0, equals);
      if (!is_shell_name(a.name)) refuse(fmt::format("{} {}", kind, word));
      all.emplace_back(a, equals == npos ? Words() : Words{word.substr(equals + 1)});
    }
    for (const auto& [a, items] : all) {
      if (a.array || !items.empty()) assign(a, items);
      if (!variable(a.name)) continue;
      Variable& v = changed(a.name);
      v.array = v.array || array;
      v.exported = v.exported || exported;
    }
    state_.status = 0;
  }

  void unset(std::span<const std::string> names) {
    for (const std::string& name : names) {
      if (!is_shell_name(name) || state_.functions.contains(name)) refuse("unset " + name);
      changed(name) = {};
    }
  }

  void set_options(std::span<const std::string> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string& word = words[i];
      if (word.size() < 2 || word == "--" || (word[0] != '-' && word[0] != '+')) refuse("set " + word);
      for (const char c : word.substr(1)) {
        const std::string named = c == 'o' && i + 1 < words.size() ? words[++i] : std::string(1, c);
        bool* option = named == "e" || named == "errexit"   ? &state_.errexit
                       : named == "u" || named == "nounset" ? &state_.nounset
                       : named == "pipefail"                ? &state_.pipefail
                                                            : nullptr;
        if (option != nullptr && uncertain_ > 0) refuse("set under a condition that cannot be told,");
        if (option != nullptr) *option = word[0] == '-';
      }
    }
  }

  void source(const Words& words) {
    const std::string file = words.size() > 1 ? script_.shown(words[1]) : "";
    state_.status = std::nullopt;
    if (is_script_word("set_ups", name_of_program(file)) || file.starts_with("/etc/profile") ||
        file.find("/modules/init/") != npos)
      note(file + " is taken as leaving the script's variables alone");
    else
      everything("source " + file + " is not read");
  }

  void external(const ShellNode& node, const Words& words) {
    state_.status = std::nullopt;
    if (name_of_program(words[0]) == "sbatch" && !variable("SLURM_JOB_ID"))
      for (std::size_t i = 1; i < words.size(); ++i)
        if (const std::string self = script_.shown(words[i]);
            self.find("$0") != npos || self.find("BASH_SOURCE") != npos)
          throw Submitted{words, i, node.line};
    if (nested_shell(node, words)) return;
    ShellCommand command{words, {file_, node.line}, uncertain_ > 0, "", "", "", ""};
    const bool swift = words[0] == "megatron";  // Megatron-SWIFT's launcher
    for (const auto& [name, said] : {std::pair(swift ? "NNODES" : "SLURM_NNODES", &command.nodes),
                                     {swift ? "NPROC_PER_NODE" : "SLURM_NTASKS_PER_NODE", &command.tasks},
                                     {"NVTE_FLASH_ATTN", &command.flash},
                                     {"NVTE_FUSED_ATTN", &command.fused}})
      if (const Variable* v = variable(name); v && !v->items.empty()) *said = v->items[0];
    if (swift && command.nodes.empty()) command.nodes = "1";
    for (const std::string& word : words) count(word.size());
    if (may_have_failed_) note("set -e: the commands before are taken to succeed");
    if (words[0] == "xargs" || words[0] == "parallel")
      command.words.push_back(unknown("...", words[0] + " adds words"));
    script_.commands_.push_back(std::move(command));
  }

  // Runs the text that is given to bash or sbatch; returns false for another command.
  bool nested_shell(const ShellNode& node, const Words& words) {
    const std::string_view first = name_of_program(words[0]);
    const bool batch = first == "sbatch";
    std::size_t shell = words.size();
    for (std::size_t i = 0; i < words.size() && shell == words.size(); ++i) {
      const std::string_view name = name_of_program(words[i]);
      if (name.ends_with(".py") || name.starts_with("python") || name == "torchrun") return false;
      if (name == "bash" || name == "sh") shell = i;
    }
    Words arguments;
    std::optional<std::string> text;
    if (batch || shell < words.size()) text = script_of(node, words, shell, arguments);
    if (!text && (shell < words.size() || first.ends_with(".sh"))) note(words[0] + " is run and not read");
    if (!text || may_be_empty(text->substr(0, text->find(' ')))) return false;
    for (const auto* away : {"ssh", "env", "xargs", "docker", "podman", "kubectl", "nerdctl", "sudo"})
      if (first == away) refuse(away + std::string(" of a shell"));
    in_subshell([&] {
      std::erase_if(state_.variables, [](const auto& v) { return !v.second.exported; });
      state_.functions.clear();
      state_.errexit = state_.nounset = state_.pipefail = false;
      state_.arguments = arguments;
      state_.arguments_given = true;
      if (batch || first == "srun") slurm_options(std::span(words).first(shell));
      slurm_lines(*text);
      const int guards = std::exchange(guarded_, 0);
      evaluate(*text);
      guarded_ = guards;
    });
    if (shell > 0) state_.status = std::nullopt;
    return true;
  }

  // Returns the text that `bash -c ...` or a here-document says; `shell`: index of bash in the words.
  std::optional<std::string> script_of(const ShellNode& node, const Words& words, std::size_t shell,
                                       Words& arguments) {
    const std::size_t end = words.size();
    std::size_t i = std::min(shell + 1, end);
    for (; i < end && words[i].starts_with('-'); ++i) {
      if (words[i].find_first_of("sof") != npos) refuse("bash " + words[i]);
      if (words[i].starts_with("--") || words[i].find('c') == npos) continue;
      if (i + 1 >= end || words[i + 1].starts_with('-') || words[i].find('e') != npos)
        refuse("bash " + words[i]);
      arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(i + 3, end)), words.end());
      return words[i + 1];
    }
    return i < end ? std::nullopt : input_of(node);
  }

  // Sets Slurm's variables by its options: "--nodes=4", "-N 4".
  void slurm_options(std::span<const std::string> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::size_t equals = words[i].find('=');
      const std::string option = words[i].substr(0, equals);
      const std::string given = equals != npos         ? words[i].substr(equals + 1)
                                : i + 1 < words.size() ? words[i + 1]
                                                       : "";
      const std::string number = given.substr(0, given.find_first_of(" \t#"));
      for (const auto& [name, letter, variables] :
           {std::array{"--nodes", "-N", "SLURM_NNODES SLURM_JOB_NUM_NODES"},
            {"--ntasks-per-node", "", "SLURM_NTASKS_PER_NODE"},
            {"--gpus-per-node", "", "SLURM_GPUS_PER_NODE"},
            {"--ntasks", "-n", "SLURM_NTASKS SLURM_NPROCS"}})
        if (parse_int(number) && (option == name || option == letter))
          for (const std::string_view one : split(std::string_view(variables), ' '))
            state_.variables[std::string(one)] = {false, true, {number}};
    }
  }

  void slurm_lines(std::string_view text) {
    for (std::string_view line : split(text, '\n')) {
      line = trim(line);
      if (!line.empty() && line[0] != '#') return;
      if (!line.starts_with("#SBATCH")) continue;
      line = trim(line.substr(7));
      const std::size_t end = line.find_first_of("= \t");
      if (end == npos) continue;
      slurm_options(Words{std::string(line.substr(0, end)), std::string(trim(line.substr(end + 1)))});
    }
  }

  ShellScript& script_;
  const std::string& file_;
  State state_;
  long line_ = 1;
  int depth_ = 0, calls_ = 0, guarded_ = 0, uncertain_ = 0, substituting_ = 0;
  enum Assuming {
    kNo,
    kTested,
    kCompared
  } assuming_ = kNo;         // unset variables are taken as unset, with a remark
  bool empty_list_ = false;  // "${A[@]}" was empty
  bool may_have_failed_ = false;
  std::optional<int> substitution_ = 0;  // status of the last $( )
  std::string echoed_;                   // what the last echo prints
  std::size_t work_ = 0, expanded_ = 0;
  std::map<std::string, std::size_t> unknowns_;
  std::deque<std::string> sources_;  // texts that the trees refer to
  std::vector<ShellNodePtr> trees_;
};

ShellScript::ShellScript(std::string_view text, const std::string& file,
                         const std::vector<std::string>& variables) {
  try {
    ShellRun(*this, file).run(text, variables);
  } catch (const Submitted& submitted) {
    commands_.clear(), assumed_.clear();
    notes_ = {
        fmt::format("{}:{}: the script submits itself: read as inside of its job, where $SLURM_JOB_ID is set",
                    file, submitted.line)};
    std::vector<std::string> inside = variables;
    inside.emplace_back("SLURM_JOB_ID=1");
    for (const std::string& word : submitted.words)
      for (const std::string_view pair :
           split(std::string_view(word).substr(word.starts_with("--export=") ? 9 : word.size()), ','))
        if (pair.find('=') != npos) inside.emplace_back(pair);
    for (std::size_t i = submitted.self + 1; i < submitted.words.size(); ++i)
      inside.push_back(fmt::format("{}={}", i - submitted.self, submitted.words[i]));
    ShellRun(*this, file).run(text, inside, submitted);
  }
}

const ShellScript::Reason* ShellScript::reason(std::string_view word, std::size_t at) const {
  const auto index = parse_int(word.substr(at + 1, word.find(kShellUnknown, at + 1) - at - 1));
  const bool has = index && static_cast<std::size_t>(*index) < reasons_.size();
  return has ? &reasons_[static_cast<std::size_t>(*index)] : nullptr;
}

std::string ShellScript::unknown(std::string_view word) const {
  const std::size_t from = word.find(kShellUnknown);
  if (from == std::string_view::npos) return "";
  const Reason* one = reason(word, from);
  return one ? one->why : "it cannot be told";
}

std::string ShellScript::shown(std::string_view word) const {
  std::string text;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] != kShellUnknown) {
      text += word[i];
      continue;
    }
    if (const Reason* one = reason(word, i)) text += one->text;
    i = std::min(word.find(kShellUnknown, i + 1), word.size());
  }
  return text;
}

}  // namespace moesim::tools
