#include "tools/moesim/read/job_file.h"

#include <stdexcept>

// toml++ 3.3 has assertions that a broken key ("[=") violates, and undefined behaviour without them. Here the
// violation becomes an error of the file.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expression) \
  static_cast<void>((expression) ? 0 : throw std::logic_error("a key, or a bracket in its place"))
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wterminate"
#endif
#include <toml++/toml.h>
#pragma GCC diagnostic pop
#pragma pop_macro("NDEBUG")

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "tools/moesim/read/shell_words.h"

namespace moesim::tools {

namespace {

constexpr std::size_t kMaxSettings = 100'000;

std::string with_underscores(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '-', '_');
  return text;
}

bool is_argument(std::string_view word) { return word.size() > 2 && word.starts_with("--"); }

void check_size(std::string_view text, const std::string& file) {
  if (text.size() > kMaxJobFileBytes)
    throw InputError(SourcePlace{file}, fmt::format("{} bytes", text.size()),
                     fmt::format("a job's arguments of at most {}", kMaxJobFileBytes));
}

std::string without_quotes(const std::string& word) {
  const bool quoted =
      word.size() > 1 && (word.front() == '\'' || word.front() == '"') && word.back() == word.front();
  return quoted ? word.substr(1, word.size() - 2) : word;
}

// The user's additions, split into words of arguments and NAME=VALUE.
struct Added {
  std::vector<std::string> words, values;
};

Added added_by(const std::vector<std::string>& with) {
  Added added;
  for (const std::string& text : with) {
    std::vector<std::string> words;
    for (const std::string_view word : split(text, ' '))
      if (!trim(word).empty()) words.emplace_back(trim(word));
    const bool values = std::ranges::all_of(words, [](const std::string& word) {
      const std::string_view name = std::string_view(word).substr(0, word.find('='));
      return (is_shell_name(name) || parse_int(name)) && word.find('=') != std::string::npos;
    });
    if (trim(text).starts_with("-")) {
      for (const std::string& word : words) added.words.push_back(without_quotes(word));
    } else if (values && words.size() > 1) {
      added.values.insert(added.values.end(), words.begin(), words.end());
    } else if (const std::size_t equals = text.find('='); equals != std::string::npos && equals > 0) {
      added.values.push_back(text);
    } else {
      throw InputError("--with: found " + in_quotes(text) +
                       ", expected arguments (\"--seq-length 8192\") or NAME=VALUE");
    }
  }
  return added;
}

// Returns the name of the argument that a word says, "--num-layers", "--num_layers=4" or Hydra's
// "model.num_layers=4"; "": none.
std::string argument_of(std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  if (is_argument(name)) return with_underscores(name.substr(2));
  const std::size_t dot = name.rfind('.');
  if (name.size() == word.size() || dot == std::string_view::npos) return "";
  const auto part = [](std::string_view one) { return is_shell_name(one); };
  return std::ranges::all_of(split(name.substr(std::min(name.find_first_not_of("+~"), dot)), '.'), part)
             ? std::string(name.substr(dot + 1))
             : "";
}

// Returns how many arguments distinguish a Megatron job from other commands of a script; a recipe has a whole one.
std::size_t marks_in(const std::vector<std::string>& words) {
  std::set<std::string> names;
  for (const std::string& word : words) names.insert(argument_of(word));
  return static_cast<std::size_t>(std::ranges::count_if(
             script_words("marks"), [&](const auto& mark) { return names.contains(mark); })) +
         names.count("recipe") + names.count("use_checkpoint_args");
}

// Returns the number of a launcher's option; the last one counts, as in argparse.
std::optional<std::int64_t> launched(std::span<const std::string> words,
                                     std::initializer_list<std::string_view> names) {
  for (std::size_t i = words.size(); i-- > 0;)
    for (const std::string_view name : names) {
      const std::string_view word = words[i];
      std::string_view value;
      if (word == name && i + 1 < words.size())
        value = words[i + 1];
      else if (word.starts_with(name) && word.substr(name.size(), 1) == "=")
        value = word.substr(name.size() + 1);
      if (const auto n = parse_int(value); n && *n > 0 && *n < (1 << 24)) return *n;
    }
  return std::nullopt;
}

// Returns where the program's arguments begin: after FILE.py or -m MODULE; 0: no program is named.
std::size_t program_end(const std::vector<std::string>& words, const ShellScript& script) {
  std::size_t module = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_argument(words[i]) && script.shown(words[i]).ends_with(".py")) return i + 1;
    if (words[i] == "-m" && i + 1 < words.size()) module = i + 2;
  }
  return module;
}

