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

// Files that set up a machine's software and leave a script's own variables alone.
constexpr std::array<std::string_view, 12> kSetUps{"activate",   ".bashrc",     ".bash_profile", ".profile",
                                                   "profile",    "bash.bashrc", "bashrc",        "conda.sh",
                                                   "setvars.sh", "modules.sh",  "lmod.sh",       "bash"};
// Commands that go to another machine or container: they leave the environment behind.
constexpr std::array<std::string_view, 6> kAway{"ssh", "docker", "podman", "kubectl", "nerdctl", "sudo"};

std::string name_of_program(std::string_view word) {
  const std::size_t slash = word.rfind('/');
  return std::string(slash == std::string_view::npos ? word : word.substr(slash + 1));
}

}  // namespace

void ShellRun::simple(const ShellNode& node) {
  substitution_ = 0;
  const std::string_view raw = node.words.empty() ? "" : node.words[0].raw;
  const bool tests = raw == "[" || raw == "test", noglob = state_.noglob;
  state_.noglob = noglob || raw == "let";  // "x*=2" is the name of no file
  Words words;
  for (std::size_t i = 0; i < node.words.size(); ++i) {
    line_ = node.words[i].line;
    if (tests && i > 0) {
      const std::string_view before = node.words[i - 1].raw;
      const std::size_t only = node.words.size() - (raw == "[" ? 1 : 0);
      assuming_ =
          before == "-z" || before == "-n" || (i + 1 == only && (i == 1 || (i == 2 && before == "!")));
    }
    for (std::string& field : fields(node.words[i])) words.push_back(std::move(field));
    assuming_ = false;
  }
  state_.noglob = noglob;
  line_ = node.line;
  for (const ShellRedirect& r : node.redirects)
    if (!r.body && r.op != "<<<") value(r.target);
  if (words.empty()) {
    for (const ShellAssignment& a : node.assignments) apply(a);
    state_.status = substitution_;
    leave_if_failed();
    return;
  }
  // Assignments in front of a command are its environment alone.
  std::vector<std::pair<std::string, ShellVariablePtr>> hidden;
  for (std::size_t i = 0; i < node.prefix; ++i) {
    const ShellAssignment& a = node.assignments[i];
    const auto at = state_.variables.find(a.name);
    hidden.emplace_back(a.name, at == state_.variables.end() ? nullptr : at->second);
    apply(a);
    if (const ShellVariable* v = variable(a.name)) {
      ShellVariable exported = *v;
      exported.exported = true;
      put(a.name, std::move(exported));
    }
  }
  run_words(node, words, true);
  for (auto at = hidden.rbegin(); at != hidden.rend(); ++at) {
    if (at->second)
      state_.variables[at->first] = at->second;
    else
      state_.variables.erase(at->first);
  }
  leave_if_failed();
}

void ShellRun::run_words(const ShellNode& node, const Words& words, bool functions) {
  if (words.empty()) return;
  if (functions) {
    if (const auto at = state_.functions.find(words[0]); at != state_.functions.end()) {
      if (at->second)
        call(*ShellNodePtr(at->second), words);
      else
        everything(words[0] + ", of which it cannot be told what it is");
      return;
    }
  }
  if (!builtin(node, words)) {
    state_.status = std::nullopt;
    external(node, words);
  }
}

