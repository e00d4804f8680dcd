// Builtins, programs, and shells inside of the script.
#include <fmt/format.h>

#include "base/text.h"
#include "tools/moesim/read/job_file.h"
#include "tools/moesim/read/shell_run.h"

namespace moesim::tools {

namespace {

constexpr std::size_t npos = std::string_view::npos;

// Files that set up a machine's software and leave a script's own variables unchanged.
constexpr std::array<std::string_view, 10> kSetUps{"activate",   ".bashrc", ".bash_profile", ".profile",
                                                   "profile",    "bashrc",  "conda.sh",      "setvars.sh",
                                                   "modules.sh", "lmod.sh"};
// Commands that run on another machine or in a container, without the environment.
constexpr std::array<std::string_view, 6> kAway{"ssh", "docker", "podman", "kubectl", "nerdctl", "sudo"};
// Builtins without effect on the followed state.
constexpr std::array<std::string_view, 18> kHarmless{
    "cd",   "pushd",  "popd",  "wait", "ulimit", "alias", "umask",   "unalias", "jobs",
    "kill", "disown", "times", "dirs", "type",   "hash",  "history", "help",    "suspend"};
constexpr std::array<std::string_view, 8> kNotFollowed{"shopt",   "coproc",    "enable", "let",
                                                       "mapfile", "readarray", "caller", "bind"};
constexpr std::array<std::string_view, 5> kDeclaring{"export", "declare", "typeset", "local", "readonly"};

std::string name_of_program(std::string_view word) { return std::string(word.substr(word.rfind('/') + 1)); }

bool is_echo_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && (has_unknown(word) || word.find_first_not_of("neE", 1) == npos);
}

// Returns the output of seq; empty: not supported.
std::string sequence(std::span<const std::string> words) {
  const std::optional<long long> low = words.size() == 2 ? parse_int(words[0]) : 1,
                                 high = !words.empty() && words.size() < 3 ? parse_int(words.back())
                                                                           : std::nullopt;
  std::string text;
  if (!low || !high || *high > 10'000 || *low < 0) return "";
  for (long long i = *low; i <= *high; ++i) text += std::to_string(i) + "\n";
  return text;
}

}  // namespace

bool ShellRun::builtin(const ShellNode& node, const Words& words) {
  const std::string& name = words[0];
  const std::span<const std::string> rest = std::span(words).subspan(1);
  const auto is = [&](auto... names) { return ((name == names) || ...); };
  if (among(kNotFollowed, name)) refuse(name);
  state_.status = 0;
  if (is(":", "true")) return true;
  if (name == "false") return state_.status = 1, true;
  if (name == "echo") return echo(rest), true;
  if (is("[", "test")) {
    if (name == "[" && (rest.empty() || rest.back() != "]")) refuse("[ without ]");
    const Truth truth = test_words(rest.first(rest.size() - (name == "[" ? 1 : 0)));
    return set_status(truth), true;
  }
  if (among(kDeclaring, name)) return declare(node, words), true;
  if (name == "unset") return unset(rest), true;
  if (name == "set") return set_options(rest), true;
  if (is("source", ".")) return source(words), true;
  if (is("exit", "return", "break", "continue")) return leave(words), true;
  if (name == "exec") {
    if (rest.empty()) return true;
    if (rest[0].starts_with('-')) refuse("exec " + rest[0]);
    external(node, Words(rest.begin(), rest.end()));
    return state_.flow = Flow::kExit, true;
  }
  if (name == "eval") {
    const std::string text = join(rest, " ");
    const bool told = trim(text).empty() || !may_be_empty(text.substr(0, text.find(' ')));
    return told ? evaluate(text) : everything("eval of a command that cannot be told"), true;
  }
  if (name == "shift") return shift(rest), true;
  if (name == "trap") {
    for (const std::string_view signal : {"DEBUG", "RETURN", "ERR"})
      if (std::ranges::find(rest, signal) != rest.end()) refuse(fmt::format("trap on {}", signal));
    return note("the command of trap is taken to change nothing"), true;
  }
  state_.status = std::nullopt;
  if (is("read", "getopts", "printf")) return unknown_values(words), true;
  if (is("command", "builtin")) {
    if (rest.empty() || rest[0].starts_with('-'))
      return write(unknown(name, "it is the output of a command")), true;
    const Words inner(rest.begin(), rest.end());
    if (!builtin(node, inner)) state_.status = std::nullopt, external(node, inner);
    return true;
  }
  if (!among(kHarmless, name)) return false;
  if (capturing_ > 0) write(unknown(name, "it is the output of a command"));
  return true;
}

void ShellRun::echo(std::span<const std::string> words) {
  const bool bare = !words.empty() && words[0] == "-n";
  if (bare) words = words.subspan(1);
  if (!words.empty() && is_echo_option(words[0]))
    return write(unknown("echo", "its options are not followed"));
  write(join(words, " ") + (bare ? "" : "\n"));
}

void ShellRun::shift(std::span<const std::string> words) {
  const Number n = words.empty() ? Number(1) : decimal(words[0]);
  if (!n || *n < 0 || std::ranges::any_of(state_.arguments, has_unknown)) refuse("this shift");
  if (static_cast<std::size_t>(*n) > state_.arguments.size())
    state_.status = 1;
  else
    state_.arguments.erase(state_.arguments.begin(), state_.arguments.begin() + *n);
}

// read, getopts and printf: the variables that they set become unknown.
void ShellRun::unknown_values(const Words& words) {
  const std::string& name = words[0];
  if (name == "printf" && (words.size() < 2 || words[1] != "-v"))
    return write(unknown("printf", "its format is not followed"));
  for (const std::string& word : std::span(words).subspan(1)) {
    if (name == "read" && word.starts_with('-') && word.find('a') != npos) refuse("read of an array");
    if (is_shell_name(word)) set_variable(word, unknown("$" + word, name + " sets it"));
  }
}

// exit, return, break, continue
void ShellRun::leave(const Words& words) {
  const std::string& name = words[0];
  // -1: not a known number.
  const std::int64_t n = words.size() > 1 ? decimal(words[1]).value_or(-1) : 1;
  if (name == "break" || name == "continue") {
    if (n < 1) refuse(join(words, " "));
    if (n > loops_) refuse(name + " outside of a loop");
    state_.levels = n;
    state_.flow = name == "break" ? Flow::kBreak : Flow::kContinue;
    return;
  }
  if (name == "return" && state_.hidden.empty()) refuse("return outside of a function");
  // Without a number the status of the previous command stays, which is no longer known here.
  state_.status = words.size() > 1 && n >= 0 ? std::optional(static_cast<int>(n & 255)) : std::nullopt;
  state_.flow = name == "exit" ? Flow::kExit : Flow::kReturn;
}

// export, local, readonly, declare, typeset
void ShellRun::declare(const ShellNode& node, const Words& words) {
  const std::string& kind = words[0];
  std::string letters;
  for (const std::string& word : std::span(words).subspan(1)) {
    if (word.starts_with('+') || has_unknown(word)) refuse(fmt::format("{} {}", kind, word));
    if (word.starts_with('-')) letters += word.substr(1);
  }
  const auto has = [&](const char* some) { return letters.find_first_of(some) != npos; };
  if (has("Ailucnt")) refuse(kind + " -" + letters);
  if (has("fFp")) return write(unknown(kind, "it is the output of a command"));
  if (kind == "local" && state_.hidden.empty()) refuse("local outside of a function");
  const bool locally = !state_.hidden.empty() && kind != "export" && kind != "readonly" && !has("g");
  // Bash expands every value before it declares a name.
  std::vector<std::pair<ShellAssignment, Words>> all;
  for (const ShellAssignment& a : std::span(node.assignments).subspan(node.prefix))
    all.emplace_back(a, items_of(a));
  for (const std::string& word : std::span(words).subspan(1)) {
    if (word.starts_with('-')) continue;
    ShellAssignment a;
    const std::size_t equals = word.find('=');
    a.name = word.substr(0, equals);
    if (!is_shell_name(a.name)) refuse(fmt::format("{} {}", kind, word));
    all.emplace_back(a, equals == npos ? Words() : Words{word.substr(equals + 1)});
  }
  for (const auto& [a, items] : all) {
    ShellVariable v = changed(a.name);
    const ShellVariablePtr old = variable(a.name) ? state_.variables[a.name] : nullptr;
    if (locally && state_.hidden.back().try_emplace(a.name, old).second) {
      v = {};
      v.exported = old && old->exported;
    }
    v.array = v.array || has("a");
    if (old || locally) put(a.name, std::move(v));
    if (a.array || !items.empty()) assign(a, items);
    if (!variable(a.name)) continue;
    v = *variable(a.name);
    v.exported = v.exported || kind == "export" || has("x");
    v.readonly = v.readonly || kind == "readonly" || has("r");
    put(a.name, std::move(v));
  }
  state_.status = 0;
}

void ShellRun::unset(std::span<const std::string> names) {
  if (!names.empty() && names[0] == "-f") {
    for (const std::string& name : names.subspan(1)) state_.functions.erase(name);
    return;
  }
  for (const std::string& name : names.subspan(!names.empty() && names[0] == "-v" ? 1 : 0)) {
    if (!is_shell_name(name)) refuse("unset " + name);
    if (state_.functions.contains(name) && !variable(name)) refuse("unset of a function");
    if (std::ranges::any_of(state_.hidden, [&](const ShellVariables& h) { return h.contains(name); }))
      refuse("unset of a local variable");
    changed(name);
    put(name, {});
  }
}

void ShellRun::set_options(std::span<const std::string> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() < 2 || (word[0] != '-' && word[0] != '+') || word == "--") {
      if (word == "-" || word == "+") refuse("set " + word);
      state_.arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(i + (word == "--" ? 1 : 0)),
                              words.end());
      state_.arguments_given = true;
      return;
    }
    for (const char c : word.substr(1)) {
      const std::string named = c == 'o' && i + 1 < words.size() ? words[++i] : std::string(1, c);
      bool* option = named == "e" || named == "errexit"   ? &state_.errexit
                     : named == "u" || named == "nounset" ? &state_.nounset
                     : named == "pipefail"                ? &state_.pipefail
                                                          : nullptr;
      if (option != nullptr && uncertain_ > 0) refuse("set under a condition that cannot be told,");
      if (option != nullptr)
        *option = word[0] == '-';
      else if (std::string_view("xvhEbmT").find(named) == npos && named != "xtrace" && named != "errtrace" &&
               named != "verbose")
        refuse(fmt::format("set {} {}", word, named));
    }
  }
}

