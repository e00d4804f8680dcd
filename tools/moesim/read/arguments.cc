#include "tools/moesim/read/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/check.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/hardware/embedded_profiles.h"
#include "models/workload/fields.h"
#include "models/workload/model_json.h"
#include "models/workload/model_summary.h"
#include "tools/moesim/read/argument_checks.h"
#include "tools/moesim/read/megatron_rules.h"
#include "tools/moesim/read/shell_words.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/command.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kFrameworks{"megatron", "torchtitan", "deepspeed", "nemo"};
constexpr std::array<std::string_view, 4> kUses{"used", "approximated", "irrelevant", "unknown"};

// Megatron's arguments (megatron/training/arguments.py), the keys of its YAML files, and the fields of
// Megatron-Bridge's recipes have the same names.
std::vector<ArgumentRule> megatron_rules() {
  std::vector<ArgumentRule> all;
  for (const std::vector<ArgumentRule>& rules :
       {megatron::shape_rules(), megatron::expert_rules(), megatron::hybrid_rules(),
        megatron::parallel_rules(), megatron::precision_rules(), megatron::training_rules(),
        megatron::dispatcher_rules(), megatron::order_rules()})
    all.insert(all.end(), rules.begin(), rules.end());
  return all;
}

std::vector<KnownArguments> known_arguments(const JsonNode& groups, std::string_view framework) {
  std::vector<KnownArguments> known;
  for (const JsonNode& group : groups.items()) {
    const auto names = group.find(framework);
    if (!names) continue;
    JsonObject object(group);
    known.push_back({{}, object.at("because").string(), object.string("neutral", "")});
    for (const JsonNode& name : names->items()) known.back().names.push_back(name.string());
  }
  return known;
}

ArgumentTable read_table(std::string_view framework, std::vector<ArgumentRule> rules) {
  JsonObject file(JsonNode::parse(models::embedded_table("known_arguments"), "known_arguments.json"));
  ArgumentTable table;
  table.rules = std::move(rules);
  if (const auto aliases = file.at("aliases").find(framework))
    for (const std::string& alias : aliases->keys())
      table.aliases.emplace_back(alias, aliases->find(alias)->string());
  table.irrelevant = known_arguments(file.at("irrelevant"), framework);
  table.approximated = known_arguments(file.at("approximated"), framework);
  table.replaced = known_arguments(file.at("replaced"), framework);
  table.elsewhere = known_arguments(file.at("elsewhere"), framework);
  table.refused = known_arguments(file.at("refused"), framework);
  return table;
}

std::string written(const Setting& s) {
  return s.values.empty() ? s.shown : s.shown + " " + join(s.values, " ");
}

const KnownArguments* known(const std::vector<KnownArguments>& list, std::string_view name) {
  const auto matches = [&](std::string_view k) {
    return k.ends_with('*') ? name.starts_with(k.substr(0, k.size() - 1)) : name == k;
  };
  const auto at =
      std::ranges::find_if(list, [&](const auto& k) { return std::ranges::any_of(k.names, matches); });
  return at == list.end() ? nullptr : &*at;
}

bool is_off(const Setting& setting, const KnownArguments& what) {
  return says_nothing(setting) ||
         (!what.neutral.empty() && setting.values.size() == 1 && setting.values.front() == what.neutral);
}

// Classifies an argument that no rule has read, by the table.
UsedArgument classified(const ArgumentTable& table, const JobReader& reader, const Setting& setting) {
  UsedArgument result{setting, ArgumentUse::kUnknown, ""};
  if (const JobReader::Noted* noted = reader.noted(setting.name)) {
    result.use = noted->use;
    result.because = noted->because;
  } else if (reader.asked(setting.name)) {
    result.use = ArgumentUse::kUsed;
  } else if (const KnownArguments* r = known(table.refused, setting.name)) {
    if (!setting.unknown.empty() || !is_off(setting, *r))
      throw InputError(setting.place, written(setting),
                       fmt::format("a job without it: {} is not modelled here", r->because));
    result.use = ArgumentUse::kIrrelevant;
    result.because = "it is off";
  } else if (std::ranges::any_of(table.rules, [&](const ArgumentRule& rule) {
               return std::ranges::find(rule.names, setting.name) != rule.names.end();
             })) {
    result.use = ArgumentUse::kIrrelevant;
    result.because = "the other arguments leave it without effect";
  } else if (const KnownArguments* a = known(table.approximated, setting.name)) {
    result.use = is_off(setting, *a) ? ArgumentUse::kIrrelevant : ArgumentUse::kApproximated;
    result.because = is_off(setting, *a) ? "it is off" : a->because;
  } else if (const KnownArguments* i = known(table.irrelevant, setting.name)) {
    result.use = ArgumentUse::kIrrelevant;
    result.because = i->because;
  } else if (known(table.replaced, setting.name) || known(table.elsewhere, setting.name)) {
    result.use = ArgumentUse::kIrrelevant;
    result.because = "the model is that of --model";
  }
  return result;
}

