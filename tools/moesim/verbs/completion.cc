// `moesim completion`: completions for bash, and the man page, from the definition of the command line.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/text.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/routing/routing.h"
#include "models/workload/architecture.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

std::vector<CLI::Option> named_options(const CLI::App& app) {
  std::vector<CLI::Option> out;
  for (const CLI::Option option : app.get_options())
    if (option->nonpositional()) out.push_back(option);
  return out;
}

// Returns the words of "table|json|csv" or "TEXT:{latin,random}"; empty where any value is allowed.
std::vector<std::string> listed_values(const CLI::Option& option) {
  std::string type = option.get_type_name();
  char between = '|';
  if (const auto open = type.find('{'); open != std::string::npos) {
    type = type.substr(open + 1, type.find('}') - open - 1);
    between = ',';
  }
  std::vector<std::string> words;
  if (type.find(between) == std::string::npos) return words;
  for (const std::string_view word : split(type, between)) {
    const bool is_word = !word.empty() && std::ranges::all_of(word, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    });
    if (!is_word) return {};
    words.emplace_back(word);
  }
  return words;
}

// Returns built-in names that are also allowed in the place of a file: models, machines, dispatchers,
// routings.
std::vector<std::string> built_in_values(const CLI::Option& option) {
  const std::string name = option.get_lnames().empty() ? "" : option.get_lnames().front();
  std::vector<std::string> words;
  const auto add = [&](const auto& names) { words.insert(words.end(), names.begin(), names.end()); };
  if (name == "model") add(models::Architecture::names());
  if (name == "routing") add(models::RoutingSpec::names());
  if (name == "dispatcher" || name == "between") {
    if (name == "dispatcher") words.emplace_back("all");
    for (const auto& entry : models::dispatcher_registry()) words.emplace_back(entry.name);
  }
  if (name == "cluster" || name == "clusters")
    for (const auto& pattern : models::Cluster::patterns()) {
      const std::string text(pattern.name);
      if (!text.ends_with("xN")) {
        words.push_back(text);
        continue;
      }
      for (const char* count : {"1", "8", "64"}) words.push_back(text.substr(0, text.size() - 1) + count);
    }
  return words;
}

std::vector<std::string> dashed_names(const CLI::Option& option) {
  std::vector<std::string> out;
  for (const std::string& name : option.get_snames()) out.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.push_back("--" + name);
  return out;
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  return fmt::format("{}", fmt::join(words, between));
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

// Escapes text for roff: no line begins with a request, and backslashes and dashes are literal.
std::string roff(std::string_view text) {
  std::string out = replaced(replaced(std::string(text), "\\", "\\e"), "-", "\\-");
  out = replaced(std::move(out), "\n.", "\n\\&.");
  if (out.starts_with('.') || out.starts_with('\'')) out.insert(0, "\\&");
  return out;
}

void describe_options(const CLI::App& app, std::string& out) {
  for (const CLI::Option option : app.get_options()) {
    const std::string name = option->get_positional() && !option->nonpositional()
                                 ? option->get_name(true)
                                 : joined(dashed_names(option), ", ");
    out += fmt::format(".TP\n.B {}", roff(name));
    if (option->takes_value()) out += fmt::format(" \\fI{}\\fR", roff(option->get_type_name()));
    out += fmt::format("\n{}", roff(option->get_description()));
    if (!option->get_default_str().empty()) out += fmt::format(" [{}]", roff(option->get_default_str()));
    out += "\n";
  }
}

// Returns moesim(1) in roff: synopsis, every verb with its options, defaults and examples.
std::string man_page(const CLI::App& app) {
  std::string out = fmt::format(
      ".TH MOESIM 1 \"\" \"moesim {0}\" \"User Commands\"\n.SH NAME\nmoesim \\- what a "
      "mixture\\-of\\-experts job costs on "
      "hardware you do not own yet\n.SH SYNOPSIS\n.B moesim\n\\fIverb\\fR [\\fIoptions\\fR]\n.SH "
      "DESCRIPTION\n"
      "Forecasts the time and memory of training mixture\\-of\\-experts models, compares token dispatchers, "
      "and replays "
      "recordings of one GPU as the iteration of all.\n",
      version());
  for (const CLI::App* verb : app.get_subcommands(true)) {
    out += fmt::format(
        ".SH {}\n{}\n",
        [&] {
          std::string upper = verb->get_name();
          std::ranges::transform(upper, upper.begin(),
                                 [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; });
          return upper;
        }(),
        roff(verb->get_description()));
    describe_options(*verb, out);
    for (const CLI::App* part : verb->get_subcommands(true)) {
      out += fmt::format(".SS {} {}\n{}\n", roff(verb->get_name()), roff(part->get_name()),
                         roff(part->get_description()));
      describe_options(*part, out);
    }
    if (!verb->get_footer().empty()) out += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(verb->get_footer()));
  }
  out +=
      ".SH EXIT STATUS\n.TP\n.B 0\nan answer\n.TP\n.B 1\na check that was asked for failed\n.TP\n.B 2\nthe "
      "input or the command "
      "line is wrong; one line on stderr says where\n.TP\n.B 3\nan internal error\n";
  return out;
}