void ShellRun::source(const Words& words) {
  const std::string file = words.size() > 1 ? script_.shown(words[1]) : "";
  refuse_written(file);
  state_.status = std::nullopt;
  if (among(kSetUps, name_of_program(file)) || file.starts_with("/etc/profile") ||
      file.find("/modules/init/") != npos)
    note(file + " is taken as leaving the script's variables alone");
  else
    everything("source " + file + " is not read");
}

// Returns the name of a file, without "./".
std::string ShellRun::plain_file(std::string_view name) {
  while (name.starts_with("./")) name.remove_prefix(2);
  return std::string(name);
}

void ShellRun::refuse_written(const std::string& file) {
  if (written_.contains(plain_file(file)))
    refuse("a script that is written on the way, " + in_quotes(file) + ",");
}

void ShellRun::external(const ShellNode& node, const Words& words) {
  const auto input = words[0] == "cat" && words.size() == 1 ? input_of(node) : std::nullopt;
  const std::string counted = words[0] == "seq" ? sequence(std::span(words).subspan(1)) : "";
  write(input ? *input : !counted.empty() ? counted : unknown(words[0], "it is the output of a command"));
  if (nested_shell(node, words) || words[0] == "find" || words[0] == "seq") return;
  ShellCommand command{words, {file_, node.line}, uncertain_ > 0, "", "", "", ""};
  const auto said = [&](const char* name) {
    const ShellVariable* v = variable(name);
    return v && !v->items.empty() ? v->items[0] : std::string();
  };
  command.nodes = said("SLURM_NNODES");
  command.tasks = said("SLURM_NTASKS_PER_NODE");
  command.flash = said("NVTE_FLASH_ATTN");
  command.fused = said("NVTE_FUSED_ATTN");
  for (const std::string& word : words) count(word.size());
  if (may_have_failed_) note("set -e: the commands before are taken to succeed");
  if (words[0] == "xargs" || words[0] == "parallel")
    command.words.push_back(unknown("...", words[0] + " adds words"));
  script_.commands_.push_back(std::move(command));
}

