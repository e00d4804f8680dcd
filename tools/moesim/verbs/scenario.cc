// `moesim scenario`: shows a scenario in full; converts a training job's arguments to a scenario, and back.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"
#include "models/workload/model_summary.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/read/arguments.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

Columns<UsedArgument> columns_of(Of<UsedArgument>) {
  using A = UsedArgument;
  return {{"argument", [](const A& a) { return a.setting.shown; }, "", "argument"},
          {"values", [](const A& a) { return a.setting.values; }},
          {"", [](const A& a) { return join(a.setting.values, " "); }, "", "value"},
          {"place", [](const A& a) { return a.setting.place.str(); }, "file:line"},
          {"use", [](const A& a) { return name_of(a.use); },
           one_of({"used", "approximated", "irrelevant", "unknown"}), "use"},
          {"because", &A::because, "", "because"}};
}

namespace {

// A model as it was understood, where the scenario has one.
std::optional<nlohmann::ordered_json> understood(const models::Scenario& s) {
  if (s.model.hidden == 0) return std::nullopt;
  return models::model_summary(models::asked_model(s));
}

struct FromJob {
  const models::Scenario& scenario;
  const std::vector<UsedArgument>& arguments;
};

Columns<FromJob> columns_of(Of<FromJob>) {
  return {
      {"model?", [](const FromJob& f) { return understood(f.scenario); }, as_in("model-summary.schema.json")},
      {"arguments", [](const FromJob& f) { return f.arguments; }},
      {"scenario", [](const FromJob& f) { return models::to_json(f.scenario); },
       as_in("scenario.schema.json")}};
}

struct ToFramework {
  const models::Scenario& scenario;
  FrameworkArguments arguments;
};

Columns<ToFramework> columns_of(Of<ToFramework>) {
  Columns<ToFramework> all{{"model?", [](const ToFramework& t) { return understood(t.scenario); },
                            as_in("model-summary.schema.json")}};
  return all.add(columns_of(Of<FrameworkArguments>{}), &ToFramework::arguments);
}

using nlohmann::ordered_json;

struct ScenarioVerbOptions {
  QuestionOptions scenario;
  std::vector<std::string> words;
  bool detail = false, explain = false;
};

// Prints every argument of a job with its use.
int show_arguments(const Job& job, const models::Scenario& s, const CommonOptions& common) {
  if (common.format == Format::kJson) {
    print_result("scenario-from", describe_inputs(common), json_of(FromJob{s, job.arguments}), job.remarks());
  } else {
    const Table table = table_of(job.arguments);
    print(common.format == Format::kCsv ? table.csv() : table.text());
  }
  return 0;
}

// Prints every field that the scenario's scope uses: its value, origin and description.
int explain_fields(const models::Scenario& asked, const models::Scenario& resolved,
                   const CommonOptions& common) {
  std::vector<Table::Column> columns{
      {"field", Table::Align::kLeft}, {"value", Table::Align::kLeft}, {"by", Table::Align::kLeft}};
  if (common.format == Format::kCsv) columns.push_back({"what", Table::Align::kLeft});
  Table table(columns);
  const models::Scenario defaults;
  for (const models::Field& field : models::scenario_fields()) {
    if (!field.used_in(models::scope_of(resolved))) continue;
    const ordered_json value = field.write(resolved);
    if (value.is_null()) continue;
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (field.path == "model") text = resolved.model.name;
    if (field.path == "cluster") text = resolved.cluster->name;
    const Origin origin = asked.origin_of(field.path);
    std::string by(models::name_of(origin.kind));
    if (origin.kind == Origin::Kind::kDefault && value != field.write(defaults) && !field.fallback.empty() &&
        text != field.fallback)
      by = "follows";
    if (!origin.where.empty() && origin.kind != Origin::Kind::kSaid) by += ": " + origin.where;
    constexpr std::size_t kText = 20, kBy = 39;
    const bool people = common.format != Format::kCsv;
    const auto cut = [&](const std::string& cell, std::size_t most) {
      return people && cell.size() > most ? cell.substr(0, most - 3) + "..." : cell;
    };
    std::vector<std::string> row{std::string(field.path), cut(text, kText), cut(by, kBy)};
    if (!people) row.emplace_back(field.help);
    table.row(row);
  }
  print(common.format == Format::kCsv ? table.csv() : table.text());
  return 0;
}

int write_arguments(const models::Scenario& s, JobFramework framework,
                    const std::vector<std::string>& remarks, const CommonOptions& common) {
  const JobArguments made = arguments_of(s, framework);
  if (common.format == Format::kJson) {
    print_result("scenario-to", describe_inputs(common, s), json_of(ToFramework{s, {made, framework}}),
                 remarks);
    return 0;
  }
  if (common.format == Format::kCsv) {
    Table table({{"argument", Table::Align::kLeft}, {"value", Table::Align::kLeft}});
    for (const auto& [name, value] : made.arguments)
      table.row({name, value.is_string() ? value.get<std::string>() : value.dump()});
    print(table.csv());
    return 0;
  }
  for (const std::string& remark : remarks) warn(common, remark);
  for (const std::string& one : made.left_out)
    warn(common, fmt::format("not among {}'s arguments: {}", name_of(framework), one));
  print(arguments_text(made.arguments, framework));
  return 0;
}

int run_scenario(ScenarioVerbOptions o, const CommonOptions& common) {
  const std::vector<std::string>& w = o.words;
  const bool from = !w.empty() && w[0] == "from", to = !w.empty() && w[0] == "to";
  if (!from && !to && w.size() > 1)
    throw InputError("scenario: found " + in_quotes(w[1]) + ", expected one file, from or to");
  std::optional<JobFramework> framework;
  if (from || to) {
    if (w.size() < 2)
      throw InputError(fmt::format(
          "scenario {}: found no framework, expected megatron, torchtitan, deepspeed or nemo", w[0]));
    framework = framework_named(w[1]);
  }
  // Arguments instead of a file; CLI11 itself takes nothing after "--".
  const std::vector<std::string>& typed = common.command_line;
  std::vector<std::string> behind;
  if (const auto dashes = std::find(typed.begin(), typed.end(), "--"); dashes != typed.end())
    behind.assign(dashes + 1, typed.end());
  if (!behind.empty() && (!from || w.size() > 2))
    throw InputError(
        "scenario: found arguments behind --, expected them behind `scenario from FRAMEWORK` alone, or "
        "--with beside a file");
  if (from && !behind.empty()) {
    o.scenario.take_file("", framework, behind);
  } else if (from) {
    if (w.size() < 3) throw InputError("scenario from: found no file, expected one, or arguments behind --");
    o.scenario.take_file(w[2], framework, {w.begin() + 3, w.end()});
  } else if (to) {
    if (w.size() > 3) throw InputError("scenario to: found " + in_quotes(w[3]) + ", expected one file");
    if (w.size() == 3) o.scenario.take_file(w[2], std::nullopt);
  } else if (!w.empty()) {
    o.scenario.take_file(w[0], std::nullopt);
  }
  const QuestionOptions::Loaded loaded = o.scenario.load(common);
  const models::Resolved resolved = settle(loaded.question, common);
  const models::ChosenPlan& chosen = resolved.chosen;
  models::Scenario s = resolved.scenario;
  const std::vector<std::string> remarks = s.model.remarks;
  // A plan is written with the given dispatcher, without those that it could run.
  if (to && loaded.question.said.gave("dispatcher")) s.dispatchers = loaded.question.said.dispatchers;
  s.resolve();
  if (o.explain) {
    if (from || to || o.detail || common.format == Format::kJson)
      throw InputError("scenario: found --explain with from, to, --detail or JSON, expected it by itself");
    show_chosen(resolved, common);
    return explain_fields(resolved.scenario, s, common);
  }
  if (to) return write_arguments(s, *framework, remarks, common);
  if (o.detail) {
    if (!loaded.job)
      throw InputError("scenario: found --detail without a job's file, expected its arguments");
    return show_arguments(*loaded.job, s, common);
  }
  if (common.format == Format::kCsv)
    throw InputError("scenario: found --format csv, expected JSON: it is a scenario file");
  for (const std::string& remark : remarks) warn(common, remark);
  // Standard output is the file; the choice is reported on stderr.
  if (!chosen.options.empty())
    warn(common, fmt::format("plan chosen: {} ({})", chosen.options, chosen.because));
  print_json(models::to_json(s));
  return 0;
}

}  // namespace

