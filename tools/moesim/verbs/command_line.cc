#include "tools/moesim/verbs/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <system_error>

#include "base/file_io.h"
#include "base/files_read.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/question/paths.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/show/options.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/terminal.h"

namespace moesim::tools {

namespace {

void declare_common(CLI::App& command, CommonOptions& options) {
  static const std::map<std::string, Format> kFormats{
      {"table", Format::kTable}, {"json", Format::kJson}, {"csv", Format::kCsv}};
  command
      .add_option_function(
          "--format",
          [&options](const std::string& text) {
            const auto at = kFormats.find(text);
            if (at == kFormats.end())
              throw InputError("found --format " + in_quotes(text) + ", expected table, json or csv");
            options.format = at->second;
          },
          "table (for people), json or csv")
      ->type_name("table|json|csv");
  command.add_flag("-q,--quiet", options.quiet, "no warnings and no progress");
  command.add_option("--seed", options.seed, "seed of everything that is drawn")->capture_default_str();
  command.add_option("--threads", options.threads, "worker threads, 0: all cores")
      ->check(CLI::Range(0, 4096).description(""));
}

// The path of a scenario that a word like an option names, with its last parts: "--gpu.memory", "--bandwidth".
std::string path_of(const std::string& option) {
  const std::string name = option.starts_with("--") ? option.substr(2) : "";
  if (name.empty()) return "";
  for (const models::ScenarioPath& path : models::scenario_paths())
    if (path.path == name || path.path.ends_with("." + name)) return path.path;
  return "";
}

// CLI11 lists unknown words; the nearest known option is more helpful.
std::string explain_extras(const CLI::App& command, const std::vector<std::string>& extras) {
  std::vector<std::string> known;
  for (const CLI::Option option : command.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const CLI::App* verb : command.get_subcommands(true)) known.push_back(verb->get_name());
  const std::string& extra = extras.front();
  const std::string name = extra.substr(0, extra.find('='));
  const bool sets = std::ranges::find(known, "--set") != known.end();
  if (const std::string path = path_of(name); sets && !path.empty())
    return fmt::format("unknown option {}; expected --set {}=VALUE; see 'moesim whatif --paths'",
                       in_quotes(extra), path);
  const bool two_steps = std::ranges::any_of(
      all_verbs(), [&](const Verb& verb) { return verb.name == command.get_name() && !verb.usual.empty(); });
  const std::string help =
      command.get_name() == "moesim"
          ? "moesim --help"
          : fmt::format("moesim {} --help{}", command.get_name(), two_steps ? " all" : "");
  return fmt::format("unknown {} {}{}; see '{}'", extra.starts_with('-') ? "option" : "argument",
                     in_quotes(extra), did_you_mean(name, known), help);
}

// "--port: Value 9 not in range 0 to 5" of CLI11 as "--port: found 9, expected 0 to 5".
std::string found_and_expected(const std::string& message) {
  const std::size_t colon = std::min(message.find(": "), message.size());
  const std::string name = message.substr(0, colon),
                    text = message.substr(std::min(colon + 2, message.size()));
  const std::vector<std::string_view> words = split(text, ' ');
  if (const std::size_t at = text.rfind(" not in range "); at != std::string::npos && words[0] == "Value") {
    std::string range = text.substr(at + 14);
    if (range.starts_with('[')) range = range.substr(1, range.size() - 2);  // newer versions of CLI11
    return fmt::format("{}: found {}, expected {}", name, text.substr(6, at - 6), range);
  }
  if (const std::size_t at = text.rfind(" not in {"); at != std::string::npos)
    return fmt::format("{}: found {}, expected one of {}", name, text.substr(0, at),
                       text.substr(at + 9, text.size() - at - 10));
  if (words.size() > 3 && words[1] == "required" && words.back() == "missing")
    return fmt::format("{}: found no value, expected {}", name, words[0] == "1" ? "one" : words[0]);
  if (words.size() == 7 && words[1] == "least" && words[5] == "received")
    return fmt::format("{}: found {} value{}, expected {}", name, words[6], words[6] == "1" ? "" : "s",
                       words[2]);
  return message;
}

// `moesim VERB --help all`: the words without the last, where they ask for it.
bool take_help_all(std::vector<std::string>& words) {
  if (words.size() < 2 || words.back() != "all") return false;
  const std::string& before = words[words.size() - 2];
  if (before != "--help" && before != "-h") return false;
  words.pop_back();
  return true;
}

// Leaves the usual options of a verb's help, and tells how the others are asked for.
void shorten_help(CLI::App& command, const Verb& verb) {
  std::size_t hidden = 0;
  for (const CLI::Option option : command.get_options()) {
    if (!option->nonpositional()) continue;
    const bool usual =
        option->check_name("--help") || std::ranges::any_of(verb.usual, [&](std::string_view name) {
          return option->check_name(std::string(name));
        });
    hidden += usual ? 0 : 1;
    option->group(usual ? "Options" : "");
  }
  command.footer(fmt::format("`moesim {} --help all` shows {} more options.\n{}", verb.name, hidden,
                             command.get_footer()));
}

// CLI11 reads numbers as C does: too large integers become the largest, unsigned -1 becomes 2^64 - 1, 010 is
// eight, and nan is in every range.
void refuse_odd_numbers(const CLI::App& command) {
  const auto whole = [](std::string text, auto value) {
    // "8k" is allowed for options read as text; CLI11's own numbers refuse it themselves.
    if (text.size() > 1 && (text.ends_with('k') || text.ends_with('K') || text.ends_with('M')))
      text.pop_back();
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    const std::size_t first = text.starts_with('-') ? 1 : 0;
    return error == std::errc() && stop == end && (text.size() == first + 1 || text[first] != '0');
  };
  for (const CLI::Option option : command.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("FLOAT"))
      for (const std::string& text : option->results())
        if (!std::isfinite(std::strtod(text.c_str(), nullptr)))
          throw InputError(
              fmt::format("{}: found {}, expected a finite number", option->get_name(), in_quotes(text)));
    const bool natural = type.starts_with("UINT");
    if (!natural && !type.starts_with("INT")) continue;
    for (const std::string& text : option->results())
      if (!(natural ? whole(text, std::uint64_t{}) : whole(text, std::int64_t{})))
        throw InputError(fmt::format("{}: found {}, expected a whole number {}", option->get_name(),
                                     in_quotes(text),
                                     natural ? "from 0 to 2^64 - 1" : "between -2^63 and 2^63"));
  }
  for (const CLI::App* inner : command.get_subcommands()) refuse_odd_numbers(*inner);
}

// Two outputs with one name would overwrite each other; an unwritable one is reported before the work.
void check_outputs(const CLI::App& command) {
  std::map<std::filesystem::path, std::string> names;
  for (const std::string_view name : kOutputOptions) {
    for (const std::string& path : command.results(std::string(name))) {
      std::error_code none;
      const auto [at, added] =
          names.emplace(std::filesystem::weakly_canonical(std::filesystem::absolute(path, none), none), name);
      if (!added)
        throw InputError(fmt::format("{} and {}: found {} for both, expected a file for each", at->second,
                                     name, in_quotes(path)));
      if (is_folder(path)) continue;
      check_writable(path);
      // Some verbs create the folder of --out.
      if (const std::filesystem::path folder = std::filesystem::path(path).parent_path();
          name != "--out" && !folder.empty() && !is_folder(folder))
        throw InputError(SourcePlace{path}, "no folder " + in_quotes(folder.string()), "one that is there");
    }
  }
  for (const CLI::App* inner : command.get_subcommands()) check_outputs(*inner);
}

}  // namespace

