#include <fmt/format.h>

#include "base/text.h"
#include "tools/moesim/jobs/job_file.h"
#include "tools/moesim/jobs/shell_run.h"

namespace moesim::tools {

namespace {

// Files that set up a machine's software and leave a script's own variables alone.
constexpr std::array<std::string_view, 10> kSetUps{"activate",   ".bashrc", ".bash_profile", ".profile",
                                                   "profile",    "bashrc",  "conda.sh",      "setvars.sh",
                                                   "modules.sh", "lmod.sh"};
// Commands that go to another machine or container: they leave the environment behind.
constexpr std::array<std::string_view, 6> kAway{"ssh", "docker", "podman", "kubectl", "nerdctl", "sudo"};
// Builtins that change nothing that is followed here.
constexpr std::array<std::string_view, 18> kHarmless{
    "cd",   "pushd",  "popd",  "wait", "ulimit", "alias", "umask",   "unalias", "jobs",
    "kill", "disown", "times", "dirs", "type",   "hash",  "history", "help",    "suspend"};
constexpr std::array<std::string_view, 8> kNotFollowed{"shopt",   "coproc",    "enable", "select",
                                                       "mapfile", "readarray", "caller", "bind"};
constexpr std::array<std::string_view, 8> kCopies{"cp", "mv", "ln", "tee", "sed", "install", "wget", "curl"};

std::string name_of_program(std::string_view word) { return std::string(word.substr(word.rfind('/') + 1)); }

bool is_echo_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' &&
         (has_unknown(word) || word.find_first_not_of("neE", 1) == std::string_view::npos);
}

std::string echoed(std::span<const std::string> words) {
  const bool bare = !words.empty() && words[0] == "-n";
  return join(words.subspan(bare ? 1 : 0), " ") + (bare ? "" : "\n");
}

}  // namespace

bool ShellRun::builtin(const ShellNode& node, const Words& words) {
  const std::string& name = words[0];
  const std::span<const std::string> rest = std::span(words).subspan(1);
  if (among(kNotFollowed, name)) refuse(name);
  state_.status = 0;
  if (name == ":" || name == "true") return true;
  if (name == "false") return state_.status = 1, true;
  if (name == "echo") {
    const bool odd = !rest.empty() && is_echo_option(rest[0]) &&
                     (rest[0] != "-n" || rest.size() < 2 || is_echo_option(rest[1]));
    return write(odd ? unknown("echo", "its options are not followed") : echoed(rest)), true;
  }
  if (name == "[" || name == "test") {
    if (name == "[" && rest.back() != "]") refuse("[ without ]");
    const Truth truth = test_words(rest.first(rest.size() - (name == "[" ? 1 : 0)));
    state_.status = truth ? std::optional<int>(*truth ? 0 : 1) : std::nullopt;
    return true;
  }
  if (name == "export" || name == "declare" || name == "typeset" || name == "local" || name == "readonly")
    return declare(node, words), true;
  if (name == "unset") return unset(rest), true;
  if (name == "set") return set_options(rest), true;
  if (name == "source" || name == ".") return source(words), true;
  if (name == "exit" || name == "return" || name == "break" || name == "continue" || name == "exec")
    return leaving(words) ||
           (external(node, Words(rest.begin(), rest.end())), state_.flow = Flow::kExit, true);
  if (name == "eval") {
    const std::string text = join(rest, " ");
    if (may_be_empty(text.substr(0, text.find(' '))) && !trim(text).empty())
      everything("eval of a command that cannot be told");
    else
      evaluate(text);
    return true;
  }
  if (name == "let") {
    for (const std::string& text : rest) {
      const Number v = arithmetic(text);
      state_.status = v ? std::optional<int>(*v != 0 ? 0 : 1) : std::nullopt;
    }
    return true;
  }
  if (name == "shift") {
    const Number n = rest.empty() ? Number(1) : decimal(rest[0]);
    if (!n || *n < 0 || std::ranges::any_of(state_.arguments, has_unknown)) refuse("this shift");
    const auto count = static_cast<std::size_t>(*n);
    if (count > state_.arguments.size()) return state_.status = 1, true;
    state_.arguments.erase(state_.arguments.begin(), state_.arguments.begin() + *n);
    return true;
  }
  if (name == "read" || name == "getopts" || name == "printf") {
    state_.status = std::nullopt;
    if (name == "printf" && (rest.empty() || rest[0] != "-v"))
      return write(unknown("printf", "its format is not followed")), true;
    for (const std::string& word : rest)
      if (is_shell_name(word)) set(word, unknown("$" + word, name + " sets it"));
    if (name == "read" &&
        std::ranges::any_of(rest, [](const std::string& w) { return w.starts_with("-a") || w == "-ra"; }))
      refuse("read of an array");
    return true;
  }
  if (name == "trap") {
    for (const std::string& word : rest)
      if (word == "DEBUG" || word == "RETURN" || word == "ERR") refuse("trap on " + word);
    return note("the command of trap is taken to change nothing"), true;
  }
  if (name == "command" || name == "builtin") {
    state_.status = std::nullopt;
    if (rest.empty() || rest[0].starts_with('-'))
      return write(unknown(name, "it is the output of a command")), true;
    const Words inner(rest.begin(), rest.end());
    if (!builtin(node, inner)) state_.status = std::nullopt, external(node, inner);
    return true;
  }
  state_.status = std::nullopt;
  if (among(kHarmless, name) && capturing_ > 0) write(unknown(name, "it is the output of a command"));
  return among(kHarmless, name);
}