// Returns the GPUs of torchrun and similar, of mpirun, or of srun; 0 where the words do not contain them.
models::LaunchedGpus gpus_of(const ShellCommand& command, std::size_t program) {
  const std::vector<std::string>& all = command.words;
  const std::span<const std::string> words(all.data(), program > 0 ? program : all.size());
  const bool torchrun = std::ranges::any_of(words, [](const std::string& w) {
    return w.ends_with("torchrun") || w == "torch.distributed.run" || w == "torch.distributed.launch";
  });
  if (torchrun || launched(words, {"--nproc_per_node", "--nproc-per-node"})) {
    const auto per_node = launched(words, {"--nproc_per_node", "--nproc-per-node"});
    const bool one_node =
        std::ranges::none_of(words, [](const std::string& w) { return w.starts_with("--nnodes"); });
    const auto nodes = one_node ? std::optional<std::int64_t>(1) : launched(words, {"--nnodes"});
    return per_node && nodes ? models::LaunchedGpus{*per_node * *nodes, *per_node} : models::LaunchedGpus{};
  }
  const std::string& first = all.front();
  if (first.ends_with("mpirun") || first.ends_with("mpiexec"))
    return {launched(words, {"-np", "-n", "--np"}).value_or(0)};
  const auto said = [](const std::string& text) {
    const auto n = parse_int(text);
    return n && *n > 0 && *n < (1 << 24) ? std::optional<std::int64_t>(*n) : std::nullopt;
  };
  std::optional<std::int64_t> nodes = said(command.nodes), tasks = said(command.tasks);
  if (first.ends_with("srun")) {
    if (const auto n = launched(words, {"--nodes", "-N"})) nodes = n;
    if (const auto n = launched(words, {"--ntasks-per-node"})) tasks = n;
    if (const auto n = launched(words, {"--ntasks", "-n"})) return {*n};
  }
  return nodes && tasks ? models::LaunchedGpus{*nodes * *tasks, *tasks} : models::LaunchedGpus{};
}

// Collects the settings of one job, each once; the user's values replace the file's.
class Collector {
 public:
  explicit Collector(JobFile& job) : job_(job) {}

  void add(Setting setting) {
    if (job_.settings.size() >= kMaxSettings)
      throw InputError(setting.place, fmt::format("more than {} values", kMaxSettings), "a job's arguments");
    const auto [at, is_new] = places_.try_emplace(setting.name, job_.settings.size());
    if (is_new) {
      job_.settings.push_back(std::move(setting));
      return;
    }
    Setting& before = job_.settings[at->second];
    if (before.values == setting.values) return;
    // Two sections of a file may use one name differently; an error is reported when the setting is read.
    before.unknown = fmt::format("{} in line {} and {} in line {} say different things", before.shown,
                                 before.place.line, setting.shown, setting.place.line);
  }

  void put(Setting setting) {
    const auto [at, is_new] = places_.try_emplace(setting.name, job_.settings.size());
    if (is_new)
      job_.settings.push_back(std::move(setting));
    else
      job_.settings[at->second] = std::move(setting);
  }

 private:
  JobFile& job_;
  std::map<std::string, std::size_t> places_;
};

void put_added(Collector& collector, const std::vector<std::string>& with, bool sections) {
  const Added added = added_by(with);
  const SourcePlace place{"--with"};
  for (Setting& s : settings_of_words(added.words, place)) collector.put(std::move(s));
  for (const std::string& text : added.values) {
    const std::size_t equals = text.find('=');
    std::string name = text.substr(0, equals);
    Setting s;
    s.shown = name;
    // In YAML files a name in capitals belongs to the environment.
    const auto small = [](unsigned char c) { return std::islower(c) != 0; };
    if (!sections && std::ranges::none_of(name, small)) continue;
    s.name = sections ? name : with_underscores(name.substr(name.rfind('.') + 1));
    s.values = {text.substr(equals + 1)};
    s.place = place;
    collector.put(std::move(s));
  }
}

