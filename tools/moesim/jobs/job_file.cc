#include "tools/moesim/jobs/job_file.h"

#include <stdexcept>

// toml++ 3.3 takes for granted what a broken key ("[=") breaks: an assertion, or undefined behaviour without
// them. Here it is an error of the file.
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
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/text.h"
#include "tools/moesim/jobs/shell_words.h"

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

// What the user adds, apart: words of arguments, and NAME=VALUE.
struct Added {
  std::vector<std::string> words, values;
};

Added added_by(const std::vector<std::string>& with) {
  Added added;
  for (const std::string& text : with) {
    if (trim(text).starts_with("-")) {
      for (const std::string_view word : split(text, ' '))
        if (!trim(word).empty()) added.words.emplace_back(trim(word));
    } else if (const std::size_t equals = text.find('='); equals != std::string::npos && equals > 0) {
      added.values.push_back(text);
    } else {
      throw InputError("--with: found " + in_quotes(text) +
                       ", expected arguments (\"--seq-length 8192\") or NAME=VALUE");
    }
  }
  return added;
}

// Arguments that tell a job of Megatron from whatever else a script runs.
constexpr std::array<std::string_view, 9> kMarks{
    "--num-layers",        "--hidden-size",      "--num-attention-heads",
    "--seq-length",        "--micro-batch-size", "--tensor-model-parallel-size",
    "--global-batch-size", "--num-experts",      "--pipeline-model-parallel-size"};

std::size_t marks_in(const std::vector<std::string>& words) {
  return static_cast<std::size_t>(std::ranges::count_if(kMarks, [&](std::string_view mark) {
    return std::ranges::any_of(words, [&](const std::string& w) {
      return w == mark || (w.starts_with(mark) && w.substr(mark.size(), 1) == "=");
    });
  }));
}