const ResultSchema kScenarioFromSchema("scenario-from", "scenario from FRAMEWORK FILE --detail",
                                       schema_of<FromJob>);

const ResultSchema kScenarioToSchema("scenario-to", "scenario to FRAMEWORK", schema_of<ToFramework>);

Verb scenario_verb() {
  return {
      "scenario", "a scenario in full, from a training job's arguments, or as these",
      "  moesim scenario from megatron train.sh --cluster dgx-h100x4 > job.json\n"
      "  moesim scenario --scope step --model deepseek-v3 --cluster h100 --gpus 2048 --explain\n"
      "  moesim scenario from megatron train.sh --with \"--vocab-size 32000\" --detail\n"
      "  moesim scenario from megatron train.sh --by-running\n"
      "  moesim scenario from megatron -- torchrun --nproc_per_node 8 pretrain_gpt.py \"${ARGS[@]}\"\n"
      "  moesim scenario to megatron job.json --dispatcher flex-deepep",
      [](CLI::App& app) -> Run {
        auto o = std::make_shared<ScenarioVerbOptions>();
        app.add_option(
               "words", o->words,
               "A scenario file; or from megatron|torchtitan|deepspeed|nemo FILE (or -- ARGUMENTS); or to "
               "one of them, with a scenario file")
            ->type_name("[from|to FRAMEWORK] FILE");
        o->scenario.declare_fields(app);
        app.add_flag("--detail", o->detail, "Of a job: every argument, and what became of it");
        app.add_flag("--explain", o->explain, "Field by field: its value, who said it, what it is");
        return [o](const CommonOptions& common) { return run_scenario(*o, common); };
      }};
}

}  // namespace moesim::tools