// Returns whether an unknown argument may change the job's model.
bool may_define_model(const Setting& setting) {
  if (says_nothing(setting)) return false;
  std::string words = lower(setting.name);
  std::ranges::replace(words, '.', '_');
  return std::ranges::any_of(split(words, '_'),
                             [](std::string_view word) { return is_script_word("shape", word); });
}

// Name of the option that leaves arguments out.
constexpr std::string_view kIgnore = "ignore";

// Removes the arguments in `file` that --ignore names. Throws InputError for a missing name.
std::vector<UsedArgument> take_ignored(JobFile& file) {
  std::vector<UsedArgument> ignored;
  const auto option = std::ranges::find(file.settings, kIgnore, &Setting::name);
  if (option == file.settings.end()) return ignored;
  const Setting said = *option;
  file.settings.erase(option);
  if (said.values.empty()) throw InputError(said.place, written(said), "names of arguments behind it");
  for (const std::string& text : said.values) {
    std::string name = text.starts_with("--") ? text.substr(2) : text;
    std::ranges::replace(name, '-', '_');
    const auto at = std::ranges::find_if(file.settings,
                                         [&](const Setting& s) { return s.name == name || s.shown == text; });
    if (at == file.settings.end())
      throw InputError(said.place, fmt::format("{} {}", said.shown, text), "an argument of the file");
    ignored.push_back({*at, ArgumentUse::kApproximated, "left out, as --ignore says"});
    file.settings.erase(at);
  }
  return ignored;
}

// Collects every value below an object by its path.
void collect(const ordered_json& json, const std::string& path, std::map<std::string, ordered_json>& into) {
  if (json.is_object() && !json.empty()) {
    for (const auto& [key, value] : json.items())
      collect(value, path.empty() ? key : fmt::format("{}.{}", path, key), into);
    return;
  }
  into[path] = json;
}

std::map<std::string, ordered_json> compared_values(const models::Scenario& s) {
  ordered_json json = models::to_json(s);
  // The machine and the question are not of a job's arguments; what a recipe or a mesh says stands in others.
  for (const char* key :
       {"cluster", "gpus", "recipe", "seed", "faults", "prices", "ownership", "scope", "mesh", "job"})
    json.erase(key);
  if (json.contains("parallel")) json["parallel"].erase("global_batch");  // the microbatches imply it
  json["model"] = models::model_object(s.model);
  json["model"].erase("name");
  json["model"].erase("embedding_active");
  json["model"].erase("head_active");
  if (json.contains("topk")) json["model"]["topk"] = json["topk"];
  // An inner size that no layer has, and values that are defaults.
  const auto counts = models::layer_counts(s.model);
  if (std::ranges::none_of(counts,
                           [](const auto& c) { return c.kind.find("dense FFN") != std::string::npos; }))
    json["model"].erase("dense_ffn");
  json["dispatcher"] = ordered_json::array();
  for (models::DispatcherSpec d : s.dispatchers) {
    if (const auto fused = d.options.find("permute_fusion");
        fused != d.options.end() && fused->second == "true")
      d.options.erase(fused);
    json["dispatcher"].push_back(d.text());
  }
  json.erase("topk");
  std::map<std::string, ordered_json> values;
  collect(json, "", values);
  return values;
}

}  // namespace

JobFramework framework_named(std::string_view name) {
  const auto at = std::ranges::find(kFrameworks, name);
  if (at == kFrameworks.end())
    throw InputError(
        fmt::format("found {}, expected megatron, torchtitan, deepspeed or nemo{}", in_quotes(name),
                    did_you_mean(name, std::vector<std::string>(kFrameworks.begin(), kFrameworks.end()))));
  return static_cast<JobFramework>(at - kFrameworks.begin());
}

std::string_view name_of(JobFramework framework) { return kFrameworks[static_cast<std::size_t>(framework)]; }
std::string_view name_of(ArgumentUse use) { return kUses[static_cast<std::size_t>(use)]; }