// Fills ${NAME:default} of YAML files, which their framework fills from the environment.
void fill_from_environment(Setting& setting, const std::vector<std::string>& values) {
  for (std::string& value : setting.values) {
    if (value.find("${") == std::string::npos) continue;
    if (!value.starts_with("${") || value.find('}') + 1 != value.size()) {
      setting.unknown = value + " is said outside of the file";
      continue;
    }
    const std::string inside = value.substr(2, value.size() - 3);
    const std::size_t colon = inside.find(':');
    const std::string name = inside.substr(0, colon);
    const auto given =
        std::ranges::find_if(values, [&](const std::string& v) { return v.starts_with(name + "="); });
    if (given != values.end())
      value = given->substr(name.size() + 1);
    else if (colon != std::string::npos && name.find('.') == std::string::npos)
      value = inside.substr(colon + 1);
    else
      setting.unknown = value + " is said outside of the file";
  }
}

// Converts a plain scalar by YAML 1.1 (yaml.org/type): yes and off are booleans, 010 is 8, 1_000 is 1000,
// 1:30 is 90. Other text stays, such as 1e3, which has no dot.
std::string yaml_1_1(const std::string& text) {
  const auto is = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(words, [&](std::string_view w) {
      std::string upper(w), title(w);
      for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      title[0] = upper[0];
      return text == w || text == upper || text == title;
    });
  };
  if (is({"true", "yes", "on"})) return "true";
  if (is({"false", "no", "off"})) return "false";
  const bool negative = text.starts_with('-');
  std::string digits = text.substr(negative || text.starts_with('+') ? 1 : 0);
  if (digits.empty() || std::isdigit(static_cast<unsigned char>(digits[0])) == 0) return text;
  std::erase(digits, '_');
  std::int64_t base = 10, sum = 0;
  std::string_view rest = digits;
  if (rest.starts_with("0x"))
    base = 16, rest.remove_prefix(2);
  else if (rest.starts_with("0b"))
    base = 2, rest.remove_prefix(2);
  else if (rest.size() > 1 && rest[0] == '0')
    base = 8;
  std::int64_t part = 0;
  std::size_t in_part = 0;
  for (const char c : rest) {
    if (c == ':' && base == 10 && in_part > 0) {
      sum = (sum + part) * 60, part = 0, in_part = 0;
    } else {
      const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      const std::int64_t n = c >= '0' && c <= '9'           ? c - '0'
                             : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                                            : 99;
      if (n >= base) return text;
      part = part * base + n, ++in_part;
    }
    if (part > (std::int64_t{1} << 50) || sum > (std::int64_t{1} << 50)) return text;
    if (sum > 0 && part > 59) return text;
  }
  if (in_part == 0) return text;
  return std::to_string(negative ? -(sum + part) : sum + part);
}

class YamlWalk {
 public:
  YamlWalk(JobFile& job, std::vector<std::string> environment)
      : job_(job), collector_(job), environment_(std::move(environment)) {}

  // `hidden`: keys that the merging map sets itself.
  void walk(const YAML::Node& node, const std::string& path, int depth,
            const std::set<std::string>& hidden = {}) {
    if (depth > kMaxJobFileDepth || ++visited_ > kMaxSettings)
      fail(node, "a document this deep or large", "less");
    if (!node.IsMap()) fail(node, path.empty() ? "no keys" : path + " without keys", "key: value");
    std::map<std::string, YAML::Node> last;
    for (const auto& pair : node) {
      if (!pair.first.IsScalar()) fail(pair.first, "a key that is no text", "a name");
      const std::string& key = pair.first.Scalar();
      const auto [at, is_new] = last.try_emplace(key, pair.first);
      if (!is_new) {
        job_.remarks.push_back(
            fmt::format("{}: the key {} stands in line {} and again in line {}, which counts", job_.file,
                        in_quotes(key), place(at->second).line, place(pair.first).line));
        at->second.reset(pair.first);
      }
    }
    std::set<std::string> said = hidden;
    for (const auto& [key, first] : last) said.insert(key);
    std::vector<YAML::Node> merges;
    for (const auto& pair : node) {
      const std::string& key = pair.first.Scalar();
      if (!last.at(key).is(pair.first) || hidden.contains(key)) continue;
      if (key == "<<") {
        merges.push_back(pair.second);
        continue;
      }
      const std::string shown = path.empty() ? key : fmt::format("{}.{}", path, key);
      if (pair.second.IsMap()) {
        walk(pair.second, shown, depth + 1);
        continue;
      }
      Setting setting;
      setting.shown = shown;
      const bool argument = key.starts_with("--");
      setting.name = with_underscores(argument ? key.substr(2) : key);
      setting.place = place(pair.first);
      if (pair.second.IsNull()) continue;
      read_values(pair.second, setting, argument);
      // A false flag in Megatron's own test files is omitted from the command.
      if (argument && setting.values == std::vector<std::string>{"false"}) continue;
      fill_from_environment(setting, environment_);
      collector_.add(std::move(setting));
    }
    for (const YAML::Node& merge : merges) {
      if (merge.IsSequence())
        for (const YAML::Node& one : merge) walk(one, path, depth + 1, said);
      else
        walk(merge, path, depth + 1, said);
    }
  }