// Returns the text that `bash -c ...`, `sbatch ...` and a here-document run; `shell`: index of bash in the
// words.
std::optional<std::string> ShellRun::script_of(const ShellNode& node, const Words& words, std::size_t shell,
                                               Words& arguments) {
  const std::size_t end = words.size();
  for (std::size_t i = 1; i < end && shell == end; ++i) {
    if (words[i].starts_with("--wrap=")) return words[i].substr(7);
    if (words[i] == "--wrap" && i + 1 < end) return words[i + 1];
    refuse_written(words[i]);
  }
  std::size_t i = std::min(shell + 1, end);
  for (; i < end && words[i].starts_with('-'); ++i) {
    if (words[i].find_first_of("sof") != npos) refuse("bash " + words[i]);
    if (words[i].starts_with("--") || words[i].find('c') == npos) continue;
    if (i + 1 >= end || words[i + 1].starts_with('-') || words[i].find('e') != npos)
      refuse("bash " + words[i]);
    arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(i + 3, end)), words.end());
    return words[i + 1];
  }
  if (i < end) {
    refuse_written(words[i]);
    note(words[i] + " is run and not read");
    return std::nullopt;
  }
  auto text = words[0] == "sbatch" || shell < end ? input_of(node) : std::nullopt;
  if (!text && shell < end && (piped_ > 0 || !node.redirects.empty()))
    refuse("a shell that reads its commands");
  return text;
}