bool says_nothing(const Setting& setting) {
  if (setting.values.empty()) return false;  // a flag
  if (setting.values.size() > 1) return false;
  const std::string value = lower(setting.values.front());
  return value == "false" || value == "0" || value == "none" || value == "null" || value.empty() ||
         value == "no" || value == "off" || value == "0.0";
}

const Setting* JobReader::find(std::string_view name) {
  asked_.emplace(name);
  const auto at = std::ranges::find(file_.settings, name, &Setting::name);
  if (at == file_.settings.end()) return nullptr;
  if (!at->unknown.empty())
    throw InputError(
        at->place, written(*at),
        fmt::format("a value that the file says ({}); --with can say it, and --by-running finds it "
                    "out of a script",
                    at->unknown));
  last_place_ = fmt::format("{} {}", at->place.str(), at->shown);
  return &*at;
}

const std::string& JobReader::only_value(const Setting& setting) const {
  if (setting.values.size() != 1) throw InputError(setting.place, written(setting), "one value");
  return setting.values.front();
}

bool JobReader::flag(std::string_view name, bool fallback) {
  // After a flag, an unknown piece is not its value.
  const auto at = std::ranges::find(file_.settings, name, &Setting::name);
  if (at != file_.settings.end() && !at->unknown.empty() && at->values.size() == 1 &&
      at->values[0].starts_with('$') && at->shown.starts_with("--")) {
    asked_.emplace(name);
    approximate(name, fmt::format("behind it stands {}: {}", at->values[0], at->unknown));
    return true;
  }
  const Setting* s = find(name);
  if (!s) return fallback;
  if (s->values.empty()) return true;
  const std::string value = lower(only_value(*s));
  if (value == "true" || value == "1" || value == "yes" || value == "on") return true;
  if (says_nothing(*s)) return false;
  fail(name, "true or false");
}

std::optional<std::int64_t> JobReader::whole(std::string_view name, std::int64_t low, std::int64_t high) {
  const Setting* s = find(name);
  if (!s || (s->values.size() == 1 && lower(s->values.front()) == "none")) return std::nullopt;
  const auto value = parse_int(only_value(*s));
  if (!value || *value < low || *value > high)
    fail(name, fmt::format("a whole number from {} to {}", low, high));
  return *value;
}

std::optional<double> JobReader::number(std::string_view name) {
  const Setting* s = find(name);
  if (!s || (s->values.size() == 1 && lower(s->values.front()) == "none")) return std::nullopt;
  const auto value = parse_number(only_value(*s));
  if (!value) fail(name, "a number");
  return value;
}

std::string JobReader::text(std::string_view name, std::string_view fallback) {
  const Setting* s = find(name);
  if (!s || (s->values.size() == 1 && lower(s->values.front()) == "none")) return std::string(fallback);
  return only_value(*s);
}

std::string JobReader::choice(std::string_view name, std::string_view fallback,
                              std::initializer_list<std::string_view> choices) {
  // "none" may be a choice.
  const Setting* said = find(name);
  std::string value =
      said && said->values.size() == 1 && std::ranges::find(choices, said->values[0]) != choices.end()
          ? said->values[0]
          : text(name, fallback);
  if (std::ranges::find(choices, value) != choices.end() || value == fallback) return value;
  fail(name, fmt::format("one of {}", fmt::join(choices, ", ")));
}

std::vector<std::string> JobReader::list(std::string_view name) {
  const Setting* s = find(name);
  if (!s) return {};
  std::vector<std::string> items;
  for (const std::string& value : s->values)
    for (const std::string_view item : split(value, ','))
      if (std::string_view word = trim(item); !word.empty()) {
        while (!word.empty() && (word.front() == '[' || word.front() == '"' || word.front() == '\''))
          word.remove_prefix(1);
        while (!word.empty() && (word.back() == ']' || word.back() == '"' || word.back() == '\''))
          word.remove_suffix(1);
        if (!word.empty()) items.emplace_back(word);
      }
  return items;
}

void JobReader::approximate(std::string_view name, const std::string& because) {
  noted_.push_back({std::string(name), ArgumentUse::kApproximated, because});
}

void JobReader::without_effect(std::string_view name, const std::string& because) {
  noted_.push_back({std::string(name), ArgumentUse::kIrrelevant, because});
}