  Collector& collector() { return collector_; }

 private:
  // Arguments of a command line are text, from which a shell removes the quotes; other values are YAML's.
  static std::string text_of(const YAML::Node& node, bool argument) {
    const std::string& text = node.Scalar();
    const bool plain = node.Tag() == "?";
    if (!argument) return plain ? yaml_1_1(text) : text;
    return plain && (text == "true" || text == "True" || text == "TRUE")      ? "true"
           : plain && (text == "false" || text == "False" || text == "FALSE") ? "false"
                                                                              : without_quotes(text);
  }
  void read_values(const YAML::Node& node, Setting& setting, bool argument) {
    if (node.IsScalar()) {
      setting.values.push_back(text_of(node, argument));
      return;
    }
    for (const YAML::Node& item : node) {
      if (++visited_ > kMaxSettings) fail(item, "a document this large", "less");
      if (item.IsScalar())
        setting.values.push_back(text_of(item, argument));
      else
        setting.unknown = setting.shown + " is a list of lists or keys";
    }
  }

  SourcePlace place(const YAML::Node& node) const {
    const YAML::Mark mark = node.Mark();
    return {job_.file, mark.is_null() ? 0 : mark.line + 1};
  }
  [[noreturn]] void fail(const YAML::Node& node, const std::string& found,
                         const std::string& expected) const {
    throw InputError(place(node), found, expected);
  }

  JobFile& job_;
  Collector collector_;
  std::vector<std::string> environment_;
  std::size_t visited_ = 0;
};

std::string text_of(const toml::node& node) {
  if (const auto* v = node.as_string()) return v->get();
  if (const auto* v = node.as_boolean()) return v->get() ? "true" : "false";
  if (const auto* v = node.as_integer()) return std::to_string(v->get());
  if (const auto* v = node.as_floating_point()) return fmt::format("{}", v->get());
  return "";
}

void walk_toml(const toml::table& table, const std::string& path, Collector& collector,
               const std::string& file, int depth) {
  for (const auto& [key, value] : table) {
    const std::string shown = (path.empty() ? "" : path + ".") + std::string(key.str());
    Setting setting;
    setting.name = setting.shown = shown;
    setting.place = {file, static_cast<long>(key.source().begin.line)};
    if (depth > kMaxJobFileDepth)
      throw InputError(setting.place, "tables inside of each other, 64 deep", "fewer");
    if (const toml::table* inner = value.as_table()) {
      walk_toml(*inner, shown, collector, file, depth + 1);
      continue;
    }
    if (const toml::array* array = value.as_array()) {
      for (const toml::node& item : *array) {
        if (item.is_table() || item.is_array())
          setting.unknown = shown + " is a list of lists or tables";
        else
          setting.values.push_back(text_of(item));
      }
      if (array->empty()) continue;
    } else {
      setting.values.push_back(text_of(value));
    }
    collector.add(std::move(setting));
  }
}

std::string text_of(const JsonNode& node) {
  const nlohmann::json value = node.to_json();
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void walk_json(const JsonNode& node, const std::string& path, Collector& collector, int depth) {
  for (const std::string& key : node.keys()) {
    const JsonNode value = *node.find(key);
    Setting setting;
    setting.name = setting.shown = path.empty() ? key : fmt::format("{}.{}", path, key);
    setting.place = value.place();
    if (value.is_null()) continue;
    if (depth > kMaxJobFileDepth) value.fail("objects inside of each other, 64 deep", "fewer");
    if (value.is_object()) {
      walk_json(value, setting.shown, collector, depth + 1);
      continue;
    }
    if (value.is_array())
      for (const JsonNode& item : value.items()) setting.values.push_back(text_of(item));
    else
      setting.values.push_back(text_of(value));
    // Transformers' word for values from its own arguments.
    if (setting.values == std::vector<std::string>{"auto"}) setting.unknown = "auto: the trainer says it";
    collector.add(std::move(setting));
  }
}

// toml++ does not limit the parts of a dotted key and creates a table for each; destroying many overflows the
// stack. Outside of strings and comments nothing else has that many dots between two other characters.
void check_dotted_keys(std::string_view text, const std::string& file) {
  long line = 1;
  int dots = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size()) - 1;
    } else if (c == '"' || c == '\'') {
      const std::string three(3, c);
      const bool lines = text.substr(at).starts_with(three);
      const std::string_view end = lines ? std::string_view(three) : std::string_view(three).substr(2);
      std::size_t to = at + end.size();
      while (to < text.size() && !text.substr(to).starts_with(end) && (lines || text[to] != '\n'))
        to += c == '"' && text[to] == '\\' ? 2 : 1;
      to = std::min(to, text.size());
      line += std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                         text.begin() + static_cast<std::ptrdiff_t>(to), '\n');
      at = to < text.size() && text[to] == '\n' ? to - 1 : to + end.size() - 1;
    } else if (c == '.') {
      if (++dots > kMaxJobFileDepth)
        throw InputError(SourcePlace{file, line}, "tables inside of each other, 64 deep", "fewer");
    } else if (c == '\n' || c == '=' || c == ',' || c == '[' || c == ']' || c == '{' || c == '}') {
      dots = 0;
      line += c == '\n' ? 1 : 0;
    }
  }
}

}  // namespace

