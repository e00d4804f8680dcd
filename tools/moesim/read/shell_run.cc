#include "tools/moesim/read/shell_run.h"

#include <fmt/format.h>

#include <cctype>

#include "base/text.h"
#include "tools/moesim/read/job_file.h"

namespace moesim::tools {

namespace {

constexpr std::size_t kMaxWork = 4'000'000;  // commands, characters read, variables copied

// Variables maintained by bash: scripts that change them are not supported, and their values are only known
// in a run.
constexpr std::array<std::string_view, 24> kKept{
    "RANDOM", "SRANDOM", "SECONDS", "LINENO",     "EPOCHSECONDS", "EPOCHREALTIME",   "FUNCNAME",  "DIRSTACK",
    "GROUPS", "HISTCMD", "_",       "PIPESTATUS", "PWD",          "OLDPWD",          "UID",       "EUID",
    "PPID",   "IFS",     "OPTIND",  "OPTARG",     "GLOBIGNORE",   "POSIXLY_CORRECT", "SHELLOPTS", "REPLY"};
// Variables of the login: never assumed to be unset.
constexpr std::array<std::string_view, 14> kPresent{"HOME",     "PATH",   "USER",     "LOGNAME", "SHELL",
                                                    "TERM",     "LANG",   "SHLVL",    "OSTYPE",  "MACHTYPE",
                                                    "HOSTTYPE", "OPTERR", "HOSTNAME", "PS4"};

bool kept_by_bash(std::string_view name) {
  return among(kKept, name) || name.starts_with("BASH") || name.starts_with("COMP_");
}

bool writes(const ShellRedirect& r) { return r.op[0] == '>' || r.op[0] == '&'; }

}  // namespace

void ShellRun::run(std::string_view text, const std::vector<std::string>& variables) {
  slurm_lines(text);
  for (const std::string& one : variables) {
    const std::size_t equals = std::min(one.find('='), one.size());
    const std::string name = one.substr(0, equals), given = one.substr(std::min(equals + 1, one.size()));
    if (const auto n = parse_int(name); n && *n > 0 && *n < 1000) {
      state_.arguments_given = true;
      state_.arguments.resize(std::max(state_.arguments.size(), static_cast<std::size_t>(*n)));
      state_.arguments[static_cast<std::size_t>(*n - 1)] = given;
    } else {
      ShellVariable v;
      v.exported = true;
      v.items = {given};
      put(name, std::move(v));
    }
  }
  for (const char sign : {kShellUnknown, kShellEmpty, '\x03', '\x04', '\0'})
    if (text.find(sign) != std::string_view::npos) fail("a control character", "a script's text");
  evaluate(std::string(text));
}

void ShellRun::fail(const std::string& found, const std::string& expected) const {
  throw InputError(SourcePlace{file_, line_}, found, expected);
}

void ShellRun::refuse(const std::string& what) const {
  fail(script_.shown(what) + (what.ends_with(",") ? " which is not followed" : ", which is not followed"),
       "a script without it");
}

void ShellRun::charge(std::size_t work) {
  work_ += work;
  if (work_ > kMaxWork)
    fail("more steps than can be followed (a loop without end?)", "the arguments of one job");
}

void ShellRun::count(std::size_t bytes) {
  expanded_ += bytes;
  charge(1 + bytes / 64);
  if (expanded_ > kMaxExpandedBytes)
    fail("variables that expand to more than 16 MiB", "the arguments of one job");
}

void ShellRun::note(const std::string& text) {
  script_.notes_.insert(fmt::format("{}:{}: {}", file_, line_, text));
}

// Uses one index in the list for equal pieces, so that loops come to an end.
std::string ShellRun::unknown(std::string_view text, const std::string& why) {
  const std::string shown = script_.shown(text);
  const auto [at, is_new] = unknowns_.try_emplace(shown + '\n' + why, script_.reasons_.size());
  if (is_new) script_.reasons_.push_back({shown, why});
  return kShellUnknown + std::to_string(at->second) + kShellUnknown;
}

// ---- Variables.

const ShellVariable* ShellRun::variable(const std::string& name) const {
  const auto at = state_.variables.find(name);
  return at == state_.variables.end() ? nullptr : at->second.get();
}

ShellVariable ShellRun::changed(const std::string& name) const {
  const ShellVariable* v = variable(name);
  if (kept_by_bash(name) || (v && v->readonly)) refuse("a change of " + name + ", which bash keeps,");
  return v ? *v : ShellVariable{};
}

void ShellRun::put(const std::string& name, ShellVariable value) {
  state_.variables[name] = std::make_shared<const ShellVariable>(std::move(value));
}

void ShellRun::set_variable(const std::string& name, const std::string& given) {
  ShellAssignment a;
  a.name = name;
  assign(a, {given});
}

// Expands the right side of an assignment.
ShellRun::Words ShellRun::items_of(const ShellAssignment& a) {
  line_ = a.value.line;
  return a.array ? fields(a.items) : Words{value(a.value.raw)};
}

void ShellRun::assign(const ShellAssignment& a, const Words& items) {
  ShellVariable v = changed(a.name);
  if (a.append && !variable(a.name)) v.items = find(a.name, "", "$" + a.name).items;
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
  put(a.name, std::move(v));
}

void ShellRun::everything(const std::string& why) {
  state_.anything = why;
  state_.variables.clear();
  state_.functions.clear();
  state_.status = std::nullopt;
}

ShellRun::Found ShellRun::not_set(const std::string& name, const std::string& written) {
  Found found;
  const bool outside = state_.anything.empty() && !among(kPresent, name) && !kept_by_bash(name);
  if (assuming_ && outside) {
    script_.assumed_.insert("$" + name);
    found.set = false;
    return found;
  }
  found.outside = outside;
  found.items = {
      unknown(written, state_.anything.empty() ? written + " is said outside of the file" : state_.anything)};
  return found;
}

// Finds $@, $#, $?, $1 and parameters known only in a run.
ShellRun::Found ShellRun::find_special(const std::string& name, const std::string& written) {
  Found found;
  const bool digits = std::isdigit(static_cast<unsigned char>(name[0])) != 0;
  const bool unsure = std::ranges::any_of(state_.arguments, has_unknown);
  const auto n = static_cast<std::size_t>(std::min(parse_int(name).value_or(1 << 20), 1LL << 20));
  if (name == "@" || name == "*") {
    found.items = state_.arguments;
    found.set = !found.items.empty();
    found.list = found.arguments = true, found.star = name == "*";
  } else if (name == "#" && !unsure) {
    found.items = {std::to_string(state_.arguments.size())};
  } else if (name == "?" && state_.status) {
    found.items = {std::to_string(*state_.status)};
  } else if (!digits || n == 0 || unsure) {
    found.items = {unknown(written, written + " is only known in a run")};
  } else if (n <= state_.arguments.size()) {
    found.items = {state_.arguments[n - 1]};
  } else if (state_.arguments_given) {
    found.set = false;
  } else {
    return not_set(name, written);
  }
  return found;
}

ShellRun::Found ShellRun::find(const std::string& name, std::string_view subscript,
                               const std::string& written) {
  if (!is_shell_name(name)) return find_special(name, written);
  const bool all = subscript == "@" || subscript == "*";
  const ShellVariable* v = variable(name);
  Found found = v ? Found{} : not_set(name, written);
  if (!v || all || (v->items.empty() && subscript.empty())) {
    if (v) found.items = v->items, found.set = !v->items.empty();
    found.list = all, found.star = subscript == "*";
    return found;
  }
  const Number index = subscript.empty() ? Number(0) : decimal(subscript);
  const bool certain = subscript.empty() || std::ranges::none_of(v->items, has_unknown);
  if (!index || *index < 0 || !certain) {
    found.items = {unknown(written, "which element it is is not followed")};
    return found;
  }
  found.set = static_cast<std::size_t>(*index) < v->items.size();
  if (found.set) found.items = {v->items[static_cast<std::size_t>(*index)]};
  return found;
}

void ShellRun::set_status(const Truth& truth) {
  state_.status = truth ? std::optional(*truth ? 0 : 1) : std::nullopt;
}

// ---- Commands.

void ShellRun::execute(const ShellNode& node) {
  if (state_.leaves()) return;
  charge(1);
  line_ = node.line;
  if (++depth_ > 3 * kMaxJobFileDepth) refuse("commands inside of each other, 192 deep");
  const bool hides = capturing_ > 0 && std::ranges::any_of(node.redirects, [](const ShellRedirect& r) {
                       return writes(r) && r.descriptor != "2";
                     });
  const std::string out = state_.out;
  if (node.kind != Kind::kSimple) note_redirects(node);
  execute_kind(node);
  if (hides) state_.out = out + unknown("...", "its output is redirected");
  --depth_;
}

void ShellRun::execute_kind(const ShellNode& node) {
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
    case Kind::kBackground:
      in_subshell([&] { execute(*node.parts[0]); });
      state_.status = 0;
      return;
    case Kind::kIf:
      return if_of(node, 0);
    case Kind::kWhile:
    case Kind::kUntil:
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
      const Number v = arithmetic(quoted(node.words[0].raw));
      set_status(v ? Truth(*v != 0) : Truth());
      return leave_if_failed();
    }
    case Kind::kTest: {
      Tokens tokens{node.words};
      set_status(double_test(tokens, "||", false, 0));
      if (tokens.at < node.words.size()) refuse("this test");
      return leave_if_failed();
    }
  }
}