void JobReader::only_adam(std::string_view name, std::initializer_list<std::string_view> names) {
  if (const std::string found = text(name, *names.begin()); std::ranges::find(names, found) == names.end())
    fail(name, fmt::format("{}: other optimizers are not modelled here", *names.begin()));
}

const JobReader::Noted* JobReader::noted(std::string_view name) const {
  const auto at = std::ranges::find(noted_, name, &Noted::name);
  return at == noted_.end() ? nullptr : &*at;
}

void JobReader::fail(std::string_view name, const std::string& expected) {
  const auto at = std::ranges::find(file_.settings, name, &Setting::name);
  check(at != file_.settings.end(), "a setting that is there");
  throw InputError(at->place, written(*at), expected);
}

void JobReader::fail_without(const std::string& found, const std::string& expected) const {
  throw InputError(SourcePlace{file_.file}, found, expected);
}

void JobReader::lacks_model(const std::string& found, const std::string& expected) {
  if (job_.no_model.empty())
    job_.no_model =
        InputError(SourcePlace{file_.file}, found, expected + ", or --model NAME or a config.json beside it")
            .what();
}

void JobReader::set(std::string_view path, ordered_json value) {
  ordered_json* at = &job_.scenario;
  for (const std::string_view name : split(path, '.')) at = &(*at)[std::string(name)];
  *at = std::move(value);
  if (!last_place_.empty()) job_.places[std::string(path)] = last_place_;
}

std::vector<std::string> Job::remarks() const {
  std::vector<std::string> lines, unknown;
  for (const UsedArgument& a : arguments) {
    if (a.use == ArgumentUse::kApproximated)
      lines.push_back(fmt::format("{}: {}", a.setting.shown, a.because));
    if (a.use == ArgumentUse::kUnknown) unknown.push_back(a.setting.shown);
  }
  if (!unknown.empty())
    lines.push_back(fmt::format("{}: not understood, and not used: {}", file, join(unknown, ", ")));
  if (!assumed.empty())
    lines.push_back(fmt::format("{}: not set in the script, taken as unset: {} (--with NAME=VALUE)", file,
                                join(assumed, ", ")));
  lines.insert(lines.end(), notes.begin(), notes.end());
  return lines;
}

const ArgumentTable& table_of(JobFramework framework) {
  static const ArgumentTable megatron = read_table("megatron", megatron_rules()),
                             torchtitan = read_table("torchtitan", torchtitan_rules()),
                             deepspeed = read_table("deepspeed", deepspeed_rules());
  if (framework == JobFramework::kTorchtitan) return torchtitan;
  return framework == JobFramework::kDeepSpeed ? deepspeed : megatron;
}

namespace {

Job described(const JobFile& file, JobFramework framework, const std::vector<UsedArgument>& ignored) {
  const ArgumentTable& table = table_of(framework);
  Job job;
  job.file = file.file;
  job.gpus = file.gpus;
  job.assumed = file.assumed;
  job.notes = file.remarks;
  job.scenario = ordered_json::object();
  JobReader reader(file, job);
  // Refusals must be reported before their consequences.
  for (const Setting& s : file.settings)
    if (known(table.refused, s.name)) classified(table, reader, s);
  for (const ArgumentRule& rule : table.rules) {
    reader.forget_place();
    const ordered_json model = job.scenario.value("model", ordered_json());
    if (rule.in) rule.in(reader);
    if (model == job.scenario.value("model", ordered_json())) continue;
    for (const Setting& s : file.settings)
      if (std::ranges::find(rule.names, s.name) != rule.names.end()) job.of_model.push_back(s.shown);
  }
  for (const Setting& s : file.settings) {
    UsedArgument one = classified(table, reader, s);
    if (one.use == ArgumentUse::kUnknown && file.complete && says_nothing(s)) {
      one.use = ArgumentUse::kIrrelevant;
      one.because = "it is off";
    }
    // A dump lists every default; elsewhere the user chose the argument.
    if (one.use == ArgumentUse::kUnknown && !file.complete && may_define_model(s))
      throw InputError(s.place, written(s),
                       fmt::format("an argument that is understood: this one may change the model (--with "
                                   "\"--ignore {}\" leaves it out)",
                                   s.name));
    job.arguments.push_back(std::move(one));
  }
  job.arguments.insert(job.arguments.end(), ignored.begin(), ignored.end());
  for (const std::string& text : file.unread)
    job.arguments.push_back({{text, text, {}, "", {file.file}}, ArgumentUse::kUnknown, ""});
  job.scenario["scope"] = "step";
  if (!job.no_model.empty()) job.scenario.erase("model");
  // A built-in model keeps its name.
  if (job.scenario.contains("model") && !job.scenario["model"].contains("base")) {
    const std::string name = std::filesystem::path(file.file).stem().string();
    job.scenario["model"]["name"] = name.empty() ? "job" : name;
  }
  return job;
}

}  // namespace