std::vector<Setting> settings_of_words(const std::vector<std::string>& words, const SourcePlace& place) {
  std::vector<Setting> settings;
  for (const std::string& word : words) {
    if (std::string name = argument_of(word); !name.empty()) {
      const std::size_t equals = word.find('=');
      Setting s{std::move(name), word.substr(0, equals), {}, "", place};
      if (equals != std::string::npos) s.values.push_back(word.substr(equals + 1));
      settings.push_back(std::move(s));
    } else if (!settings.empty()) {
      settings.back().values.push_back(word);
    }
  }
  return settings;
}

namespace {

// Returns the command with most of a job's arguments. Lines that begin with an argument are one command.
ShellCommand chosen_command(const std::vector<ShellCommand>& commands, const std::string& file) {
  ShellCommand job, bare;
  std::size_t most = 0;
  bool another = false;
  for (const ShellCommand& one : commands) {
    if (one.words.empty()) continue;
    if (is_argument(one.words.front())) {
      if (bare.words.empty()) bare.place = one.place;
      bare.words.insert(bare.words.end(), one.words.begin(), one.words.end());
      continue;
    }
    const std::size_t marks = marks_in(one.words);
    if (marks < 2) continue;
    if (most > 0 && one.words != job.words) another = true;
    if (marks > most) most = marks, job = one;
  }
  if (marks_in(bare.words) >= std::max<std::size_t>(most, 1)) job = std::move(bare), another = false;
  if (job.words.empty())
    throw NoJobCommand(SourcePlace{file},
                       "no command with a job's arguments (--num-layers, --micro-batch-size, ...)",
                       "a script that runs one, or the arguments themselves");
  if (another) throw InputError(job.place, "several commands with a job's arguments", "one job a file");
  return job;
}

JobFile job_of_command(const ShellCommand& command, const ShellScript& script, const std::string& file,
                       const Added& added) {
  JobFile result;
  result.file = file;
  const std::size_t program = program_end(command.words, script);
  result.gpus = gpus_of(command, program);
  result.assumed.assign(script.assumed().begin(), script.assumed().end());
  result.remarks.assign(script.notes().begin(), script.notes().end());
  if (command.perhaps)
    result.remarks.push_back(command.place.str() +
                             ": runs under a condition that cannot be told: taken as run");
  std::vector<std::string> words(command.words.begin() + static_cast<std::ptrdiff_t>(program),
                                 command.words.end());
  words.insert(words.end(), added.words.begin(), added.words.end());
  // Later ones replace earlier ones, as in argparse.
  Collector collector(result);
  for (Setting& s : settings_of_words(words, command.place)) {
    std::vector<std::string> values;
    for (const std::string& value : s.values) {
      const std::string why = script.unknown(value);
      // After a value, an unknown piece may be further arguments.
      if (!why.empty() && !values.empty()) {
        result.unread.push_back(script.shown(value));
        continue;
      }
      if (!why.empty()) s.unknown = why;
      values.push_back(script.shown(value));
    }
    s.values = std::move(values);
    // verl's other models have arguments of the same names.
    const bool others = s.shown.starts_with("critic.") || s.shown.starts_with("reward_model.") ||
                        (s.shown.starts_with("actor_rollout_ref.") &&
                         s.shown.find(".actor.") == std::string::npos && !s.shown.ends_with("model.path"));
    if (const std::string shown = script.shown(s.shown); others || shown != s.shown) {
      result.unread.push_back(shown);
      continue;
    }
    if (s.shown.ends_with("model.path")) s.name = "model_path";
    collector.put(std::move(s));
  }
  const std::vector<std::string>& variables = script_words("variables");
  for (std::size_t i = 0; i < command.environment.size(); ++i)
    if (const std::string& value = command.environment[i]; !value.empty() && script.unknown(value).empty())
      collector.put({variables[i], variables[i], {value}, "", command.place});
  return result;
}

constexpr std::string_view kExactWays =
    "; --by-running runs the script and tells, as does `moesim scenario from megatron -- COMMAND` in it";

}  // namespace