bool ShellRun::builtin(const ShellNode& node, const Words& words) {
  const std::string& name = words[0];
  const Words rest(words.begin() + 1, words.end());
  const auto number = [&](std::size_t fallback) -> std::optional<std::size_t> {
    if (rest.empty()) return fallback;
    const auto n = decimal(rest[0]);
    return n && *n >= 0 ? std::optional<std::size_t>(static_cast<std::size_t>(*n)) : std::nullopt;
  };
  const auto done = [&](std::optional<int> status = 0) {
    state_.status = status;
    return true;
  };
  if (name == ":" || name == "true") return done();
  if (name == "false") return done(1);
  if (name == "[" || name == "test") {
    test_command(words);
    return true;
  }
  if (name == "echo") return write(echoed(rest)), done();
  if (name == "printf") return printf_of(rest), done();
  if (name == "local" && state_.outer.empty()) return done(1);
  if (name == "export" || name == "declare" || name == "typeset" || name == "local" || name == "readonly")
    return declare(node, words), done();
  if (name == "unset") return unset(rest), done();
  if (name == "set") return set_options(rest), done();
  if (name == "shopt") return shopt(rest), done(std::nullopt);
  if (name == "let") {
    Number v = 0;
    for (const std::string& text : rest) v = arithmetic(text);
    return done(v ? std::optional<int>(*v != 0 ? 0 : 1) : std::nullopt);
  }
  if (name == "eval") {
    const std::string text = join(rest, " ");
    state_.status = 0;
    if (commands_unknown(text))
      everything("eval of a command that cannot be told");
    else
      evaluate(text, line_);
    return true;
  }
  if (name == "source" || name == ".") return source(rest), true;
  if (name == "shift") {
    const auto n = number(1);
    Words& arguments = state_.arguments;
    if (!n || std::ranges::any_of(arguments, has_unknown)) {
      arguments = {unknown("$@", "the arguments that are left cannot be told")};
      return done(std::nullopt);
    }
    if (*n > arguments.size()) return done(1);
    arguments.erase(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(*n));
    return done();
  }
  if (name == "exit" || name == "return") {
    std::optional<int> status = state_.status;
    if (!rest.empty()) {
      const auto n = decimal(rest[0]);
      status = n ? std::optional<int>(static_cast<int>(*n & 255)) : std::nullopt;
    }
    if (name == "exit") {
      leave(status);
    } else if (!state_.outer.empty()) {
      state_.status = status;
      returns_.push_back(copy());
      state_.dead = true;
    }
    return true;
  }
  if (name == "break" || name == "continue") {
    if (loops_.empty()) return done();
    const std::size_t n = std::clamp<std::size_t>(number(1).value_or(1), 1, loops_.size());
    state_.status = 0;
    Loop& loop = loops_[loops_.size() - n];
    (name == "break" ? loop.breaks : loop.continues).push_back(copy());
    state_.dead = true;
    return true;
  }
  if (name == "read") return read(node, rest), true;
  if (name == "mapfile" || name == "readarray") {
    const std::string target = rest.empty() || rest.back().starts_with("-") ? "MAPFILE" : rest.back();
    read_into(target, "", false, true);
    return done(std::nullopt);
  }
  if (name == "getopts") {
    // Without arguments it ends at once.
    const bool none = rest.size() == 2 && state_.arguments.empty();
    const std::string piece = unknown("$" + name, "it is an option of the script");
    for (const std::string& target :
         {rest.size() > 1 ? rest[1] : std::string("OPTARG"), std::string("OPTARG"), std::string("OPTIND")})
      set(target, none && target != "OPTIND" && target != "OPTARG" ? "?" : piece);
    return done(none ? std::optional<int>(1) : std::nullopt);
  }
  if (name == "trap") return trap(rest), done();
  if (name == "exec") {
    if (rest.empty()) return done();
    std::size_t first = 0;
    while (first < rest.size() && rest[first].starts_with("-")) first += rest[first] == "-a" ? 2 : 1;
    if (first < rest.size())
      external(node, Words(rest.begin() + static_cast<std::ptrdiff_t>(first), rest.end()));
    leave(1);
    return true;
  }
  if (name == "command" || name == "builtin") {
    std::size_t first = 0;
    while (first < rest.size() && rest[first] == "-p") ++first;
    if (first >= rest.size()) return done();
    if (rest[first].starts_with("-")) return done(std::nullopt);  // command -v
    run_words(node, Words(rest.begin() + static_cast<std::ptrdiff_t>(first), rest.end()), false);
    return true;
  }
  if (name == "enable") fail(name, "a script without it");
  constexpr std::array<std::string_view, 20> kHarmless{
      "cd",     "pushd", "popd", "wait", "umask",   "ulimit", "alias", "unalias", "jobs", "kill",
      "disown", "times", "type", "dirs", "suspend", "help",   "hash",  "history", "fc",   "bind"};
  if (!among(kHarmless, name)) return false;
  if (name == "type") write(unknown("type", "it is the output of a command"));
  return done(name == "alias" || name == "umask" ? std::optional<int>(0) : std::nullopt);
}