// exit, return, break, continue; false: exec of a command.
bool ShellRun::leaving(const Words& words) {
  const std::string& name = words[0];
  if (name == "exec") {
    if (words.size() == 1) return true;
    if (words[1].starts_with('-')) refuse("exec " + words[1]);
    return false;
  }
  // -1: not a number that can be told.
  const std::int64_t n = words.size() > 1 ? decimal(words[1]).value_or(-1) : 1;
  if (name == "break" || name == "continue") {
    state_.levels = n;
    if (state_.levels < 1) refuse(name + " " + words[1]);
    if (state_.levels > loops_) refuse(name + " outside of a loop");
    state_.flow = name == "break" ? Flow::kBreak : Flow::kContinue;
    return true;
  }
  if (name == "return" && state_.hidden.empty()) refuse("return outside of a function");
  // Without a number the status of the command before stays, which is no longer known here.
  state_.status = words.size() > 1 && n >= 0 ? std::optional(static_cast<int>(n & 255)) : std::nullopt;
  state_.flow = name == "exit" ? Flow::kExit : Flow::kReturn;
  return true;
}

void ShellRun::declare(const ShellNode& node, const Words& words) {
  const std::string& kind = words[0];
  std::string letters;
  Words names;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].starts_with('+') || has_unknown(words[i])) refuse(kind + " " + words[i]);
    if (words[i].starts_with('-'))
      letters += words[i].substr(1);
    else
      names.push_back(words[i]);
  }
  if (letters.find('n') != std::string::npos) refuse(kind + " -n");
  if (letters.find_first_of("fFp") != std::string::npos) {
    write(unknown(kind, "it is the output of a command"));
    return;
  }
  if (kind == "local" && state_.hidden.empty()) refuse("local outside of a function");
  for (const std::string& word : names) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    if (!is_shell_name(name)) refuse(fmt::format("{} {}", kind, word));
    attributes(name, kind, letters);
    if (equals < word.size()) set(name, word.substr(equals + 1));
    if (kind == "readonly" || letters.find('r') != std::string::npos) attributes(name, "readonly", "");
  }
  for (std::size_t i = node.prefix; i < node.assignments.size(); ++i) {
    const ShellAssignment& a = node.assignments[i];
    const bool itself = a.value.raw.find('$' + a.name) != std::string_view::npos ||
                        a.value.raw.find("${" + a.name) != std::string_view::npos;
    if (kind != "export" && kind != "readonly" && (itself || node.assignments.size() > node.prefix + 1))
      for (std::size_t j = node.prefix; j < node.assignments.size(); ++j)
        if (node.assignments[j].value.raw.find('$') != std::string_view::npos || a.array)
          refuse(kind + " with values that the names may change");
    attributes(a.name, kind, letters);
    apply(a);
    if (kind == "export" || kind == "readonly" || letters.find_first_of("xr") != std::string::npos)
      attributes(a.name,
                 kind == "declare" || kind == "typeset" || kind == "local"
                     ? (letters.find('r') != std::string::npos ? "readonly" : "export")
                     : kind,
                 letters);
  }
  state_.status = 0;
}