bool ShellRun::nested_shell(const ShellNode& node, const Words& words) {
  const std::string first = name_of_program(words[0]);
  const bool batch = first == "sbatch";
  std::size_t shell = words.size();
  for (std::size_t i = 0; i < words.size() && shell == words.size(); ++i) {
    const std::string name = name_of_program(words[i]);
    if (name.ends_with(".py") || name.starts_with("python") || name == "torchrun") return false;
    if (name == "bash" || name == "sh") shell = i;
  }
  refuse_written(words[0]);
  if (shell == words.size() && !batch) {
    if (first.ends_with(".sh")) note(words[0] + " is run and not read");
    return false;
  }
  Words arguments;
  const std::optional<std::string> text = script_of(node, words, shell, arguments);
  if (!text || may_be_empty(text->substr(0, text->find(' ')))) return false;
  if (first == "ssh" || first == "env" || first == "xargs") refuse(first + " of a shell");
  in_subshell([&] {
    std::erase_if(state_.variables,
                  [&](const auto& one) { return !one.second->exported || among(kAway, first); });
    state_.functions.clear();
    state_.hidden.clear();
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

// ---- Slurm.

void ShellRun::slurm_option(std::string_view option, std::string_view given) {
  given = given.substr(0, given.find_first_of(" \t#"));
  if (!parse_int(given)) return;
  for (const auto& [sign, name] : std::initializer_list<std::pair<std::string_view, const char*>>{
           {"--nodes -N", "SLURM_NNODES"},
           {"--nodes -N", "SLURM_JOB_NUM_NODES"},
           {"--ntasks-per-node", "SLURM_NTASKS_PER_NODE"},
           {"--gpus-per-node", "SLURM_GPUS_PER_NODE"},
           {"--ntasks -n", "SLURM_NTASKS"},
           {"--ntasks -n", "SLURM_NPROCS"}}) {
    const std::size_t blank = sign.find(' ');
    if (option != sign.substr(0, blank) && (blank == npos || option != sign.substr(blank + 1))) continue;
    ShellVariable v;
    v.exported = true;
    v.items = {std::string(given)};
    put(name, std::move(v));
  }
}

void ShellRun::slurm_options(std::span<const std::string> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const std::size_t equals = word.find('=');
    if (equals != npos)
      slurm_option(word.substr(0, equals), word.substr(equals + 1));
    else if (i + 1 < words.size())
      slurm_option(word, words[i + 1]);
  }
}

void ShellRun::slurm_lines(std::string_view text) {
  for (std::string_view line : split(text, '\n')) {
    line = trim(line);
    if (!line.empty() && line[0] != '#') return;
    if (!line.starts_with("#SBATCH")) continue;
    line = trim(line.substr(7));
    const std::size_t end = line.find_first_of("= \t");
    if (end != npos) slurm_option(line.substr(0, end), trim(line.substr(end + 1)));
  }
}

}  // namespace moesim::tools