bool ShellRun::commands_unknown(std::string_view text) {
  text = trim(text);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find_first_of(" \t\n;&|"));
    if (word.find('=') == std::string_view::npos) return has_unknown(word);
    text = trim(text.substr(word.size()));
  }
  return false;
}

void ShellRun::test_command(Words words) {
  if (words[0] == "[" && words.back() != "]") {
    state_.status = 2;
    return;
  }
  const bool brackets = words[0] == "[";
  words.erase(words.begin());
  if (brackets) words.pop_back();
  const Truth truth = std::ranges::any_of(words, has_unknown) ? Truth() : test_words(words);
  state_.status = truth ? std::optional<int>(*truth ? 0 : 1) : std::nullopt;
}

std::string ShellRun::echoed(const Words& rest) {
  std::size_t first = 0;
  bool line = true, escapes = false;
  for (; first < rest.size(); ++first) {
    const std::string& w = rest[first];
    if (w.size() < 2 || w[0] != '-' || w.find_first_not_of("neE", 1) != std::string::npos) break;
    line = line && w.find('n') == std::string::npos;
    if (w.find('e') != std::string::npos) escapes = true;
  }
  std::string text = join(std::span(rest).subspan(first), " ");
  if (escapes && text.find('\\') != std::string::npos)
    text = unknown("echo -e", "its escapes are not followed");
  return text + (line ? "\n" : "");
}

void ShellRun::printf_of(const Words& rest) {
  std::size_t first = 0;
  std::string target;
  if (rest.size() > 1 && rest[0] == "-v") target = rest[1], first = 2;
  if (first < rest.size() && rest[first] == "--") ++first;
  const std::string text = first < rest.size() ? formatted(std::span(rest).subspan(first)) : "";
  if (target.empty()) return write(text);
  std::size_t bracket = 0;
  const std::size_t n = shell_variable_length(target, bracket);
  if (n != target.size() || bracket < n) return everything("printf -v " + target);
  set(target, text);
}

std::string ShellRun::formatted(std::span<const std::string> words) {
  std::string_view format = words[0];
  const bool line = format.ends_with("\\n");
  if (line) format.remove_suffix(2);
  const bool takes = format == "%s" || (format == "%d" && words.size() == 2 && parse_int(words[1]) &&
                                        std::to_string(*parse_int(words[1])) == words[1]);
  if ((takes ? words.size() != 2
             : words.size() != 1 || format.find_first_of("%\\") != std::string_view::npos))
    return unknown("printf", "its format is not followed");
  return (takes ? words[1] : std::string(format)) + (line ? "\n" : "");
}