Job read_job(const JobFile& given, JobFramework framework) {
  JobFile file = given;
  const std::vector<UsedArgument> ignored = take_ignored(file);
  for (Setting& s : file.settings)
    for (const auto& [alias, name] : table_of(framework).aliases)
      if (s.name == alias) s.name = name;
  std::vector<std::string> notes;
  std::string refusal;
  for (const BrokenRule& broken : broken_rules(file, framework)) {
    if (broken.warns && !broken.told) continue;
    notes.push_back(broken.note(file.file, framework));
    if (!broken.warns && refusal.empty()) refusal = notes.back();
  }
  try {
    Job job = described(file, framework, ignored);
    job.notes.insert(job.notes.end(), notes.begin(), notes.end());
    job.settings = std::move(file);
    return job;
  } catch (const InputError& error) {
    // The framework often refuses what moesim cannot read.
    if (refusal.empty()) throw;
    throw InputError(fmt::format("{}; {}", error.what(), refusal));
  }
}

Arguments written_arguments(const models::Scenario& s, JobFramework framework) {
  Arguments all;
  for (const ArgumentRule& rule : table_of(framework).rules)
    if (rule.out) rule.out(s, all);
  return all;
}

JobFile file_of(const Arguments& arguments, std::int64_t gpus) {
  JobFile file;
  file.file = "arguments";
  file.gpus.count = gpus;
  const auto text = [](const ordered_json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  for (const auto& [name, value] : arguments) {
    Setting setting;
    setting.name = setting.shown = name;
    if (value.is_array())
      for (const auto& item : value) setting.values.push_back(text(item));
    else
      setting.values.push_back(text(value));
    file.settings.push_back(std::move(setting));
  }
  return file;
}

JobArguments arguments_of(const models::Scenario& s, JobFramework framework, int version) {
  if (!s.resolved) throw InputError("scenario: found one that is not resolved");
  if (s.dispatchers.size() != 1)
    throw InputError(
        fmt::format("dispatcher: found {}, expected one, whose arguments are written", s.dispatchers.size()));
  JobArguments result;
  result.arguments = written_arguments(s, framework);
  for (const BrokenRule& broken : broken_rules(s, result.arguments, framework, version))
    if (!broken.warns && !broken.lacks)
      throw InputError(
          fmt::format("the plan in arguments of {}: found {}, expected a plan that {} starts with",
                      name_of(framework), broken.text(), name_of(framework)));

  // Reads the arguments back to find what they lose.
  const JobFile file = file_of(result.arguments, s.parallel.world());
  models::Scenario back;
  try {
    const Job job = read_job(file, framework);
    ordered_json document = job.scenario;
    if (!document.contains("model")) {
      document["model"] = models::model_object(s.model);
      result.left_out.push_back(fmt::format("model: {}", s.model.name));
    }
    back = models::Scenario::parse(JsonNode::from_json(document, "arguments"));
    if (!back.gave("parallel.dp") && !back.mesh.given) {
      back.parallel.dp = s.parallel.world() /
                         std::max<std::int64_t>(1, back.parallel.tp * back.parallel.cp * back.parallel.pp);
      back.give("parallel.dp");
    }
    if (job.global_batch > 0 && !back.gave("parallel.microbatches")) {
      back.batch.sequences = job.global_batch;
      back.give("parallel.global_batch");
    }
    if (s.model.experts == 0) back.dispatchers = s.dispatchers;
    back.cluster = s.cluster;
    back.resolve();
  } catch (const InputError& error) {
    result.left_out.push_back(fmt::format("the plan as a whole (read back: {})", error.what()));
    return result;
  }
  const auto was = compared_values(s), is = compared_values(back);
  for (const auto& [path, value] : was) {
    const auto at = is.find(path);
    if (at == is.end() || at->second != value)
      result.left_out.push_back(fmt::format("{} = {} (read back: {})", path, value.dump(),
                                            at == is.end() ? "nothing" : at->second.dump()));
  }
  for (const auto& [path, value] : is)
    if (!was.contains(path))
      result.left_out.push_back(fmt::format("{}: read back as {}", path, value.dump()));
  return result;
}

namespace {

// Whether an argument is a variable of the environment.
bool is_variable(std::string_view name) {
  return !name.empty() && name.front() >= 'A' && name.front() <= 'Z';
}

std::string word_of(const ordered_json& value) {
  return shell_word(value.is_string() ? value.get<std::string>() : value.dump());
}

std::string shell_text(const Arguments& arguments) {
  std::string text;
  for (const auto& [name, value] : arguments) {
    if (value == false || is_variable(name)) continue;
    std::string line = "--" + name;
    std::ranges::replace(line, '_', '-');
    if (value.is_array())
      for (const auto& item : value) line += " " + word_of(item);
    else if (value != true)
      line += " " + word_of(value);
    text += line + " \\\n";
  }
  return text.empty() ? text : text.substr(0, text.size() - 3) + "\n";
}

// Writes names with a section as tables of TOML, in the order of each section's first argument.
std::string toml_text(const Arguments& arguments) {
  std::vector<std::pair<std::string, std::string>> sections;
  for (const auto& [name, value] : arguments) {
    const std::size_t dot = name.rfind('.');
    const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
    auto at = std::ranges::find(sections, section, &std::pair<std::string, std::string>::first);
    if (at == sections.end()) at = sections.insert(sections.end(), {section, ""});
    at->second +=
        fmt::format("{} = {}\n", dot == std::string::npos ? name : name.substr(dot + 1), value.dump());
  }
  std::string text;
  for (const auto& [section, lines] : sections)
    text += (text.empty() ? "" : "\n") + (section.empty() ? lines : fmt::format("[{}]\n{}", section, lines));
  return text;
}

}  // namespace

std::string arguments_text(const Arguments& arguments, JobFramework framework) {
  if (framework == JobFramework::kMegatron) return shell_text(arguments);
  if (framework == JobFramework::kTorchtitan) return toml_text(arguments);
  if (framework == JobFramework::kDeepSpeed) {
    ordered_json json = ordered_json::object();
    for (const auto& [name, value] : arguments) {
      ordered_json* at = &json;
      for (const std::string_view part : split(name, '.')) at = &(*at)[std::string(part)];
      *at = value;
    }
    return json_text(json);
  }
  std::string text;
  for (const auto& [name, value] : arguments)
    if (!is_variable(name)) text += fmt::format("{}: {}\n", name, value.dump());
  return text;
}

Columns<FrameworkArguments> columns_of(Of<FrameworkArguments>) {
  using F = FrameworkArguments;
  const auto values = [](const F& f) {
    nlohmann::ordered_map<std::string, nlohmann::ordered_json> all;
    for (const auto& [name, value] : f.made.arguments) all[name] = value;
    return all;
  };
  return {{"framework", [](const F& f) { return name_of(f.framework); },
           one_of({"megatron", "torchtitan", "deepspeed", "nemo"})},
          {"arguments", values, "name: value; true: a flag"},
          {"text", [](const F& f) { return arguments_text(f.made.arguments, f.framework); },
           "as the framework's files have them"},
          {"left_out", [](const F& f) { return f.made.left_out; }, "what of the scenario they do not carry"}};
}

nlohmann::ordered_json job_arguments_json(const JobArguments& made, JobFramework framework) {
  return json_of(FrameworkArguments{made, framework});
}

models::Scenario with_dispatcher(const models::Scenario& scenario, const std::string& dispatcher) {
  models::Scenario one = scenario;
  std::erase_if(one.dispatchers, [&](const models::DispatcherSpec& d) { return d.text() != dispatcher; });
  one.all_dispatchers = false;
  return one;
}

std::string variables_text(const Arguments& arguments) {
  std::string text;
  for (const auto& [name, value] : arguments)
    if (is_variable(name)) text += fmt::format("export {}={}\n", name, word_of(value));
  return text;
}

std::string plan_arguments_text(const models::Scenario& plan, JobFramework framework, int version) {
  const JobArguments made = arguments_of(plan, framework, version);
  std::string text = fmt::format("\narguments of {}:\n", name_of(framework));
  for (const std::string& one : made.left_out) text += fmt::format("not among them: {}\n", one);
  return text + "\n" + variables_text(made.arguments) + arguments_text(made.arguments, framework);
}

}  // namespace moesim::tools
