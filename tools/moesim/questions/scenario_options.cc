#include "tools/moesim/questions/scenario_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/dispatchers/dispatcher.h"
#include "models/workload/fields.h"
#include "replay/recording/routing_from_dispatching.h"
#include "tools/moesim/jobs/load_job.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {

namespace {

using models::Field;
using models::FieldType;

// What stands behind a field's flag in --help: its words, a number, or any text.
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

// What a job says and the scope does not use is forgotten, what the user says is not.
void forget_unused(models::Scenario& s, const std::map<std::size_t, std::string>& said) {
  for (const Field& field : models::scenario_fields())
    if (!field.used_in(models::scope_of(s)) && !said.contains(models::index_of(field)))
      s.given.reset(models::index_of(field));
}

}  // namespace

void declare_with(CLI::App& app, std::vector<std::string>& with) {
  app.add_option("--with", with,
                 "Of a job's file: arguments beside its own (--with \"--seq-length 8192\"), or NAME=VALUE, a "
                 "variable of a script or a key of another file; also several times")
      ->expected(1)
      ->take_all()
      ->type_name("TEXT");
  app.add_flag_callback(
      kByRunning, [&with] { with.emplace_back(kByRunning); },
      "Of a job's script: runs it under bash, with launchers that only note their arguments");
}

void ScenarioOptions::declare(CLI::App& app) {
  app.add_option(
      "scenario", file_,
      "Scenario file (or its JSON), or a job's: a Megatron script or YAML, torchtitan TOML, DeepSpeed JSON; "
      "the options below change it");
  app.add_option("--scenario", file_, "The same");
  declare_fields(app);
}

void ScenarioOptions::declare_fields(CLI::App& app) {
  declare_with(app, with_);
  app.add_flag(
         "--search", search_,
         "The sizes of the plan that nobody says are searched, also beside a file or other sizes; without "
         "a file and sizes they are anyhow")
      ->group("Plan");
  for (const Field& field : models::scenario_fields()) {
    if (field.flag.empty() || field.path == "seed") continue;  // --seed is of every verb
    const std::size_t index = models::index_of(field);
    const std::string flag(field.flag), group(field.group);
    if (field.type == FieldType::kBoolean) {
      const std::string other = field.fallback == "true" ? "false" : "true";
      app.add_flag_callback(
             flag, [this, index, other] { texts_[index] = other; }, help_of(field))
          ->group(group);
      continue;
    }
    app.add_option_function<std::string>(
           flag, [this, index](const std::string& text) { texts_[index] = text; }, help_of(field))
        ->type_name(type_name(field))
        ->group(group);
  }
}

void ScenarioOptions::take_file(const std::string& file, std::optional<JobFramework> framework,
                                const std::vector<std::string>& words) {
  file_ = file;
  framework_ = framework;
  words_ = words;
}

std::optional<Job> ScenarioOptions::job() const {
  if (file_.empty() && !words_.empty()) return job_of_words(words_, *framework_, with_);
  const bool of_file = !file_.empty() && !is_scenario_text(file_);
  const auto framework = framework_ ? framework_ : of_file ? framework_of_file(file_) : std::nullopt;
  if (framework) {
    // What stands behind a script's name are its $1, $2, ...
    std::vector<std::string> with = with_;
    for (std::size_t i = 0; i < words_.size(); ++i) with.push_back(fmt::format("{}={}", i + 1, words_[i]));
    return load_job(file_, *framework, with);
  }
  if (!with_.empty()) throw InputError("--with: found no job's file, expected one: it adds to its arguments");
  return std::nullopt;
}

models::ChosenPlan ScenarioOptions::choose(models::Scenario& s, const CommonOptions& common) const {
  const bool of_file = !file_.empty() || !words_.empty();
  const bool step = s.scope == models::Scenario::Scope::kStep;
  // EP alone is open at scope layer, whatever else of a plan is said.
  if (!search_ && (of_file || (step && models::says_plan(s)))) return {};
  const models::RoutingSpec routing = s.routing;
  replay::open_routing(s.routing);
  models::ChosenPlan chosen = models::choose_plan(s, common.threads);
  s.routing = routing;
  if (search_ && chosen.options.empty())
    throw InputError("--search: found a plan whose sizes are all said, expected one that leaves some open");
  return chosen;
}

ScenarioDocument ScenarioOptions::document(const CommonOptions& common, Choose choose,
                                           models::ChosenPlan& chosen, bool scopes) const {
  if (search_ && choose != Choose::kPlan)
    throw InputError("--search: found beside a search of plans, expected one of them");
  ScenarioDocument made = file_.empty() ? ScenarioDocument::from_json(nlohmann::json::object(), "")
                                        : ScenarioDocument::read(file_, common, with_);
  if (file_.empty() && !with_.empty())
    throw InputError("--with: found no job's file, expected one: it adds to its arguments");
  if (file_.empty() && common.seed_given) made.set(find_path("seed"), common.seed);
  const auto fields = models::scenario_fields();
  for (const auto& [index, text] : texts_) {
    const Field& field = fields[index];
    made.set(find_path(field.path),
             models::json_of_text(field.flag.empty() ? field.path : field.flag, field.type, text));
  }
  const models::Scenario before = made.scenario();
  if (!scopes) refuse_unused(before, file_);
  models::Scenario after = before;
  if (choose == Choose::kPlan)
    chosen = this->choose(after, common);
  else if (choose == Choose::kBatch && after.scope == models::Scenario::Scope::kStep &&
           after.model.hidden > 0)
    models::choose_batch(after);
  for (const Field& field : fields)
    if (after.gave(field.path) && !before.gave(field.path))
      made.set(find_path(field.path), nlohmann::json(field.write(after)));
  return made;
}

void ScenarioOptions::say(std::string_view path, const std::string& text) {
  texts_[models::index_of(*models::find_field(path))] = text;
}

void ScenarioOptions::say_unsaid(std::string_view path, const std::string& text) {
  texts_.try_emplace(models::index_of(*models::find_field(path)), text);
}

void show_chosen(const models::ChosenPlan& chosen, const CommonOptions& common) {
  if (chosen.options.empty()) return;
  if (common.format != Format::kTable) return;
  std::string text = fmt::format("plan chosen: {}\n  any of these options says otherwise; {}\n\n",
                                 chosen.options, chosen.because);
  // Where the batch comes from takes a line of its own.
  if (const std::size_t batch = text.find("; batch: "); batch != std::string::npos)
    text.replace(batch, 2, "\n  ");
  print(text);
}

ScenarioOptions::Loaded ScenarioOptions::load(const CommonOptions& common) const {
  models::Scenario s;
  std::optional<Job> from = job();
  if (from)
    s = models::Scenario::parse(JsonNode::from_json(from->scenario, from->file));
  else if (!file_.empty())
    s = models::Scenario::parse(read_scenario(file_));
  for (const auto& [index, text] : texts_) models::set_field(models::scenario_fields()[index], s, text);
  if (from) {
    settle_job(*from, s);
    forget_unused(s, texts_);
    for (std::string& remark : from->remarks()) s.model.remarks.push_back(std::move(remark));
  }
  if (common.seed_given) {
    s.seed = common.seed;
    s.give("seed");
  }
  models::name_dispatchers(s);
  if (const Field* unused = models::unused_field(s)) {
    if (!from && !file_.empty() && !texts_.contains(models::index_of(*unused))) refuse_unused(s, file_);
    throw InputError(models::unused_message(*unused, unused->flag.empty() ? unused->path : unused->flag, s));
  }
  return {std::move(s), std::move(from)};
}

}  // namespace moesim::tools
