// Interprets a script command by command.
#include <fmt/format.h>

#include <algorithm>
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

// Returns the length of a parameter's name at the start of a text. `digits`: it may have several.
std::size_t parameter_length(std::string_view text, bool digits) {
  if (text.find_first_of("@*#?$!-") == 0) return 1;
  const std::size_t n = std::min(text.find_first_not_of("0123456789"), text.size());
  return n > 0 ? (digits ? n : 1) : shell_name_length(text);
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

// The variable after two alternatives; nullptr: one that the script does not set.
Variable merged(const Variable* a, const Variable* b, const std::string& unknown) {
  if (a && b && *a == *b) return *a;
  static const Variable kNone;
  const Variable &x = a ? *a : kNone, &y = b ? *b : kNone;
  Variable one{x.array || y.array, x.exported || y.exported, {}};
  if (!one.array && x.items.size() == 1 && y.items.size() == 1) {
    one.items = {merged_text(x.items[0], y.items[0], unknown)};
    return one;
  }
  const auto same = std::ranges::mismatch(x.items, y.items);
  one.items.assign(x.items.begin(), same.in1);
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

}  // namespace

class ShellRun {
 public:
  ShellRun(ShellScript& script, const std::string& file) : script_(script), file_(file) {}

  void run(std::string_view text, const std::vector<std::string>& variables) {
    text_ = text;
    slurm_lines(text);
    for (const std::string& variable : variables) {
      const ShellValue one(variable);
      if (one.argument == 0) {
        state_.variables[one.name] = {false, true, {one.value}};
        given_[one.name] = one.value;
        continue;
      }
      state_.arguments_given = true;
      state_.arguments.resize(std::max(state_.arguments.size(), one.argument));
      state_.arguments[one.argument - 1] = one.value;
    }
    for (const char sign : {kShellUnknown, kShellEmpty, '\0'})
      if (text.find(sign) != npos) fail("a control character", "a script's text");
    evaluate(std::string(text));
  }

 private:
  using Words = std::vector<std::string>;
  using Kind = ShellNode::Kind;
  // Where unset variables are taken as unset, with a remark: all that -z and -n test, and those that are
  // compared and no launcher's.
  enum Assuming { kNo, kTested, kCompared };
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
  // Counts steps, and bytes of expanded text, of which 16 MiB are the most.
  void charge(std::size_t steps, std::size_t bytes = 0) {
    work_ += steps + bytes / 4;
    if (work_ > kMaxWork)
      fail("more than can be followed: 4 million steps or 16 MiB of text (a loop without end?)",
           "the arguments of one job");
  }
  // Returns a copy of the state, which costs its size.
  State copied() {
    for (const auto& [name, v] : state_.variables)
      for (const std::string& item : v.items) charge(2 + item.size() / 64);
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
    if (is_script_word("kept", name) && (name != "IFS" || substituting_ == 0))
      refuse("a change of " + name + ", which bash keeps,");
    return state_.variables[name];
  }

  void set_variable(const std::string& name, const std::string& given) {
    assign({.name = name, .items = {}}, {given});
  }

  // Expands the right side of an assignment.
  Words items_of(const ShellAssignment& a) {
    if (!a.items.empty()) line_ = a.items[0].line;
    return a.array ? fields(a.items) : Words{a.items.empty() ? "" : value(a.items[0].raw)};
  }

  // Refuses to lose a value of --with where the script neither reads nor repeats it.
  void keep_given(const ShellAssignment& a, const Words& items) const {
    const auto at = given_.find(a.name);
    if (at == given_.end() || a.append || a.items.empty() || items.empty() || items[0] == at->second ||
        a.items[0].raw.find(a.name) != npos)
      return;
    fail(fmt::format("{}={}, beside --with {}={}", a.name, script_.shown(items[0]), a.name, at->second),
         "--with the argument that it becomes, or a script that reads ${" + a.name + ":-...}");
  }

  void assign(const ShellAssignment& a, const Words& items) {
    keep_given(a, items);
    const bool outside = a.append && !variable(a.name);
    const Words before = outside ? find(a.name, "", "$" + a.name).items : Words();
    Variable& v = changed(a.name);
    if (outside) v.items = before;
    if (a.array) {
      v.array = true;
      v.items.insert(a.append ? v.items.end() : v.items.erase(v.items.begin(), v.items.end()), items.begin(),
                     items.end());
      charge(v.items.size());
    } else {
      if (v.items.empty()) v.items.emplace_back();
      v.items[0] = (a.append ? v.items[0] : "") + items[0];
      charge(1, v.items[0].size());
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
    const bool outside =
        state_.anything.empty() && !is_script_word("present", name) && !is_script_word("kept", name);
    if (outside &&
        (assuming_ == kTested || (assuming_ == kCompared && !is_script_word("of_launchers", name)))) {
      script_.assumed_.insert("$" + name);
      return {.set = false, .items = {}};
    }
    const std::string why =
        state_.anything.empty() ? written + " is said outside of the file" : state_.anything;
    return {.outside = outside, .items = {unknown(written, why)}};
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
    Found found = v ? Found{.set = !v->items.empty(), .items = v->items} : not_set(name, written);
    found.list = all, found.star = subscript == "*";
    if (!v || all) return found;
    if (!subscript.empty()) return {.items = {unknown(written, "which element it is is not followed")}};
    if (found.set) found.items.resize(1);
    return found;
  }

  void set_status(const ShellTruth& truth) {
    state_.status = truth ? std::optional(*truth ? 0 : 1) : std::nullopt;
  }

  // ---- Words.

  // A word as it is expanded: a list inside of it makes it several.
  struct Expanded {
    std::vector<ShellText> texts{1};
    bool in_double = false, document = false;  // document: quotes are plain characters

    void put(std::string_view text, char unquoted = ShellText::kExpanded) {
      texts.back().add(text, in_double ? ShellText::kQuoted : unquoted);
    }
    void put_quoted(std::string_view text) { texts.back().add(text, ShellText::kQuoted); }
  };

  void expand(std::string_view raw, Expanded& out) {
    if (++depth_ > 3 * kMaxJobFileDepth) refuse("expansions inside of each other, 192 deep");
    for (std::size_t i = 0, end = 0; i < raw.size(); i = end) {
      const char c = raw[i], next = i + 1 < raw.size() ? raw[i + 1] : '\0';
      charge(1);
      if (c == '"' && out.in_double && !out.document) refuse("quotes inside of quotes");
      end = after_shell_piece(raw, i, out.in_double, file_, line_);
      const std::string_view piece = raw.substr(i, end - i),
                             inside = piece.substr(1, std::max<std::size_t>(piece.size(), 2) - 2);
      if (c == kShellUnknown) {
        out.put_quoted(piece);
      } else if (c == '\\') {
        const std::string_view escaped = out.document ? "$`\\" : "$`\"\\";
        if (next == '\0' || (out.in_double && next != '\n' && escaped.find(next) == npos))
          out.put_quoted("\\");
        if (next != '\n') out.put_quoted(piece.substr(1));
      } else if (c == '\'' && !out.in_double) {
        out.put_quoted(std::string(1, kShellEmpty).append(inside));
      } else if (c == '"' && !out.in_double) {
        empty_list_ = false;
        out.in_double = true;
        expand(inside, out);
        out.in_double = false;
        if (!empty_list_) out.put_quoted(std::string(1, kShellEmpty));
      } else if (c == '`') {
        out.put(output_of(inside, true));
      } else if (piece.starts_with("${")) {
        braced(inside.substr(1), out);
      } else if (piece.starts_with("$((")) {
        const ShellNumber number = arithmetic(joined(piece.substr(3, piece.size() - 5), true));
        out.put(number ? std::to_string(*number) : unknown(piece, one_line(piece) + " cannot be told"));
      } else if (piece.starts_with("$(")) {
        out.put(output_of(inside.substr(1)));
      } else if (c == '$' && (piece.size() > 1 || next == '[')) {
        refuse(piece.size() > 1 ? one_line(piece) : "$[ ]");
      } else if (const std::size_t n = c == '$' ? parameter_length(raw.substr(i + 1), false) : 0; n > 0) {
        end = i + 1 + n;
        braced(raw.substr(i + 1, n), out);
      } else if (c != '$' || next != '"' || out.in_double) {
        out.put(piece, ShellText::kLiteral);
      }
    }
    --depth_;
  }

  void add(const Found& found, Expanded& out) {
    for (const std::string& item : found.items) charge(1, item.size());
    if (!found.list || (out.in_double && found.star)) {
      const Variable* ifs = variable("IFS");
      return out.put(join(found.items, ifs ? ifs->items[0].substr(0, 1) : " "));
    }
    if (found.items.empty()) empty_list_ = true;
    for (std::size_t i = 0; i < found.items.size(); ++i) {
      if (i > 0) out.texts.emplace_back();
      if (out.in_double) out.put(std::string(1, kShellEmpty));
      out.put(found.items[i]);
    }
  }

  // Expands the text between ${ and }, or after $.
  void braced(std::string_view inside, Expanded& out) {
    const std::string written = is_shell_name(inside) || inside.size() == 1
                                    ? "$" + std::string(inside)
                                    : "${" + std::string(inside) + "}";
    // The result of an unsupported expansion, which must not change a variable.
    const auto not_followed = [&] {
      for (const std::string_view sign : {"$(", "`", "++", "--", "="})
        if (inside.find(sign) != npos) refuse(written);
      out.put(unknown(written, written + " is not followed"));
    };
    const std::string name(inside.substr(0, parameter_length(inside, true)));
    std::string_view rest = inside.substr(name.size()), subscript;
    if (rest.starts_with('[') && is_shell_name(name)) {
      const std::size_t end = std::min(rest.find(']'), rest.size() - 1);
      subscript = rest.substr(1, end - 1);
      if (subscript.find_first_of("[${") != npos) return not_followed();
      rest.remove_prefix(end + 1);
    }
    if (name.empty() || ((name == "!" || name == "#") && !rest.empty())) return not_followed();
    const Found found = find(name, subscript, written);
    if (with_default(found, name, rest, out)) return;
    if (!found.set && state_.nounset && !found.list) refuse_unset(name);
    if (found.outside && state_.nounset) note(written + " is taken as set from outside");
    return rest.empty() ? add(found, out) : not_followed();
  }

  // Expands ${X:-d} and similar; returns false for other expansions.
  bool with_default(const Found& found, const std::string& name, std::string_view operation, Expanded& out) {
    const std::size_t colon = operation.starts_with(':') ? 1 : 0;
    const char kind = operation.size() > colon ? operation[colon] : '\0';
    if (std::string_view("-=+?").find(kind) == npos) return false;
    const std::string_view operand = operation.substr(colon + 1);
    const std::string text = join(found.items, " ");
    const bool set = found.set && !found.outside && !(colon > 0 && text.empty());
    if (set && !text.empty() && may_be_empty(text)) {
      if (kind == '=' || operand.find_first_of("=`(") != npos)
        refuse(fmt::format("a default for ${}, of which it cannot be told whether it is set,", name));
      out.put_quoted(unknown("${" + name + "}", script_.unknown(text)));
      return true;
    }
    if (kind == '+' && found.outside) script_.assumed_.insert("$" + name);
    if (kind == '?' && found.outside) note(fmt::format("${} is taken as set from outside", name));
    if (kind == '?' && !set && !found.outside) refuse_unset(name);
    if (kind == '?' || (kind != '+' && set)) {
      add(found, out);
    } else if (kind == '=') {
      if (!is_shell_name(name)) refuse("an assignment to $" + name);
      const std::string now = value(operand);
      set_variable(name, now);
      add({.items = {now}}, out);
    } else if (kind == '-' || set) {
      if (operand.starts_with('~')) refuse("~ behind a default");
      if (out.in_double && operand.find('\'') != npos) refuse("a quote in a default");
      expand(operand, out);
      // Outside of quotes a default is split like a variable.
      for (ShellText& one : out.texts)
        std::ranges::replace(one.marks, ShellText::kLiteral, ShellText::kExpanded);
    } else {
      empty_list_ = empty_list_ || found.list;
    }
    return true;
  }

  // What commands print is unknown, except for one echo.
  std::string output_of(std::string_view inside, bool backquoted = false) {
    const std::string written = "$(" + std::string(inside) + ")";
    if (trim(inside).starts_with('<')) return unknown(written, "it is the text of a file");
    substitution_ = std::nullopt;
    std::string printed = unknown(written, "it is the output of a command");
    if (backquoted && inside.find('\\') != npos) return printed;
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
    const bool echoes = !command.redirected && (is(0, "echo") || (is(0, "eval") && is(1, "echo")));
    return echoes && !has_unknown(echoed_) && !echoed_.starts_with('-') ? echoed_ : printed;
  }

  std::string joined(std::string_view raw, bool in_double, bool document = false) {
    Expanded out{.in_double = in_double, .document = document};
    expand(raw, out);
    Words all;
    for (const ShellText& text : out.texts) all.push_back(text.plain());
    return join(all, " ");
  }

  std::string value(std::string_view raw) {
    if (raw.starts_with('~') || raw.find(":~") != npos) return unknown(raw, "~ is a folder of the machine");
    return joined(raw, false);
  }

  ShellText pattern(std::string_view raw) {
    Expanded out;
    expand(raw, out);
    if (raw.starts_with('~') || out.texts.size() > 1) refuse("the pattern " + std::string(raw));
    return out.texts[0];
  }

  // Expands the words of a command; `test`: those behind its first where it is a test.
  Words fields(std::span<const ShellWord> words, std::span<const ShellWord> test = {}) {
    Words all;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string_view raw = words[i].raw;
      line_ = words[i].line;
      assuming_ = i > 0 ? assuming(test, i - 1) : kNo;
      if (raw.starts_with('~') || raw.find("=~/") != npos) {
        all.push_back(unknown(raw, "~ is a folder of the machine"));
      } else if (!braces(raw, all)) {
        Expanded out;
        expand(raw, out);
        for (const ShellText& text : out.texts) split_text(text, all);
      }
    }
    assuming_ = kNo;
    return all;
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
    for (std::size_t i = 0; i < raw.size(); i = after_shell_piece(raw, i, false, file_, line_)) {
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
      charge(1, word.size());
      if (open.is_pattern()) {
        // File names have a dot or a slash; a job's layout, as of layers, has none.
        if (word.find_first_of("./") != npos || word.find_first_not_of('*') == npos)
          word = unknown(word, "files may match " + in_quotes(script_.shown(word)));
        else
          note(script_.shown(word) + ": taken as it stands: no file is taken to match it");
      }
      if (!open.chars.empty()) all.push_back(std::move(word));
      open = {};
    };
    for (std::size_t i = 0; i < text.chars.size(); ++i) {
      const std::string_view one = std::string_view(text.chars).substr(i, 1);
      if (text.marks[i] == ShellText::kExpanded && (one == " " || one == "\t" || one == "\n"))
        push();
      else
        open.add(one, text.marks[i]);
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
    charge(1, text.size());
    if (text.empty()) return 0;
    const std::string shown = in_quotes(one_line(script_.shown(all)));
    const bool first = text.starts_with("++") || text.starts_with("--"),
               last = !first && text.size() > 2 && (text.ends_with("++") || text.ends_with("--"));
    if (first || last)
      text =
          fmt::format("{}{}=1", text.substr(first ? 2 : 0, text.size() - 2), first ? text[0] : text.back());
    const std::string_view made = trim(text);
    const std::string name(made.substr(0, shell_name_length(made)));
    const std::size_t equals = std::min(made.find('='), made.size() - 1);
    const std::string_view sign = trim(made.substr(name.size(), std::max(equals, name.size()) - name.size()));
    const bool assigns = !name.empty() && made[equals] == '=' && !made.substr(equals).starts_with("==") &&
                         std::string_view("+-*/%").find(sign) != npos && sign.size() < 2;
    const std::string operand(made.substr(equals + 1));
    const std::string right = !assigns       ? text
                              : sign.empty() ? operand
                                             : fmt::format("{}{}({})", name, sign, operand);
    const ShellNumber old = last && assigns ? value_of(name) : ShellNumber();
    const std::optional<ShellNumber> sum =
        shell_sum(right, [this](const std::string& one) { return value_of(one); });
    if (!sum) refuse("the arithmetic " + shown);
    if (!assigns) return *sum;
    set_variable(name, *sum ? std::to_string(**sum) : unknown("$" + name, shown + " cannot be told"));
    return last ? old : *sum;
  }

  // Evaluates [[ ]]: tests joined by `sign`, "||" or "&&".
  ShellTruth tests(std::span<const ShellWord> words, std::string_view sign) {
    const auto at = std::ranges::find(words, sign, &ShellWord::raw);
    const bool wins = sign == "||", last = at == words.end();
    const ShellTruth one = wins ? tests({words.begin(), at}, "&&") : one_test({words.begin(), at});
    if (last || one == wins) return one;
    const ShellTruth other = tests({at + 1, words.end()}, sign);
    return other == wins ? other : one && other ? ShellTruth(!wins) : ShellTruth();
  }

  static bool is_test(std::string_view word) { return word == "[" || word == "test"; }
  static bool compares(std::span<const ShellWord> test) {
    return test.size() == 3 && (test[1].raw == "=" || test[1].raw == "==" || test[1].raw == "!=");
  }
  static Assuming assuming(std::span<const ShellWord> test, std::size_t i) {
    if (compares(test)) return kCompared;
    return i > 0 && i < test.size() && (test[i - 1].raw == "-z" || test[i - 1].raw == "-n") ? kTested : kNo;
  }

  ShellTruth one_test(std::span<const ShellWord> test) {
    bool turned = false;
    for (; !test.empty() && test[0].raw == "!"; test = test.subspan(1)) turned = !turned;
    if (test.size() > 3) return std::nullopt;
    const bool matches = compares(test);
    Words words;
    for (std::size_t i = 0; i < (matches ? 1 : test.size()); ++i) {
      assuming_ = assuming(test, i);
      words.push_back(value(test[i].raw));
      assuming_ = kNo;
    }
    const ShellTruth truth = matches ? shell_match(pattern(test[2].raw), words[0]) : shell_test(words);
    return truth ? ShellTruth(*truth != ((matches && test[1].raw == "!=") != turned)) : truth;
  }

  // ---- Commands.

  void execute(const ShellNode& node) {
    if (state_.left || submitted_) return;
    charge(1);
    line_ = node.line;
    if (++depth_ > 3 * kMaxJobFileDepth) refuse("commands inside of each other, 192 deep");
    const Kind kind = node.kind;
    if (kind == Kind::kList)
      for (const ShellNodePtr& part : node.parts) execute(*part);
    if (kind == Kind::kAndOr) and_or(node);
    if (kind == Kind::kNot) {
      condition(*node.parts[0]);
      if (state_.status) state_.status = *state_.status == 0 ? 1 : 0;
    }
    if (kind == Kind::kIf) if_of(node, 0);
    if (kind == Kind::kWhile) while_of(node);
    if (kind == Kind::kFor) for_of(node);
    if (kind == Kind::kCase) {
      const std::string subject = value(node.words[0].raw);
      state_.status = 0;
      case_of(node, 0, subject);
    }
    if (kind == Kind::kFunction) state_.functions[node.text] = node.parts[0], state_.status = 0;
    if (kind == Kind::kSimple) simple(node);
    if (kind == Kind::kPipe || kind == Kind::kSubshell) {
      for (const ShellNodePtr& part : node.parts) in_subshell([&] { execute(*part); });
      if (kind == Kind::kPipe && state_.pipefail) state_.status = std::nullopt;
    }
    if (kind == Kind::kArithmetic) {
      const ShellNumber v = arithmetic(joined(node.words[0].raw, true));
      set_status(v ? ShellTruth(*v != 0) : ShellTruth());
    }
    if (kind == Kind::kTest) set_status(tests(node.words, "||"));
    // `set -e` looks at commands, not at lists of them.
    if (kind >= Kind::kSimple && state_.errexit && guarded_ == 0 && !state_.left) {
      may_have_failed_ = may_have_failed_ || !state_.status;
      state_.left = state_.status.value_or(0) != 0;
    }
    --depth_;
  }

  void condition(const ShellNode& node) {
    ++guarded_;
    execute(node);
    --guarded_;
  }

  // Runs something whose changes are lost; its status stays.
  void in_subshell(const auto& run) {
    State outside = copied();
    run();
    outside.status = state_.status;
    state_ = std::move(outside);
  }

  // Runs both of two alternatives where bash's choice is unknown, and joins their states.
  void either(const auto& one, const auto& other) {
    const State before = copied();
    ++uncertain_;
    one();
    State after = std::exchange(state_, before);
    other();
    --uncertain_;
    if (state_.left != after.left) {
      note("exit under a condition that cannot be told: taken as not reached");
      if (state_.left) state_ = std::move(after);
      return;
    }
    if (state_.functions != after.functions) refuse("a function under a condition that cannot be told,");
    const auto either_of = [this](const std::string& name) {
      return unknown("$" + name, "$" + name + " is set under a condition that cannot be told");
    };
    Variables all = state_.variables;
    all.insert(after.variables.begin(), after.variables.end());
    for (auto& [name, value] : all)
      value = merged(variable(name), found_in(after.variables, name), either_of(name));
    state_.variables = std::move(all);
    if (state_.arguments != after.arguments) state_.arguments = {either_of("@")};
    state_.arguments_given = state_.arguments_given && after.arguments_given;
    if (state_.anything.empty()) state_.anything = after.anything;
    if (state_.status != after.status) state_.status = std::nullopt;
  }

  // Runs a loop with an unknown number of iterations: variables that change in it become unknown.
  void any_number_of(const auto& turn) {
    for (bool changes = true; changes;) {
      const State before = copied();
      const std::size_t commands = script_.commands_.size();
      charge(1000);
      either(turn, [] {});
      state_.status = std::nullopt;
      changes = !submitted_ && state_ != before;
      if (changes) script_.commands_.resize(commands);
    }
  }

  void and_or(const ShellNode& node) {
    bool tests = false;
    for (std::size_t i = 0; i < node.parts.size() && !state_.left; ++i) {
      const ShellNode& part = *node.parts[i];
      const auto run = [&] { i + 1 == node.parts.size() ? execute(part) : condition(part); };
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
      tests = tests || part.kind != Kind::kSimple || (!part.words.empty() && is_test(part.words[0].raw));
    }
  }

  void if_of(const ShellNode& node, std::size_t from) {
    if (from == node.parts.size()) return void(state_.status = 0);
    if (from + 1 == node.parts.size()) return execute(*node.parts[from]);
    condition(*node.parts[from]);
    if (state_.left) return;
    if (state_.status) return *state_.status == 0 ? execute(*node.parts[from + 1]) : if_of(node, from + 2);
    either([&] { execute(*node.parts[from + 1]); }, [&] { if_of(node, from + 2); });
  }

  void case_of(const ShellNode& node, std::size_t from, const std::string& subject) {
    for (std::size_t i = from; i < node.parts.size(); ++i) {
      ShellTruth fits = false;
      for (const ShellWord& word : node.patterns[i])
        if (const ShellTruth one = shell_match(pattern(word.raw), subject); fits != true && one != false)
          fits = one;
      if (fits == true) return execute(*node.parts[i]);
      if (fits == false) continue;
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
    while (!state_.left) {
      const State before = copied();
      const std::size_t commands = script_.commands_.size();
      condition(*node.parts[0]);
      if (submitted_ || state_.status.value_or(0) != 0) break;
      if (state_.status) {
        execute(*node.parts[1]);
      } else {
        state_ = before;
        script_.commands_.resize(commands);
        any_number_of([&] {
          condition(*node.parts[0]);
          execute(*node.parts[1]);
        });
        break;
      }
    }
    state_.status = std::nullopt;
  }

  void simple(const ShellNode& node) {
    substitution_ = 0;
    const std::string_view first = node.words.empty() ? "" : node.words[0].raw;
    std::span<const ShellWord> test;
    if (is_test(first)) test = std::span(node.words).subspan(1);
    if (first == "[" && !test.empty()) test = test.first(test.size() - 1);
    const Words words = fields(node.words, test);
    line_ = node.line;
    const auto prefix =
        std::span(node.assignments).first(words.empty() ? node.assignments.size() : node.prefix);
    if (words.empty()) {
      for (const ShellAssignment& a : prefix) assign(a, items_of(a));
      state_.status = substitution_;
    } else if (!prefix.empty()) {
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
    } else if (const auto at = state_.functions.find(words[0]); at != state_.functions.end()) {
      const ShellNodePtr body = at->second;
      const Words arguments = std::exchange(state_.arguments, Words(words.begin() + 1, words.end()));
      const bool given = std::exchange(state_.arguments_given, true);
      execute(*body);
      state_.arguments = arguments;
      state_.arguments_given = given;
    } else if (words[0].find('=') != npos) {
      state_.status = 127;  // "$A" with the value "X=1" is neither an assignment nor a program
    } else if (!builtin(node, words)) {
      external(node, words);
    }
  }

  ShellNodePtr evaluate(std::string text) {
    charge(1, text.size());
    auto& [source, tree] = programs_.emplace_back(std::move(text), nullptr);
    ShellNodePtr program = tree = parse_shell(source, file_, line_);
    execute(*program);
    return program;
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
    if (name == "unset")
      for (const std::string& one : rest) {
        if (!is_shell_name(one) || state_.functions.contains(one)) refuse("unset " + one);
        changed(one) = {};
      }
    if (is(":", "true", "unset")) return true;
    if (name == "false") return state_.status = 1, true;
    if (name == "[" && words.back() != "]") refuse("[ without ]");
    if (is_test(name)) return set_status(shell_test(rest.first(rest.size() - (name == "[" ? 1 : 0)))), true;
    if (is("export", "declare", "typeset")) return declare(node, words), true;
    if (name == "set") return set_options(rest), true;
    if (is("source", ".")) {
      const std::string file = rest.empty() ? "" : script_.shown(rest[0]);
      const bool kept = is_script_word("set_ups", name_of_program(file)) ||
                        file.starts_with("/etc/profile") || file.find("/modules/init/") != npos;
      state_.status = std::nullopt;
      return kept ? note(file + " is taken as leaving the script's variables alone")
                  : everything("source " + file + " is not read"),
             true;
    }
    if (name == "exit") {
      const auto n = rest.empty() ? std::nullopt : parse_int(rest[0]);
      state_.status = n ? std::optional(static_cast<int>(*n & 255)) : std::nullopt;
      return state_.left = true;
    }
    if (name == "exec") {
      if (!rest.empty()) external(node, Words(rest.begin(), rest.end()));
      return state_.left = state_.left || !rest.empty(), true;
    }
    if (name == "eval") {
      const std::string text = join(rest, " ");
      const bool told = trim(text).empty() || !may_be_empty(text.substr(0, text.find(' ')));
      return told ? void(evaluate(text)) : everything("eval of a command that cannot be told"), true;
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
    // Bash expands every value before it declares a name.
    std::vector<std::pair<ShellAssignment, Words>> all;
    for (const ShellAssignment& a : std::span(node.assignments).subspan(node.prefix))
      all.emplace_back(a, items_of(a));
    const auto has = [&](std::string_view word) { return std::ranges::find(words, word) != words.end(); };
    for (const std::string& word : std::span(words).subspan(1)) {
      const std::size_t equals = std::min(word.find('='), word.size());
      const std::string name = word.substr(0, equals);
      if (is_shell_name(name))
        all.emplace_back(ShellAssignment{.name = name, .items = {}},
                         equals < word.size() ? Words{word.substr(equals + 1)} : Words());
      else if (word != "-a" && word != "-x")
        refuse(words[0] + " " + word);
    }
    for (const auto& [a, items] : all) {
      if (a.array || !items.empty()) assign(a, items);
      if (!variable(a.name)) continue;
      Variable& v = changed(a.name);
      v.array = v.array || has("-a");
      v.exported = v.exported || words[0] == "export" || has("-x");
    }
    state_.status = 0;
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

  void external(const ShellNode& node, const Words& words) {
    state_.status = std::nullopt;
    if (nested_shell(node, words)) return;
    const bool swift = words[0] == "megatron";  // Megatron-SWIFT's launcher
    ShellCommand command{words, {file_, node.line}, uncertain_ > 0, swift ? "1" : "", "", {}};
    const auto value_of = [this](const std::string& name, const std::string& otherwise) {
      const Variable* v = variable(name);
      return v && !v->items.empty() && !v->items[0].empty() ? v->items[0] : otherwise;
    };
    command.nodes = value_of(swift ? "NNODES" : "SLURM_NNODES", command.nodes);
    command.tasks = value_of(swift ? "NPROC_PER_NODE" : "SLURM_NTASKS_PER_NODE", "");
    for (const std::string& name : script_words("variables"))
      command.environment.push_back(value_of(name, ""));
    if (may_have_failed_) note("set -e: the commands before are taken to succeed");
    if (words[0] == "xargs" || words[0] == "parallel")
      command.words.push_back(unknown("...", words[0] + " adds words"));
    script_.commands_.push_back(std::move(command));
  }

  // Runs the text that is given to bash or sbatch; returns false for another command.
  bool nested_shell(const ShellNode& node, const Words& words) {
    const std::string_view first = name_of_program(words[0]);
    const bool batch = first == "sbatch", outside = batch && !variable("SLURM_JOB_ID");
    std::size_t shell = words.size();
    bool self = false;  // the script submits itself
    for (std::size_t i = 0; i < words.size() && shell == words.size(); ++i) {
      const std::string_view name = name_of_program(words[i]);
      if (name.ends_with(".py") || name.starts_with("python") || name == "torchrun") return false;
      const std::string shown = script_.shown(words[i]);
      self = outside && (shown.find("$0") != npos || shown.find("BASH_SOURCE") != npos);
      if (self || name == "bash" || name == "sh") shell = i;
    }
    // The text that `bash -c ...` or a here-document says, and the index of its arguments.
    const std::size_t end = words.size();
    std::size_t i = std::min(shell + 1, end), from = end;
    std::optional<std::string> text;
    for (; i < end && words[i].starts_with('-') && !text; ++i) {
      const bool says = !words[i].starts_with("--") && words[i].find('c') != npos;
      if (words[i].find_first_of("sof") != npos ||
          (says && (i + 1 >= end || words[i + 1].starts_with('-') || words[i].find('e') != npos)))
        refuse("bash " + words[i]);
      if (says) text = words[i + 1], from = std::min(i + 3, end);
    }
    if (!text && i >= end && node.document && (batch || shell < end))
      text = node.verbatim ? *node.document : joined(*node.document, true, true);
    if (self) text = text_, from = shell + 1;
    if (!text && (shell < words.size() || first.ends_with(".sh"))) note(words[0] + " is run and not read");
    if (!text || may_be_empty(text->substr(0, text->find(' ')))) return false;
    if (is_script_word("away", first)) refuse(std::string(first) + " of a shell");
    in_subshell([&] {
      State inner{.variables = state_.variables,
                  .functions = {},
                  .arguments = {words.begin() + static_cast<std::ptrdiff_t>(from), words.end()},
                  .arguments_given = true,
                  .anything = state_.anything};
      std::erase_if(inner.variables, [](const auto& v) { return !v.second.exported; });
      state_ = std::move(inner);
      slurm_lines(*text);
      if (batch || first == "srun") slurm_options(std::span(words).first(shell));
      if (self) {
        script_.notes_.clear(), script_.assumed_.clear(), script_.commands_.clear();
        note("the script submits itself: read as inside of its job, where $SLURM_JOB_ID is set");
        state_.variables["SLURM_JOB_ID"] = {false, true, {"1"}};
        line_ = 1;
      }
      const int guards = std::exchange(guarded_, 0),
                unsure = std::exchange(uncertain_, self ? 0 : uncertain_);
      evaluate(*text);
      guarded_ = guards, uncertain_ = unsure;
    });
    if (shell > 0) state_.status = std::nullopt;
    submitted_ = submitted_ || self;
    return true;
  }

  // Sets Slurm's variables by its options: "--nodes=4", "-N 4"; of others those of --export=NAME=VALUE,...
  void slurm_options(std::span<const std::string> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::size_t equals = std::min(words[i].find('='), words[i].size());
      const std::string option = words[i].substr(0, equals), next = i + 1 < words.size() ? words[i + 1] : "";
      const std::string given = equals < words[i].size() ? words[i].substr(equals + 1) : next;
      if (parse_int(given))
        for (const std::string& one : script_words("slurm"))
          if (one.starts_with(option + "="))
            state_.variables[one.substr(option.size() + 1)] = {false, true, {given}};
      if (option == "--export")
        for (const std::string_view pair : split(std::string_view(given), ','))
          if (const std::size_t at = pair.find('='); at != npos)
            state_.variables[std::string(pair.substr(0, at))] = {
                false, true, {std::string(pair.substr(at + 1))}};
    }
  }

  void slurm_lines(std::string_view text) {
    for (std::string_view line : split(text, '\n')) {
      line = trim(line);
      if (!line.empty() && line[0] != '#') return;
      if (!line.starts_with("#SBATCH")) continue;
      Words words;
      for (const std::string_view word : split(line.substr(7, line.find(" #", 7) - 7), ' '))
        words.emplace_back(trim(word));
      std::erase(words, "");
      slurm_options(words);
    }
  }

  ShellScript& script_;
  const std::string& file_;
  std::string_view text_;
  State state_;
  long line_ = 1;
  int depth_ = 0, guarded_ = 0, uncertain_ = 0, substituting_ = 0;
  Assuming assuming_ = kNo;                            // of the word that is expanded
  bool empty_list_ = false, may_have_failed_ = false;  // "${A[@]}" was empty; a command of `set -e`
  bool submitted_ = false;                             // by itself: the rest is not of its job
  std::optional<int> substitution_ = 0;                // status of the last $( )
  std::string echoed_;                                 // what the last echo prints
  std::size_t work_ = 0;
  std::map<std::string, std::string> given_;  // by --with
  std::map<std::string, std::size_t> unknowns_;
  std::deque<std::pair<std::string, ShellNodePtr>> programs_;  // texts, and the trees that refer to them
};

ShellScript::ShellScript(std::string_view text, const std::string& file,
                         const std::vector<std::string>& variables) {
  ShellRun(*this, file).run(text, variables);
}

const ShellScript::Reason& ShellScript::reason(std::string_view word, std::size_t at) const {
  static const Reason kNone{"", "it cannot be told"};
  const auto index = parse_int(word.substr(at + 1, word.find(kShellUnknown, at + 1) - at - 1));
  const bool has = index && static_cast<std::size_t>(*index) < reasons_.size();
  return has ? reasons_[static_cast<std::size_t>(*index)] : kNone;
}

std::string ShellScript::unknown(std::string_view word) const {
  const std::size_t from = word.find(kShellUnknown);
  return from == npos ? "" : reason(word, from).why;
}

std::string ShellScript::shown(std::string_view word) const {
  std::string text;
  for (std::size_t i = 0, end = 0; i < word.size(); i = end) {
    end = word[i] == kShellUnknown ? after_unknown(word, i) : i + 1;
    text += word[i] == kShellUnknown ? reason(word, i).text : std::string(1, word[i]);
  }
  return text;
}

}  // namespace moesim::tools