struct CommandLine::Parser {
  CLI::App app{"moesim: what a mixture-of-experts job costs on hardware you do not own yet", "moesim"};
  std::map<const CLI::App*, Run> runs;
  const CLI::App* chosen = nullptr;
};

CommandLine::~CommandLine() = default;

CommandLine::CommandLine(const std::vector<std::string>& given) : parser_(std::make_unique<Parser>()) {
  std::vector<std::string> words = given;
  const bool help_all = take_help_all(words);
  options_.command_line = given;
  for (const std::string& word : words)
    if (first_not_utf8(word) != std::string::npos || word.find('\0') != std::string::npos)
      throw InputError(fmt::format("command line: found {}, expected text in UTF-8", in_quotes(word)));
  CLI::App& app = parser_->app;
  app.set_version_flag("--version", std::string("moesim ") + version());
  app.set_help_flag("-h,--help", "this text");
  app.require_subcommand(0, 1);
  app.footer(
      "`moesim VERB --help` shows a verb's options and examples. To begin with:\n"
      "  moesim compare --model qwen3-30b-a3b --cluster h100 --gpus 32 --ep 8");
  app.allow_extras();
  for (const Verb& verb : all_verbs()) {
    CLI::App* command = app.add_subcommand(verb.name, verb.summary);
    command->footer("Examples:\n" + verb.examples);
    parser_->runs[command] = verb.declare(*command);
    declare_common(*command, options_);
    command->allow_extras();
  }
  try {
    if (const auto text = app.parse(words)) {
      for (CLI::App* command : app.get_subcommands())
        for (const Verb& verb : all_verbs())
          if (!help_all && verb.name == command->get_name() && !verb.usual.empty())
            shorten_help(*command, verb);
      text_ = text();
      // CLI11 leaves two lines before the footer.
      if (const std::size_t at = text_.find("\n\n\n"); at != std::string::npos) text_.erase(at, 1);
      constexpr std::size_t kDescriptions = 30;  // CLI11's column of them
      text_ = wrapped(text_, standard_output().columns, kDescriptions);
      return;
    }
  } catch (const CLI::ParseError& error) {
    // A mistyped option is the cause, not what is missing because of it.
    for (const CLI::App* command : app.get_subcommands())
      if (const auto extras = command->remaining(true); !extras.empty())
        throw InputError(explain_extras(*command, extras));
    throw InputError(found_and_expected(error.what()));
  }
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) {
    const auto extras = app.remaining();
    if (!extras.empty()) throw InputError(explain_extras(app, extras));
    text_ = app.help();
    return;
  }
  const CLI::App* command = chosen.front();
  if (const auto extras = command->remaining(true); !extras.empty())
    throw InputError(explain_extras(*command, extras));
  // Words after "--" are not options, and only one verb uses them.
  if (const auto dashes = std::find(words.begin(), words.end(), "--");
      dashes != words.end() && command->get_name() != "scenario")
    throw InputError(fmt::format("found {} words behind --, expected options and files before it",
                                 words.end() - dashes - 1));
  refuse_odd_numbers(*command);
  check_outputs(*command);
  parser_->chosen = command;
  verb_ = command->get_name();
  options_.seed_given = command->count("--seed") > 0;
  // Hashes cost time: only for results that contain them.
  hashes_ = options_.format == Format::kJson || verb_ == "sweep" || command->count("--report") > 0 ||
            command->count("--timeline") > 0;
}

int CommandLine::run(FilesRead::Of of) {
  if (verb_.empty()) {
    constexpr std::size_t kHelpIndent = 30, kExampleIndent = 6;  // where CLI11 writes what an option does
    const std::size_t examples = std::min(text_.find("Examples:"), text_.size());
    print_text(text_.substr(0, examples), kHelpIndent);
    print_text(text_.substr(examples), kExampleIndent);
    return 0;
  }
  const FilesRead files(hashes_ ? FilesRead::Contents::kHashed : FilesRead::Contents::kUnhashed, of);
  try {
    return parser_->runs.at(parser_->chosen)(options_);
  } catch (const std::filesystem::filesystem_error& error) {
    // An unsuitable file or folder of the user, not a bug.
    throw InputError(SourcePlace{error.path1().string()}, error.code().message());
  }
}

CommandOutput run_command(const std::vector<std::string>& words) {
  const KeptOutput kept;
  const int code = CommandLine(words).run(FilesRead::Of::kThread);
  return {code, kept.text()};
}

}  // namespace moesim::tools