// A command in one word, as `sh -c "$CMD"` has it, is taken apart.
std::vector<std::string> taken_apart(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const std::string& word : words) {
    if (word.find(" --") == std::string::npos) {
      out.push_back(word);
      continue;
    }
    std::string blanks = word;
    std::ranges::replace_if(
        blanks, [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
    for (const std::string_view part : split(blanks, ' '))
      if (!part.empty() && part != "\\") out.emplace_back(part);
  }
  return out;
}

// The number behind one of a launcher's options.
std::optional<std::int64_t> launched(const std::vector<std::string>& words,
                                     std::initializer_list<std::string_view> names) {
  for (std::size_t i = 0; i < words.size(); ++i)
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

// GPUs of torchrun and its like, or of srun; nullopt where the words do not say.
std::optional<std::int64_t> gpus_of(const std::vector<std::string>& words, const ShellScript& script) {
  const bool torchrun = std::ranges::any_of(words, [](const std::string& w) {
    return w.ends_with("torchrun") || w == "torch.distributed.run" || w == "torch.distributed.launch";
  });
  if (torchrun || launched(words, {"--nproc_per_node", "--nproc-per-node"})) {
    const auto per_node = launched(words, {"--nproc_per_node", "--nproc-per-node"});
    const bool one_node =
        std::ranges::none_of(words, [](const std::string& w) { return w.starts_with("--nnodes"); });
    const auto nodes = one_node ? std::optional<std::int64_t>(1) : launched(words, {"--nnodes"});
    return per_node && nodes ? std::optional(*per_node * *nodes) : std::nullopt;
  }
  const auto said = [&](const char* name) {
    const auto n = parse_int(script.variable(name));
    return n && *n > 0 && *n < (1 << 24) ? std::optional<std::int64_t>(*n) : std::nullopt;
  };
  const auto nodes = said("SLURM_NNODES"), tasks = said("SLURM_NTASKS_PER_NODE");
  return nodes && tasks ? std::optional(*nodes * *tasks) : std::nullopt;
}

// What "#SBATCH" lines put into the environment.
std::vector<std::string> slurm_variables(std::string_view text) {
  std::vector<std::string> variables;
  for (std::string_view line : split(text, '\n')) {
    line = trim(line);
    if (!line.starts_with("#SBATCH")) continue;
    line = trim(line.substr(7));
    const auto take = [&](std::string_view option, std::initializer_list<const char*> names) {
      if (!line.starts_with(option) || line.size() == option.size()) return;
      const char after = line[option.size()];
      if (after != '=' && after != ' ') return;
      std::string_view value = trim(line.substr(option.size() + 1));
      value = value.substr(0, value.find_first_of(" \t#"));
      if (!parse_int(value)) return;
      for (const char* name : names) variables.push_back(fmt::format("{}={}", name, value));
    };
    take("--nodes", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
    take("-N", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
    take("--ntasks-per-node", {"SLURM_NTASKS_PER_NODE"});
    take("--gpus-per-node", {"SLURM_GPUS_PER_NODE"});
  }
  return variables;
}

// Settings of one job, each said once; a value of the user stands in the place of the file's.
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
    // Two sections of a file may call different things alike; who needs one of them says so.
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
    // Of YAML files a name in capitals is the environment's.
    const auto small = [](unsigned char c) { return std::islower(c) != 0; };
    if (!sections && std::ranges::none_of(name, small)) continue;
    s.name = sections ? name : with_underscores(name.substr(name.rfind('.') + 1));
    s.values = {text.substr(equals + 1)};
    s.place = place;
    collector.put(std::move(s));
  }
}

// ${NAME:default} of YAML files that their framework fills from the environment.
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

class YamlWalk {
 public:
  YamlWalk(JobFile& job, std::vector<std::string> environment)
      : job_(job), collector_(job), environment_(std::move(environment)) {}

  void walk(const YAML::Node& node, const std::string& path, int depth) {
    if (depth > kMaxJobFileDepth || ++visited_ > kMaxSettings)
      fail(node, "a document this deep or large", "less");
    if (!node.IsMap()) fail(node, path.empty() ? "no keys" : path + " without keys", "key: value");
    std::set<std::string> seen;
    for (const auto& pair : node) {
      if (!pair.first.IsScalar()) fail(pair.first, "a key that is no text", "a name");
      const std::string key = pair.first.Scalar();
      if (!seen.insert(key).second) fail(pair.first, "the key " + in_quotes(key) + " twice", "once");
      if (key == "<<") {
        merge(pair.second, path, depth);
        continue;
      }
      const std::string shown = path.empty() ? key : fmt::format("{}.{}", path, key);
      if (pair.second.IsMap()) {
        walk(pair.second, shown, depth + 1);
        continue;
      }
      Setting setting;
      setting.shown = shown;
      setting.name = with_underscores(key.starts_with("--") ? key.substr(2) : key);
      setting.place = place(pair.first);
      if (pair.second.IsNull()) continue;
      read_values(pair.second, setting);
      fill_from_environment(setting, environment_);
      collector_.add(std::move(setting));
    }
  }

  Collector& collector() { return collector_; }

 private:
  void merge(const YAML::Node& node, const std::string& path, int depth) {
    if (node.IsSequence())
      for (const YAML::Node& one : node) walk(one, path, depth + 1);
    else
      walk(node, path, depth + 1);
  }

  void read_values(const YAML::Node& node, Setting& setting) {
    if (node.IsScalar()) {
      setting.values.push_back(node.Scalar());
      return;
    }
    for (const YAML::Node& item : node) {
      if (++visited_ > kMaxSettings) fail(item, "a document this large", "less");
      if (item.IsScalar())
        setting.values.push_back(item.Scalar());
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
    // Transformers' word for what its own arguments say.
    if (setting.values == std::vector<std::string>{"auto"}) setting.unknown = "auto: the trainer says it";
    collector.add(std::move(setting));
  }
}

// toml++ has no limit on the parts of a dotted key, and makes a table of each; its end of many is a stack
// that overflows. Outside of strings and comments nothing else has that many dots between two other signs.
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
    if (is_argument(word)) {
      Setting s;
      const std::size_t equals = word.find('=');
      s.shown = word.substr(0, equals);
      s.name = with_underscores(s.shown.substr(2));
      if (equals != std::string::npos) s.values.push_back(word.substr(equals + 1));
      s.place = place;
      settings.push_back(std::move(s));
    } else if (!settings.empty()) {
      // Quotes that an eval takes off.
      const bool quoted =
          word.size() > 1 && (word.front() == '\'' || word.front() == '"') && word.back() == word.front();
      settings.back().values.push_back(quoted ? word.substr(1, word.size() - 2) : word);
    }
  }
  return settings;
}

JobFile read_shell_job(std::string_view text, const std::string& file, const std::vector<std::string>& with) {
  check_size(text, file);
  const Added added = added_by(with);
  std::vector<std::string> environment = slurm_variables(text);
  environment.insert(environment.end(), added.values.begin(), added.values.end());
  const ShellScript script(text, file, environment);

  // The command with most of a job's arguments; lines that begin with an argument are one command.
  ShellCommand job, bare;
  std::size_t most = 0;
  bool another = false;
  for (const ShellCommand& command : script.commands()) {
    ShellCommand one{taken_apart(command.words), command.place};
    if (is_argument(one.words.front())) {
      if (bare.words.empty()) bare.place = one.place;
      bare.words.insert(bare.words.end(), one.words.begin(), one.words.end());
      continue;
    }
    const std::size_t marks = marks_in(one.words);
    const bool prints = one.words.front() == "echo" || one.words.front() == "printf";
    if (marks < 2 || prints) continue;
    if (most > 0 && one.words != job.words) another = true;
    if (marks > most) most = marks, job = std::move(one);
  }
  if (marks_in(bare.words) >= std::max<std::size_t>(most, 1)) job = std::move(bare), another = false;
  if (job.words.empty())
    throw InputError(SourcePlace{file},
                     "no command with a job's arguments (--num-layers, --micro-batch-size, ...)",
                     "a script that runs one, or the arguments themselves");
  if (another) throw InputError(job.place, "several commands with a job's arguments", "one job a file");

  JobFile result;
  result.file = file;
  result.gpus = gpus_of(job.words, script);
  result.assumed.assign(script.assumed().begin(), script.assumed().end());
  // A launcher's own options stand before the program.
  const auto program = std::ranges::find_if(
      job.words, [&](const std::string& w) { return !is_argument(w) && script.shown(w).ends_with(".py"); });
  std::vector<std::string> words(program == job.words.end() ? job.words.begin() : program + 1,
                                 job.words.end());
  words.insert(words.end(), added.words.begin(), added.words.end());
  // Later ones stand in the place of earlier ones, as argparse has it.
  Collector collector(result);
  for (Setting& s : settings_of_words(words, job.place)) {
    std::vector<std::string> values;
    for (const std::string& value : s.values) {
      const std::string why = script.unknown(value);
      // Behind a value, a piece that cannot be told may be arguments of its own.
      if (!why.empty() && !values.empty()) {
        result.unread.push_back(script.shown(value));
        continue;
      }
      if (!why.empty()) s.unknown = why;
      values.push_back(script.shown(value));
    }
    s.values = std::move(values);
    if (s.shown.find('\x01') != std::string::npos) {
      result.unread.push_back(script.shown(s.shown));
      continue;
    }
    collector.put(std::move(s));
  }
  // Transformer Engine's switches of attention stand in the environment.
  for (const char* name : {"NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN"})
    if (const std::string value = script.variable(name); !value.empty() && script.unknown(value).empty())
      collector.put({name, name, {value}, "", {file}});
  return result;
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