void ShellRun::declare(const ShellNode& node, const Words& words) {
  const std::string& kind = words[0];
  std::string on, off;
  Words names;
  bool ended = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (!ended && words[i] == "--")
      ended = true;
    else if (!ended && words[i].size() > 1 && (words[i][0] == '-' || words[i][0] == '+'))
      (words[i][0] == '-' ? on : off) += words[i].substr(1);
    else
      names.push_back(words[i]);
  }
  const auto has = [&](char c) { return on.find(c) != std::string::npos; };
  if (has('f') || has('F') || (has('p') && kind != "local")) return;
  const bool local =
      kind == "local" || ((kind == "declare" || kind == "typeset") && !has('g') && !state_.outer.empty());
  const auto attributes = [&](const std::string& name) {
    if (local && !state_.outer.empty() && !state_.outer.back().contains(name)) {
      const auto at = state_.variables.find(name);
      const ShellVariablePtr old = at == state_.variables.end() ? nullptr : at->second;
      state_.outer.back()[name] = old;
      ShellVariable fresh;
      fresh.exported = old && old->exported;
      if (!state_.anything.empty() || !old) fresh.exported = false;
      put(name, std::move(fresh));
    }
    const auto at = state_.variables.find(name);
    const bool exists = at != state_.variables.end();
    if (!exists && (kind == "export" || kind == "readonly")) return;
    ShellVariable v = exists ? *at->second : ShellVariable{};
    if (kind == "export" || has('x')) v.exported = !has('n') || kind != "export";
    if (off.find('x') != std::string::npos) v.exported = false;
    v.integer = (v.integer || has('i')) && off.find('i') == std::string::npos;
    v.odd = v.odd || has('l') || has('u') || has('c');
    v.array = v.array || has('a');
    v.named = v.named || has('A');
    put(name, std::move(v));
  };
  const auto lock = [&](const std::string& name) {
    if (kind != "readonly" && !has('r')) return;
    if (const ShellVariable* v = variable(name)) {
      ShellVariable locked = *v;
      locked.readonly = true;
      put(name, std::move(locked));
    }
  };
  if (kind != "export" && has('n')) return everything(kind + " -n: references are not followed");
  for (const std::string& word : names) {
    const std::size_t equals = word.find('=');
    const bool more = equals != std::string::npos && equals > 0 && word[equals - 1] == '+';
    const std::string name = word.substr(0, equals == std::string::npos ? equals : equals - (more ? 1 : 0));
    if (!is_shell_name(name)) {
      if (has_unknown(name) || name.find('[') != std::string::npos)
        everything(kind + " of a name that cannot be told");
      continue;
    }
    attributes(name);
    if (equals != std::string::npos) assign(name, std::nullopt, more, word.substr(equals + 1));
    if (equals == std::string::npos && (kind == "export" || has('x')) && !has('n') && !variable(name))
      exports_.insert(name);
    lock(name);
  }
  // All values are told before the first name is set.
  std::vector<std::pair<std::string, std::optional<std::string>>> said;
  for (std::size_t i = node.prefix; i < node.assignments.size(); ++i) {
    const ShellAssignment& a = node.assignments[i];
    said.emplace_back(a.array ? "" : value(a.value), std::nullopt);
    if (a.has_subscript) said.back().second = value({a.subscript, line_});
  }
  for (std::size_t i = node.prefix; i < node.assignments.size(); ++i) {
    const ShellAssignment& a = node.assignments[i];
    attributes(a.name);
    if (a.array)
      assign_items(a, has('A'));
    else
      assign(a.name, said[i - node.prefix].second, a.append, said[i - node.prefix].first);
    if (kind == "export" || has('x')) attributes(a.name);
    lock(a.name);
  }
}

void ShellRun::unset(const Words& rest) {
  bool functions = false;
  for (const std::string& word : rest) {
    if (word == "-f" || word == "-v" || word == "-n") {
      functions = word == "-f";
      continue;
    }
    std::size_t bracket = 0;
    const std::size_t n = shell_variable_length(word, bracket);
    if (n != word.size() || n == 0) {
      if (has_unknown(word)) everything("unset of a name that cannot be told");
    } else if (functions || (!variable(word) && state_.functions.contains(word))) {
      state_.functions.erase(word);
    } else if (bracket < n) {
      const std::string name = word.substr(0, bracket);
      const std::string key = word.substr(bracket + 1, n - bracket - 2);
      ShellVariable v = changed(name);
      const bool all = key == "@" || key == "*";
      const Number index = v.named || all ? Number() : arithmetic(double_quoted(key));
      if (v.named && !has_unknown(key))
        v.keyed.erase(key);
      else if (index && *index >= 0 && known_count(v.items) == v.items.size())
        v.items.erase(*index);
      else
        v.items = {{0, unknown("$" + name, "an element of " + name + " is unset that cannot be told")}};
      put(name, std::move(v));
    } else {
      changed(word);
      put(word, {});  // a local of this function stays one; of a caller what it hides comes back
      for (std::size_t i = state_.outer.size(); i-- > 0 && !state_.outer.back().contains(word);) {
        const auto at = state_.outer[i].find(word);
        if (at == state_.outer[i].end()) continue;
        if (at->second)
          state_.variables[word] = at->second;
        else
          state_.variables.erase(word);
        state_.outer[i].erase(at);
        break;
      }
    }
  }
}