void ShellRun::attributes(const std::string& name, const std::string& kind, const std::string& letters) {
  const auto has = [&](const char* some) { return letters.find_first_of(some) != std::string::npos; };
  const bool local = kind == "local" || ((kind == "declare" || kind == "typeset") && !has("g"));
  const auto at = state_.variables.find(name);
  const ShellVariablePtr old = at == state_.variables.end() ? nullptr : at->second;
  ShellVariable v = changed(name);
  if (local && !state_.hidden.empty() && state_.hidden.back().try_emplace(name, old).second) {
    v = {};
    v.exported = old && old->exported;
  }
  if (!old && (kind == "export" || kind == "readonly")) return;
  v.exported |= kind == "export" || has("x");
  v.readonly |= kind == "readonly";
  v.array |= has("a");
  v.odd |= has("Ailuc");
  if (v.odd && v.items.empty() && has("A")) v.array = true;
  put(name, std::move(v));
}

void ShellRun::unset(std::span<const std::string> names) {
  if (!names.empty() && names[0] == "-f") {
    for (const std::string& name : names.subspan(1)) state_.functions.erase(name);
    return;
  }
  for (const std::string& name : names.subspan(!names.empty() && names[0] == "-v" ? 1 : 0)) {
    if (!is_shell_name(name)) {
      const std::string array = name.substr(0, name.find('['));
      if (!is_shell_name(array)) refuse("unset " + name);
      ShellVariable v = changed(array);
      v.items = {unknown("$" + array, "an element of " + array + " is unset")};
      put(array, std::move(v));
      continue;
    }
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
    const bool option = word.size() > 1 && (word[0] == '-' || word[0] == '+') && word != "--";
    if (!option) {
      if (word == "-" || word == "+") refuse("set " + word);
      state_.arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(i + (word == "--" ? 1 : 0)),
                              words.end());
      state_.arguments_given = true;
      return;
    }
    const bool on = word[0] == '-';
    for (const char c : word.substr(1)) {
      const std::string named = c == 'o' && i + 1 < words.size() ? words[++i] : std::string(1, c);
      if (named == "e" || named == "errexit")
        state_.errexit = on;
      else if (named == "u" || named == "nounset")
        state_.nounset = on;
      else if (named == "pipefail")
        state_.pipefail = on;
      else if (std::string_view("xvhEbmT").find(named) == std::string_view::npos && named != "xtrace" &&
               named != "errtrace" && named != "verbose")
        refuse(fmt::format("set {} {}", word, named));
      else
        continue;
      if (uncertain_ > 0) refuse("set under a condition that cannot be told,");
    }
  }
}

void ShellRun::source(const Words& words) {
  const std::string file = words.size() > 1 ? script_.shown(words[1]) : "";
  if (const std::string* text = words.size() > 1 ? written_file(words[1]) : nullptr) {
    if (words.size() > 2) refuse("source with arguments");
    return evaluate(*text);
  }
  state_.status = std::nullopt;
  if (among(kSetUps, name_of_program(file)) || file.starts_with("/etc/profile") ||
      file.find("/modules/init/") != std::string::npos)
    note(file + " is taken as leaving the script's variables alone");
  else
    everything("source " + file + " is not read");
}