JobFile read_shell_job(std::string_view text, const std::string& file, const std::vector<std::string>& with) {
  check_size(text, file);
  const Added added = added_by(with);
  const std::size_t windows = text.find('\r');
  if (windows != std::string_view::npos)
    throw InputError(
        SourcePlace{file,
                    1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(windows), '\n')},
        "a carriage return, which bash takes as part of a word",
        "the line ends of Unix (dos2unix makes them)");
  try {
    const ShellScript script(text, file, added.values);
    return job_of_command(chosen_command(script.commands(), file), script, file, added);
  } catch (const NoJobCommand& error) {
    throw NoJobCommand(error.what() + std::string(kExactWays));
  } catch (const InputError& error) {
    throw InputError(error.what() + std::string(kExactWays));
  }
}

JobFile read_command_job(const std::vector<std::string>& words, const std::vector<std::string>& with) {
  const std::string file = "arguments";
  return job_of_command({words, {file}, false, "", "", {}}, ShellScript("", file, {}), file, added_by(with));
}

JobFile read_job_by_running(const std::string& file, const std::vector<std::string>& with, double seconds) {
  const Added added = added_by(with);
  const std::string text = read_file(file, kMaxJobFileBytes);
  const std::vector<ShellCommand> commands = run_with_launchers(text, file, added.values, seconds);
  if (commands.empty())
    throw InputError(SourcePlace{file}, "a script that calls no launcher (torchrun, python, srun, ...)",
                     "one that starts a job");
  const ShellCommand chosen = chosen_command(commands, file);
  JobFile job = job_of_command(chosen, ShellScript("", file, {}), file, added);
  // Their output is missing: what a script derives from it would be a different value.
  std::set<std::string> others;
  for (const ShellCommand& one : commands)
    if (marks_in(one.words) < 2) others.insert(one.words[0]);
  if (!others.empty())
    job.remarks.push_back(
        fmt::format("{}: called beside the job and not run, so that their output is empty: {}", file,
                    fmt::join(others, ", ")));
  return job;
}

JobFile read_yaml_job(std::string_view text, const std::string& file, const std::vector<std::string>& with) {
  check_size(text, file);
  JobFile result;
  result.file = file;
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    YamlWalk walk(result, added_by(with).values);
    walk.walk(root, "", 0);
    put_added(walk.collector(), with, false);
  } catch (const YAML::Exception& error) {
    throw InputError(SourcePlace{file, error.mark.is_null() ? 0 : error.mark.line + 1, 0},
                     "no YAML: " + one_line(error.msg));
  }
  return result;
}

JobFile read_toml_job(std::string_view text, const std::string& file, const std::vector<std::string>& with) {
  check_size(text, file);
  JobFile result;
  result.file = file;
  Collector collector(result);
  check_dotted_keys(text, file);
  try {
    walk_toml(toml::parse(text), "", collector, file, 0);
  } catch (const toml::parse_error& error) {
    throw InputError(SourcePlace{file, static_cast<long>(error.source().begin.line),
                                 static_cast<long>(error.source().begin.column)},
                     "no TOML: " + one_line(error.description()));
  } catch (const std::logic_error& error) {
    throw InputError(SourcePlace{file}, std::string("no TOML: ") + error.what());
  }
  put_added(collector, with, true);
  return result;
}

JobFile read_json_job(std::string_view text, const std::string& file, const std::vector<std::string>& with) {
  check_size(text, file);
  const JsonNode root = JsonNode::parse(text, file);
  if (!root.is_object()) root.fail(root.describe(), "an object");
  JobFile result;
  result.file = file;
  Collector collector(result);
  walk_json(root, "", collector, 0);
  put_added(collector, with, true);
  return result;
}

}  // namespace moesim::tools