void ShellRun::set_options(const Words& rest) {
  const auto named = [&](const std::string& option, bool on) {
    if (uncertain_ > 0 && (option == "errexit" || option == "pipefail"))
      fail("set -o " + option + " under a condition that cannot be told", "it always or never");
    if (option == "errexit") state_.errexit = on;
    if (option == "nounset") state_.nounset = on;
    if (option == "noglob") state_.noglob = on;
    if (option == "pipefail") state_.pipefail = on;
    if (option == "allexport") state_.allexport = on;
    constexpr std::array<std::string_view, 5> kOther{"posix", "noexec", "keyword", "braceexpand", "onecmd"};
    if ((among(kOther, option) && (on || option == "braceexpand")) || has_unknown(option))
      fail("set -o " + script_.shown(option), "a script without it");
  };
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const std::string& word = rest[i];
    const bool option = word.size() > 1 && (word[0] == '-' || word[0] == '+') && word != "--";
    if (!option || has_unknown(word)) {
      state_.arguments.assign(
          rest.begin() + static_cast<std::ptrdiff_t>(i + (word == "--" || word == "-" ? 1 : 0)), rest.end());
      state_.arguments_given = true;
      return;
    }
    const bool on = word[0] == '-';
    for (const char c : word.substr(1)) {
      if (c == 'o') {
        if (i + 1 < rest.size()) named(rest[++i], on);
        continue;
      }
      constexpr std::string_view kLetters = "eufaBnkt";
      constexpr std::array<std::string_view, 8> kNames{"errexit",     "nounset", "noglob",  "allexport",
                                                       "braceexpand", "noexec",  "keyword", "onecmd"};
      if (const std::size_t at = kLetters.find(c); at != std::string_view::npos) {
        if (c != 'B' || !on) named(std::string(kNames[at]), on);
      }
    }
  }
}

void ShellRun::shopt(const Words& rest) {
  constexpr std::array<std::string_view, 9> kHarmless{"checkwinsize",    "cmdhist",  "histappend",
                                                      "inherit_errexit", "globstar", "dotglob",
                                                      "huponexit",       "extglob",  "promptvars"};
  constexpr std::array<std::string_view, 3> kGlobs{"nullglob", "failglob", "nocaseglob"};
  const bool sets = !rest.empty() &&
                    (rest[0].find('s') != std::string::npos || rest[0].find('o') != std::string::npos) &&
                    rest[0][0] == '-';
  for (std::size_t i = 1; i < rest.size() && sets; ++i) {
    if (among(kGlobs, rest[i]))
      state_.odd_globs = true;
    else if (!among(kHarmless, rest[i]))
      fail("shopt " + script_.shown(rest[0] + " " + rest[i]), "a script without it");
  }
}

void ShellRun::source(const Words& rest) {
  const std::string file = rest.empty() ? "" : script_.shown(rest[0]);
  const std::string name = name_of_program(file);
  state_.status = std::nullopt;
  if (const std::string* text = rest.empty() ? nullptr : written_file(rest[0])) {
    evaluate(*text, line_);
    return;
  }
  const bool set_up = among(kSetUps, name) || file.starts_with("/etc/profile") ||
                      file.find("/modules/init/") != std::string::npos;
  if (set_up)
    script_.notes_.insert(
        fmt::format("{}:{}: {} is taken as leaving the script's variables alone", file_, line_, file));
  else
    everything("source " + file + " is not read");
}