void ShellRun::external(const ShellNode& node, const Words& words) {
  const auto input = words[0] == "cat" && words.size() == 1 ? input_of(node) : std::nullopt;
  write(input ? *input : unknown(words[0], "it is the output of a command"));
  if (among(kCopies, name_of_program(words[0])))
    for (std::string name : std::span(words).subspan(1)) {
      while (name.starts_with("./")) name.erase(0, 2);
      files_[name] = std::nullopt;
    }
  if (nested_shell(node, words) || words[0] == "find") return;
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

const std::string* ShellRun::written_file(const std::string& name) const {
  const auto at = files_.find(name.starts_with("./") ? name.substr(2) : name);
  if (at == files_.end()) return nullptr;
  if (!at->second) refuse("a script that is written on the way, " + in_quotes(name));
  return &*at->second;
}

// The text that `bash ...`, `sbatch ...` and a script by its name run; `shell`: where bash stands.
std::optional<std::string> ShellRun::script_of(const ShellNode& node, const Words& words, std::size_t shell,
                                               Words& arguments) {
  const auto from = [&](std::size_t at) {
    arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())), words.end());
  };
  const auto file = [&](const std::string& name) {
    const std::string* text = written_file(name);
    return text ? std::optional(*text) : std::nullopt;
  };
  if (shell < words.size()) {
    std::size_t i = shell + 1;
    for (; i < words.size() && words[i].starts_with('-'); ++i) {
      if (words[i].find_first_of("sof") != std::string::npos) refuse("bash " + words[i]);
      if (words[i].starts_with("--") || words[i].find('c') == std::string::npos) continue;
      if (i + 1 >= words.size() || words[i + 1].starts_with('-') || words[i].find('e') != std::string::npos)
        refuse("bash " + words[i]);
      from(i + 3);
      return words[i + 1];
    }
    from(i + 1);
    if (i < words.size()) {
      auto text = file(words[i]);
      if (!text) note(words[i] + " is run and not read");
      if (text && i > shell + 1) refuse("bash with options for a script");
      return text;
    }
    auto text = input_of(node);
    if (!text && (piped_ > 0 || !node.redirects.empty())) refuse("a shell that reads its commands");
    return text;
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].starts_with("--wrap=")) return words[i].substr(7);
    if (words[i] == "--wrap" && i + 1 < words.size()) return words[i + 1];
    from(i + 1);
    if (auto text = file(words[i])) return text;
  }
  from(words.size());
  return words[0] == "sbatch" ? input_of(node) : std::nullopt;
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
  Words arguments;
  std::optional<std::string> text;
  if (shell == words.size() && !batch) {
    const std::string* written = written_file(words[0]);
    if (!written) return false;
    text = *written;
    arguments.assign(words.begin() + 1, words.end());
  } else {
    text = script_of(node, words, shell, arguments);
  }
  if (!text || may_be_empty(text->substr(0, text->find(' ')))) return false;
  if (first == "ssh" || first == "env" || first == "xargs") refuse(first + " of a shell");
  in_subshell([&] {
    for (auto at = state_.variables.begin(); at != state_.variables.end();)
      at = !at->second->exported || among(kAway, first) ? state_.variables.erase(at) : std::next(at);
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
  const auto set_all = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      ShellVariable v;
      v.exported = true;
      v.items = {std::string(given)};
      put(name, std::move(v));
    }
  };
  if (option == "--nodes" || option == "-N") set_all({"SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  if (option == "--ntasks-per-node") set_all({"SLURM_NTASKS_PER_NODE"});
  if (option == "--gpus-per-node") set_all({"SLURM_GPUS_PER_NODE"});
  if (option == "--ntasks" || option == "-n") set_all({"SLURM_NTASKS", "SLURM_NPROCS"});
}

void ShellRun::slurm_options(std::span<const std::string> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const std::size_t equals = word.find('=');
    if (equals != std::string_view::npos)
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
    if (end != std::string_view::npos) slurm_option(line.substr(0, end), trim(line.substr(end + 1)));
  }
}

}  // namespace moesim::tools
