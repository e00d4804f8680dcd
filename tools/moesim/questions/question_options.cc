#include "tools/moesim/questions/question_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "base/input_error.h"
#include "base/text.h"
#include "models/dispatchers/dispatcher.h"
#include "models/question/changes.h"
#include "models/workload/fields.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/read/load_job.h"

namespace moesim::tools {

namespace {

using models::Field;
using models::FieldType;
using models::Origin;

// Returns the text after a field's flag in --help: its choices, a number, or any text.
std::string type_name(const Field& field) {
  if (field.type == FieldType::kInteger) return "INT";
  if (field.type == FieldType::kChoice) return fmt::format("{}", fmt::join(field.choices, "|"));
  return "TEXT";
}

std::string help_of(const Field& field) {
  std::string help(field.help);
  if (field.scopes != models::Scopes::kBoth)
    help.insert(0, field.scopes == models::Scopes::kStep ? "Scope step: " : "Scope layer: ");
  if (!field.fallback.empty() && field.type != FieldType::kBoolean)
    help += fmt::format(" [{}]", field.fallback);
  return help;
}

// Holds a job against the model of --model, which may replace its own.
void fit_job(const Job& job, models::Question& q) {
  models::Scenario& s = q.said;
  if (s.model.hidden == 0 && !job.no_model.empty()) throw InputError(job.no_model);
  std::vector<std::string>& remarks = s.model.remarks;
  if (s.origin_of("model").kind == Origin::Kind::kSaid) {
    // What the file says is named, too, where its own model went.
    for (std::string& remark : job.remarks()) remarks.push_back(std::move(remark));
    if (!job.of_model.empty())
      remarks.push_back(fmt::format("{}: --model {} stands for its own model: {}", job.file, s.model.name,
                                    join(job.of_model, ", ")));
  }
  if (s.model.hidden == 0 || s.model.experts > 0) return;
  // A dense model has nothing to dispatch and no experts to recompute.
  if (s.gave("dispatcher") && s.origin_of("dispatcher").kind == Origin::Kind::kFile) {
    s.given.reset(models::index_of(*models::find_field("dispatcher")));
    s.origins.erase("dispatcher");
    remarks.push_back(
        fmt::format("{}: its dispatcher has no effect: {} has no experts", job.file, s.model.name));
  }
  if (s.origin_of("training.recompute").kind == Origin::Kind::kFile) s.training.recompute.activation = false;
}

}  // namespace

void declare_with(CLI::App& app, std::vector<std::string>& with) {
  app.add_option("--with", with,
                 "Of a job's file: arguments beside its own (--with \"--seq-length 8192\"), or NAME=VALUE, a "
                 "variable of a script or a key of another file; also several times")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  app.add_flag_callback(
      kByRunning, [&with] { with.emplace_back(kByRunning); },
      "Of a job's script: runs it under bash, with launchers that only note their arguments");
}

void refuse_without_effect(const CLI::App& verb, const char* what, const char* expected,
                           std::initializer_list<std::string_view> taken) {
  static constexpr std::string_view kOfAll[] = {"scenario", "--scenario",  "--set",
                                                "--draws",  "--tolerance", "--format",
                                                "--seed",   "--threads",   "--quiet"};
  for (const CLI::Option option : verb.get_options()) {
    const auto is = [&, name = option->get_name()](std::string_view one) { return one == name; };
    if (option->count() == 0 || std::ranges::any_of(kOfAll, is) || std::ranges::any_of(taken, is) ||
        std::ranges::any_of(models::scenario_fields(), is, &Field::flag))
      continue;
    throw InputError(fmt::format("{}: found {} with {}, expected {}", verb.get_name(), option->get_name(),
                                 what, expected));
  }
}

void QuestionOptions::declare(CLI::App& app, bool sets) {
  app.add_option("scenario", file_, "A scenario or a job: Megatron script, torchtitan TOML, DeepSpeed JSON");
  app.add_option("--scenario", file_, "The same");
  declare_fields(app, sets);
}

void QuestionOptions::declare_fields(CLI::App& app, bool sets, std::span<const Told> only) {
  if (only.empty()) declare_with(app, with_);
  if (sets)
    app.add_option("--set", sets_, "path=value with its unit: any value of `moesim whatif --paths`")
        ->allow_extra_args(false)
        ->type_name("TEXT");
  if (only.empty())
    app.add_flag("--search", search_, "Search every plan size you did not give (default when you give none)")
        ->group("Plan");
  for (const Field& field : models::scenario_fields()) {
    if (field.flag.empty() || field.path == "seed") continue;  // every verb has --seed
    const auto told = std::ranges::find(only, field.path, &Told::first);
    if (!only.empty() && told == only.end()) continue;
    const std::string help = only.empty() || told->second == nullptr ? help_of(field) : told->second;
    const std::size_t index = models::index_of(field);
    const std::string flag(field.flag), group(field.group);
    if (field.type == FieldType::kBoolean) {
      const std::string other = field.fallback == "true" ? "false" : "true";
      app.add_flag_callback(
             flag, [this, index, other] { texts_[index] = other; }, help)
          ->group(group);
      continue;
    }
    app.add_option_function(
           flag, [this, index](const std::string& text) { texts_[index] = text; }, help)
        ->type_name(type_name(field))
        ->group(group);
  }
}

void QuestionOptions::take_file(const std::string& file, std::optional<JobFramework> framework,
                                const std::vector<std::string>& words) {
  file_ = file;
  framework_ = framework;
  words_ = words;
}

std::optional<Job> QuestionOptions::job() const {
  if (file_.empty() && !words_.empty()) return job_of_words(words_, *framework_, with_);
  const bool of_file = !file_.empty() && !is_scenario_text(file_);
  const auto framework = framework_ ? framework_ : of_file ? framework_of_file(file_) : std::nullopt;
  if (framework) {
    // Words after a script's name are its $1, $2, ...
    std::vector<std::string> with = with_;
    for (std::size_t i = 0; i < words_.size(); ++i) with.push_back(fmt::format("{}={}", i + 1, words_[i]));
    return load_job(file_, *framework, with);
  }
  if (!with_.empty()) throw InputError("--with: found no job's file, expected one: it adds to its arguments");
  return std::nullopt;
}

QuestionOptions::Loaded QuestionOptions::load(const CommonOptions& common) const {
  Loaded loaded;
  models::Question& q = loaded.question;
  loaded.job = job();
  if (loaded.job) {
    q = question_of(*loaded.job);
  } else if (!file_.empty()) {
    const JsonNode node = read_scenario(file_);
    q.said = models::Scenario::parse(node);
    q.file = node.place().file;
  }
  q = over(std::move(q), common);
  if (loaded.job) fit_job(*loaded.job, q);
  if (search_ && !q.said.is_step())
    throw InputError("--search: found with scope layer, expected step: a layer's plan is what was said");
  q.search = search_;
  models::open_plan(q);
  models::name_dispatchers(q.said);
  return loaded;
}

models::Question QuestionOptions::over(models::Question q, const CommonOptions& common) const {
  for (const auto& [index, text] : texts_) {
    const Field& field = models::scenario_fields()[index];
    const Origin origin = Origin::said(std::string(field.flag.empty() ? field.path : field.flag));
    models::set_field(field, q.said, text, &origin);
  }
  if (common.seed_given) {
    q.said.seed = common.seed;
    q.said.give("seed", Origin::said("--seed"));
  }
  std::set<std::string, std::less<>> said;
  for (const auto& [index, text] : texts_) said.emplace(models::scenario_fields()[index].path);
  if (common.seed_given) said.emplace("seed");
  for (const std::string& set : sets_) {
    const auto [path, value] = models::split_assignment(set, "--set");
    const models::ScenarioPath found = models::find_path(path);
    if (!said.emplace(found.path).second)
      throw InputError(fmt::format("--set: found {} twice, expected each path once", found.path));
    models::Question before = q;
    if (models::is_multiple(found, value) && q.said.origin_of("scope").kind != Origin::Kind::kRecording) {
      before.search = search_;
      models::open_plan(before);
      before.said = settle(before, common).scenario;
      before.said.resolve();
    }
    models::set_all(q, {found}, {models::parse_value(found, value, &before.said)}, Origin::said("--set"));
  }
  return q;
}

void QuestionOptions::say(std::string_view path, const std::string& text) {
  texts_[models::index_of(*models::find_field(path))] = text;
}

void QuestionOptions::set(std::string_view path, const std::string& text) {
  sets_.push_back(fmt::format("{}={}", path, text));
}

void QuestionOptions::say_unsaid(std::string_view path, const std::string& text) {
  texts_.try_emplace(models::index_of(*models::find_field(path)), text);
}

std::string QuestionOptions::said(std::string_view path) const {
  const auto text = texts_.find(models::index_of(*models::find_field(path)));
  return text == texts_.end() ? "" : text->second;
}

std::vector<std::pair<std::string, std::string>> QuestionOptions::all_said() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [index, text] : texts_) all.emplace_back(models::scenario_fields()[index].path, text);
  for (const std::string& set : sets_) all.push_back(models::split_assignment(set, "--set"));
  return all;
}

models::Question question_of_file(const std::string& file, const CommonOptions& common) {
  QuestionOptions options;
  options.take_file(file, std::nullopt);
  return options.question(common);
}

bool is_scenario_text(std::string_view file) { return trim(file).starts_with('{'); }

JsonNode read_scenario(const std::string& file) {
  return is_scenario_text(file) ? JsonNode::parse(file, "scenario") : JsonNode::read(file);
}

}  // namespace moesim::tools