// Returns completions for verbs, options, listed values ("table|json|csv") and files.
std::string bash_completion(const CLI::App& app) {
  std::vector<std::string> verbs;
  std::string cases, values;
  for (const CLI::App* verb : app.get_subcommands(true)) {
    verbs.push_back(verb->get_name());
    std::vector<std::string> words;
    const auto add = [&](const CLI::App& part) {
      for (const CLI::Option option : named_options(part)) {
        const auto names = dashed_names(option);
        words.insert(words.end(), names.begin(), names.end());
        const auto listed = listed_values(option), built_in = built_in_values(option);
        for (const std::string& name : names)
          if (!built_in.empty())
            values += fmt::format("    {}:{}) COMPREPLY=($(compgen -f -W '{}' -- \"$cur\")); return ;;\n",
                                  verb->get_name(), name, joined(built_in, " "));
          else if (!listed.empty())
            values += fmt::format("    {}:{}) COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return ;;\n",
                                  verb->get_name(), name, joined(listed, " "));
      }
    };
    add(*verb);
    for (const CLI::App* part : verb->get_subcommands(true)) {
      words.push_back(part->get_name());
      add(*part);
    }
    std::ranges::sort(words);
    words.erase(std::unique(words.begin(), words.end()), words.end());
    cases += fmt::format("    {}) words='{}' ;;\n", verb->get_name(), joined(words, " "));
  }
  return fmt::format(R"(# bash completion of moesim {}; made by `moesim completion bash`
_moesim() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} words=
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{} --help --version' -- "$cur"))
    return
  fi
  case $verb:$prev in
{}  esac
  case $verb in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [[ $cur == -* ]] || COMPREPLY+=($(compgen -f -- "$cur"))
}}
complete -o filenames -F _moesim moesim
)",
                     version(), joined(verbs, " "), values, cases);
}

}  // namespace

Verb completion_verb() {
  return {"completion", "completions for bash (zsh reads them after bashcompinit), and the man page",
          "  source <(moesim completion bash)\n"
          "  moesim completion man | man -l -",
          [](CLI::App& command) -> Run {
            const auto what = std::make_shared<std::string>();
            command.add_option("what", *what, "bash or man")->required()->type_name("bash|man");
            const CLI::App* app = command.get_parent();
            return [what, app](const CommonOptions&) {
              if (*what == "bash")
                print(bash_completion(*app));
              else if (*what == "man")
                print(man_page(*app));
              else
                throw InputError("completion: found " + in_quotes(*what) + ", expected bash or man");
              return 0;
            };
          }};
}

}  // namespace moesim::tools