void ShellRun::read(const ShellNode& node, const Words& rest) {
  Words names;
  bool plain = true;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const bool option = names.empty() && rest[i].starts_with("-");
    if (!option) names.push_back(rest[i]);
    plain = plain && (!option || rest[i] == "-r");
    // Options with a value of their own.
    if (option && std::string_view("adinNptu").find(rest[i].back()) != std::string_view::npos &&
        ++i < rest.size() && rest[i - 1].back() == 'a')
      names.push_back(rest[i]);
  }
  if (names.empty()) names.emplace_back("REPLY");
  const std::optional<std::string> text = input_of(node);
  const bool told = plain && text && names.size() == 1 && !variable("IFS") && !has_unknown(*text) &&
                    text->find('\\') == std::string::npos && text->find('\n') + 1 == text->size();
  state_.status = told ? std::optional<int>(0) : std::nullopt;
  for (const std::string& name : names) read_into(name, told ? std::string(trim(*text)) : "", told, !plain);
}

void ShellRun::read_into(const std::string& name, const std::string& text, bool told, bool array) {
  if (!is_shell_name(name)) return everything("reading into " + script_.shown(name));
  ShellVariable v = changed(name);
  v.array = v.array || array;
  told = told && !v.integer && !v.odd;
  v.items = {{0, told ? text : unknown("$" + name, "it is read from elsewhere")}};
  put(name, std::move(v));
}

void ShellRun::trap(const Words& rest) {
  std::size_t first = 0;
  if (first < rest.size() && rest[first] == "--") ++first;
  if (first >= rest.size() || rest[first].starts_with("-") || first + 1 >= rest.size()) {
    for (const std::string& word : rest)
      if (word == "EXIT" || word == "0") state_.trap.clear();
    return;
  }
  const std::string action = rest[first];
  for (std::size_t i = first + 1; i < rest.size(); ++i) {
    if (rest[i] == "EXIT" || rest[i] == "0") {
      state_.trap = action;
      continue;
    }
    // Of other signals it cannot be told when they come: their command must change nothing.
    const ShellState before = copy();
    const std::size_t commands = script_.commands_.size(), left = exits_.size();
    ++uncertain_;
    if (!has_unknown(action)) evaluate(action, line_);
    --uncertain_;
    const bool starts = script_.commands_.size() > commands && (rest[i] == "DEBUG" || rest[i] == "RETURN");
    const bool same = !starts && (state_.dead || state_.variables == before.variables);
    script_.commands_.resize(commands);
    exits_.resize(left);
    state_ = before;
    if (!same || has_unknown(action)) fail("trap on " + rest[i], "one that changes no variable");
  }
}

void ShellRun::external(const ShellNode& node, const Words& words) {
  if (capturing_ > 0) {
    const std::optional<std::string> text =
        words[0] == "cat" && words.size() == 1 ? input_of(node) : std::nullopt;
    write(text ? *text : unknown(words[0], "it is the output of a command"));
  }
  if (runs_shell(node, words)) return;
  // An assignment that an expansion has made is the name of a command that is not there.
  if (is_shell_name(std::string_view(words[0]).substr(0, words[0].find('='))) &&
      words[0].find('=') != std::string::npos)
    return;
  if (words[0] == "tee") {
    const std::optional<std::string> text = input_of(node) ? input_of(node) : piped_;
    for (std::size_t i = 1; i < words.size(); ++i)
      if (!words[i].starts_with("-")) note_file(words[i], words[1] == "-a" ? std::nullopt : text);
  }
  ShellCommand command{words, {file_, node.line}, uncertain_ > 0, "", "", "", ""};
  const auto said = [&](const char* name) {
    const ShellVariable* v = variable(name);
    return v && !v->items.empty() ? v->items.begin()->second : std::string();
  };
  command.nodes = said("SLURM_NNODES");
  command.tasks = said("SLURM_NTASKS_PER_NODE");
  command.flash = said("NVTE_FLASH_ATTN");
  command.fused = said("NVTE_FUSED_ATTN");
  for (const std::string& word : words) count(word.size());
  if (words[0] == "find") return;  // its -exec is no command of the script
  if (words[0] == "xargs" || words[0] == "parallel")
    command.words.push_back(unknown("...", words[0] + " adds words"));
  script_.commands_.push_back(std::move(command));
}