void ShellRun::condition(const ShellNode& node) {
  ++guarded_;
  execute(node);
  --guarded_;
}

// Joins this path's state with the other's.
void ShellRun::join_with(ShellState other) {
  for (const auto& [one, two] : {std::pair(&state_, &other), std::pair(&other, &state_)})
    if (one->flow == Flow::kExit && two->flow != Flow::kExit) {
      note("exit under a condition that cannot be told: taken as not reached");
      if (one == &state_) state_ = std::move(other);
      return;
    }
  if (state_.flow != other.flow || state_.levels != other.levels)
    refuse("break, continue or return under a condition that cannot be told,");
  if (state_.hidden != other.hidden) refuse("local under a condition that cannot be told,");
  state_ = merged(std::move(state_), other, [this](const std::string& name) {
    return unknown("$" + name, "$" + name + " is set under a condition that cannot be told");
  });
}

void ShellRun::and_or(const ShellNode& node) {
  const auto is_test = [](const ShellNode& part) {
    const std::string_view first = part.words.empty() ? "" : part.words[0].raw;
    return part.kind != Kind::kSimple || first == "[" || first == "test";
  };
  bool tests = false;
  for (std::size_t i = 0; i < node.parts.size() && !state_.leaves(); ++i) {
    const auto run = [&] {
      i + 1 == node.parts.size() ? execute(*node.parts[i]) : condition(*node.parts[i]);
    };
    const bool with = i > 0 && node.text[i - 1] == '&';
    if (i == 0 || (state_.status && (*state_.status == 0) == with)) {
      run();
    } else if (!state_.status) {
      const std::size_t commands = script_.commands_.size();
      perhaps(run);
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

void ShellRun::pipe(const ShellNode& node) {
  std::optional<int> all = 0;
  const std::string before = state_.out;
  for (const ShellNodePtr& part : node.parts) {
    const bool first = part == node.parts.front();
    piped_ += first ? 0 : 1;
    in_subshell([&] { execute(*part); });
    piped_ -= first ? 0 : 1;
    if (!state_.status || *state_.status != 0) all = all ? state_.status : std::nullopt;
  }
  if (capturing_ > 0) state_.out = before + unknown("...", "it is the output of a command");
  if (state_.pipefail) state_.status = all;
  leave_if_failed();
}

void ShellRun::if_of(const ShellNode& node, std::size_t from) {
  if (from + 1 >= node.parts.size()) {
    if (from < node.parts.size())
      execute(*node.parts[from]);
    else
      state_.status = 0;
    return;
  }
  condition(*node.parts[from]);
  if (state_.leaves()) return;
  if (state_.status) return *state_.status == 0 ? execute(*node.parts[from + 1]) : if_of(node, from + 2);
  either([&] { execute(*node.parts[from + 1]); }, [&] { if_of(node, from + 2); });
}

void ShellRun::case_of(const ShellNode& node, std::size_t from, const std::string& subject) {
  for (std::size_t i = from; i < node.parts.size(); ++i) {
    bool fits = false, unsure = false;
    for (const ShellWord& word : node.patterns[i]) {
      const Truth one = shell_match(pattern(word.raw), subject);
      fits = fits || one.value_or(false);
      unsure = unsure || !one;
    }
    if (fits) return execute(*node.parts[i]);
    if (!unsure) continue;
    return either([&] { execute(*node.parts[i]); }, [&] { case_of(node, i + 1, subject); });
  }
}

bool ShellRun::same(const ShellState& a, const ShellState& b) {
  const auto alike = [](const auto& x, const auto& y) {
    return x.first == y.first && (x.second == y.second || (x.second && y.second && *x.second == *y.second));
  };
  return std::ranges::equal(a.variables, b.variables, alike) && a.functions == b.functions &&
         a.arguments == b.arguments && a.anything == b.anything && a.out == b.out;
}

// Handles break and continue; returns true where the loop ends.
bool ShellRun::turn_ended() {
  if (!state_.leaves()) return false;
  if (state_.flow != Flow::kBreak && state_.flow != Flow::kContinue) return true;
  const bool ends = state_.flow == Flow::kBreak || state_.levels > 1;
  if (--state_.levels <= 0) state_.levels = 0, state_.flow = Flow::kOn;
  return ends;
}

void ShellRun::for_of(const ShellNode& node) {
  const Words words = node.given ? fields(node.words) : state_.arguments;
  state_.status = 0;
  ++loops_;
  if (std::ranges::any_of(words, has_unknown)) {
    any_number_of([&] {
      set_variable(node.text,
                   unknown("$" + node.text, "$" + node.text + " is one of a list that cannot be told"));
      execute(*node.parts[0]);
    });
  } else {
    for (const std::string& word : words) {
      charge(1);
      set_variable(node.text, word);
      execute(*node.parts[0]);
      if (turn_ended()) break;
    }
  }
  --loops_;
}

void ShellRun::while_of(const ShellNode& node) {
  const bool until = node.kind == Kind::kUntil;
  if (node.parts.size() > 3) condition(*node.parts[3]);
  ++loops_;
  for (;;) {
    charge(1 + state_.variables.size());
    const ShellState before = state_;
    const std::size_t commands = script_.commands_.size();
    condition(*node.parts[0]);
    if (state_.leaves()) break;
    if (!state_.status) {
      state_ = before;
      script_.commands_.resize(commands);
      any_number_of([&] {
        condition(*node.parts[0]);
        execute(*node.parts[1]);
        if (!turn_ended() && node.parts.size() > 2) condition(*node.parts[2]);
      });
      break;
    }
    if ((*state_.status == 0) == until) break;
    execute(*node.parts[1]);
    if (turn_ended()) break;
    if (node.parts.size() > 2) condition(*node.parts[2]);
  }
  --loops_;
  state_.status = std::nullopt;
}

void ShellRun::simple(const ShellNode& node) {
  substitution_ = 0;
  const std::string_view first = node.words.empty() ? "" : node.words[0].raw;
  const bool tests = first == "[" || first == "test";
  Words words;
  for (std::size_t i = 0; i < node.words.size(); ++i) {
    line_ = node.words[i].line;
    const std::string_view before = i > 0 ? node.words[i - 1].raw : "";
    assuming_ = tests && (before == "-z" || before == "-n");
    fields(node.words[i].raw, words);
    assuming_ = false;
  }
  line_ = node.line;
  note_redirects(node);
  if (words.empty()) {
    for (const ShellAssignment& a : node.assignments) assign(a, items_of(a));
    state_.status = substitution_;
    return leave_if_failed();
  }
  // Assignments before a command apply to its environment only.
  std::vector<std::pair<std::string, ShellVariablePtr>> hidden;
  for (const ShellAssignment& a : std::span(node.assignments).first(node.prefix)) {
    if (a.name == "IFS" && words[0] == "read") continue;  // its input is unknown
    hidden.emplace_back(a.name, variable(a.name) ? state_.variables[a.name] : nullptr);
    assign(a, items_of(a));
    ShellVariable exported = *variable(a.name);
    exported.exported = true;
    put(a.name, std::move(exported));
  }
  if (!hidden.empty() && (state_.functions.contains(words[0]) || words[0] == "eval" || words[0] == "export"))
    refuse("an assignment in front of " + words[0]);
  run_words(node, words);
  for (auto at = hidden.rbegin(); at != hidden.rend(); ++at) {
    state_.variables.erase(at->first);
    if (at->second) state_.variables[at->first] = at->second;
  }
  leave_if_failed();
}

void ShellRun::run_words(const ShellNode& node, const Words& words) {
  if (const auto at = state_.functions.find(words[0]); at != state_.functions.end()) {
    const ShellNodePtr body = at->second;
    if (!body) return everything(words[0] + " is one of several functions");
    return call(*body, words);
  }
  // "$A" with the value "X=1" is neither an assignment nor a program.
  if (words[0].find('=') != std::string::npos) return void(state_.status = 127);
  if (builtin(node, words)) return;
  state_.status = std::nullopt;
  external(node, words);
}

void ShellRun::call(const ShellNode& body, const Words& words) {
  if (++calls_ > kMaxJobFileDepth) fail("functions inside of each other, 64 deep", "fewer");
  const Words arguments = std::exchange(state_.arguments, Words(words.begin() + 1, words.end()));
  const bool given = std::exchange(state_.arguments_given, true);
  const long loops = std::exchange(loops_, 0);
  state_.hidden.emplace_back();
  execute(body);
  if (state_.flow == Flow::kReturn) state_.flow = Flow::kOn;
  for (const auto& [name, old] : state_.hidden.back()) {
    state_.variables.erase(name);
    if (old) state_.variables[name] = old;
  }
  state_.hidden.pop_back();
  state_.arguments = arguments;
  state_.arguments_given = given;
  loops_ = loops;
  --calls_;
}

void ShellRun::evaluate(std::string text) {
  if (++calls_ > kMaxJobFileDepth) fail("scripts inside of each other, 64 deep", "fewer");
  count(text.size());
  const ShellNodePtr program = parse_shell(sources_.emplace_back(std::move(text)), file_, line_);
  trees_.push_back(program);
  execute(*program);
  --calls_;
}

// Applies `set -e` after a command.
void ShellRun::leave_if_failed() {
  if (!state_.errexit || guarded_ > 0 || state_.leaves()) return;
  if (!state_.status) may_have_failed_ = true;
  if (state_.status && *state_.status != 0) state_.flow = Flow::kExit;
}

void ShellRun::write(const std::string& text) {
  if (capturing_ == 0) return;
  count(text.size());
  state_.out += text;
}

void ShellRun::note_redirects(const ShellNode& node) {
  for (const ShellRedirect& r : node.redirects)
    if (!r.body && r.op != "<<<") {
      const std::string name = value(r.target.raw);
      if (writes(r) && !name.starts_with("/dev/")) written_.insert(plain_file(name));
    }
}

std::optional<std::string> ShellRun::input_of(const ShellNode& node) {
  std::optional<std::string> text;
  for (const ShellRedirect& r : node.redirects) {
    if (!r.descriptor.empty() || writes(r)) continue;
    if (r.body)
      text = r.verbatim ? *r.body : quoted(*r.body, true);
    else if (r.op == "<<<")
      text = value(r.target.raw) + "\n";
    else
      text.reset();
  }
  return text;
}

}  // namespace moesim::tools