std::string ShellRun::file_name(std::string_view name) {
  while (name.starts_with("./")) name.remove_prefix(2);
  return std::string(name);
}

void ShellRun::note_file(const std::string& name, const std::optional<std::string>& text) {
  if (name.starts_with("/dev/")) return;
  const bool told = text && !has_unknown(*text) && uncertain_ == 0;
  files_[file_name(name)] = told ? text : std::nullopt;
}

const std::string* ShellRun::written_file(const std::string& name) const {
  const auto at = files_.find(file_name(name));
  if (at == files_.end()) return nullptr;
  if (!at->second) fail("a script that is written on the way, " + in_quotes(name), "one that the file says");
  return &*at->second;
}

bool ShellRun::runs_shell(const ShellNode& node, const Words& words) {
  const std::string first = name_of_program(words[0]);
  bool away = among(kAway, first) || std::ranges::find(words, "-i") != words.end();
  Words set_before;
  std::size_t shell = words.size();
  for (std::size_t i = 0; i < words.size() && shell == words.size(); ++i) {
    const std::string name = name_of_program(words[i]);
    if (name == "bash" || name == "sh") shell = i;
    if (name == "-") continue;
    if (name.ends_with(".py") || name.starts_with("python") || name == "torchrun") return false;
    const std::size_t equals = words[i].find('=');
    if (first == "env" && i > 0 && equals != std::string::npos &&
        is_shell_name(std::string_view(words[i]).substr(0, equals)))
      set_before.push_back(words[i]);
  }
  const bool batch = first == "sbatch";
  if (shell == words.size() && !batch && !written_file(words[0])) return false;
  std::string text;
  Words arguments;
  bool found = false, errexit = false;
  if (shell < words.size()) {
    std::size_t i = shell + 1;
    bool reads = false;
    for (; i < words.size() && !words[i].empty() && (words[i][0] == '-' || words[i][0] == '+'); ++i) {
      const bool letters = !words[i].starts_with("--");
      errexit = errexit || (letters && words[i].find('e') != std::string::npos);
      if (letters && words[i].find('c') != std::string::npos && i + 1 < words.size()) {
        std::size_t at = i + 1;
        while (at + 1 < words.size() && words[at].starts_with("-")) ++at;
        text = words[at];
        arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(at + 2, words.size())),
                         words.end());
        found = true;
        break;
      }
      if (letters && words[i].find('s') != std::string::npos) reads = true;
      if (letters && (words[i].back() == 'o' || words[i].back() == 'O')) ++i;
    }
    if (!found && (reads || i >= words.size())) {
      auto input = input_of(node);
      if (!input && node.redirects.empty()) input = piped_;
      if (input) {
        text = *input;
        found = true;
        if (i < words.size()) arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      }
    } else if (!found && written_file(words[i])) {
      text = *written_file(words[i]);
      found = true;
      arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
    }
  } else if (!batch) {
    text = *written_file(words[0]);
    found = true;
    arguments.assign(words.begin() + 1, words.end());
  } else {
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i].starts_with("--wrap=")) text = words[i].substr(7), found = true;
      if (words[i] == "--wrap" && i + 1 < words.size()) text = words[i + 1], found = true;
      if (!found && written_file(words[i])) text = *written_file(words[i]), found = true;
    }
    if (!found)
      if (const auto input = input_of(node)) text = *input, found = true;
  }
  if (!found) return false;
  if (has_unknown(text) && commands_unknown(text)) return false;
  const Words options(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(shell));
  in_subshell([&] {
    if (batch || first == "srun") slurm_options(options);
    other_shell(text, arguments, away, set_before, errexit);
  });
  if (shell > 0) state_.status = std::nullopt;
  return true;
}

}  // namespace moesim::tools
