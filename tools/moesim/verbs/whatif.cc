// `moesim whatif`: one question about a scenario: the effect of a change, the crossovers of the fastest
// dispatcher, or the hardware numbers that matter.
#include "tools/moesim/questions/whatif.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "tools/moesim/questions/anchoring.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/replay_answer.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

struct WhatIfOptions {
  QuestionOptions scenario;
  std::string crossover, between, picture, today, recorded_on;
  std::vector<std::string> sets, map;
  bool each = false, sensitivity = false, paths = false;
  Anchoring anchoring;
  WhatifBest best;
  int draws = models::AnswerOptions{}.draws;
  std::string report;
};

std::string type_of(const ScenarioPath& path) {
  static constexpr const char* kTypes[] = {"whole number",
                                           "number",
                                           "bandwidth (100GBps, 400Gbps)",
                                           "time (2us)",
                                           "size (80GB)",
                                           "FLOP/s (989TFLOPS)",
                                           "true or false",
                                           "",
                                           "text",
                                           "text or JSON"};
  if (path.type == models::FieldType::kChoice) return fmt::format("{}", fmt::join(path.field->choices, ", "));
  std::string text = kTypes[static_cast<std::size_t>(path.type)];
  if (path.field && !path.field->unit.empty() && models::is_number(path.type))
    text += fmt::format(" ({})", path.field->unit);
  return text;
}

void print_paths(const CommonOptions& common) {
  static constexpr const char* kScopes[] = {"", "layer", "step", "both"};
  Table table({{"path", Table::Align::kLeft},
               {"value", Table::Align::kLeft},
               {"default", Table::Align::kLeft},
               {"scope", Table::Align::kLeft},
               {"what", Table::Align::kLeft}});
  const char* scope = kScopes[3];  // of a part: its field's, which precedes it
  for (const ScenarioPath& path : scenario_paths()) {
    if (path.field) scope = kScopes[static_cast<std::size_t>(path.field->scopes)];
    table.row(
        {path.path, type_of(path), std::string(path.field ? path.field->fallback : ""), scope, path.about});
  }
  table.row({"dispatcher.OPTION", "text", "", kScopes[3], "an option of every dispatcher of the scenario"});
  print(common.format == Format::kCsv ? table.csv() : table.text());
}

// A requested scope belongs to the question: the baseline has it, too. Other changes stay in `sets`.
QuestionOptions with_scope(const WhatIfOptions& o, std::vector<std::string>& sets) {
  const auto others = std::stable_partition(sets.begin(), sets.end(), [](const std::string& text) {
    return find_path(split_assignment(text, "--set").first).path == "scope";
  });
  if (others - sets.begin() > 1) throw InputError("--set: found scope twice, expected each path once");
  QuestionOptions options = o.scenario;
  for (auto text = sets.begin(); text != others; ++text)
    options.say("scope", split_assignment(*text, "--set").second);
  sets.erase(sets.begin(), others);
  return options;
}

// A question about the best plans is about a step.
Base asked_about(const WhatIfOptions& o, const QuestionOptions& options, const CommonOptions& common) {
  Question question = options.question(common);
  if (!o.best.axes.empty() && !question.said.gave("scope")) {
    models::set(question.said, find_path("scope"), nlohmann::json("step"), Origin::said("--best"));
    models::open_plan(question);
  }
  return Base::of(std::move(question), common, o.best.axes.find("parallel") == std::string::npos);
}

// A recording with and without all changes.
int change_recording(const WhatIfOptions& o, const CLI::App& verb, const CommonOptions& common) {
  o.anchoring.refuse_measured("a recording");
  refuse_without_effect(verb, "a recording", "--set", {"--recorded-on", "--report"});
  if (o.sets.empty()) throw InputError("whatif: found no question, expected --set");
  ReplayOptions replayed;
  replayed.folders = {o.scenario.file()};
  replayed.question = RecordingOptions(o.scenario, o.draws);
  replayed.question.say("recorded-on", o.recorded_on);
  replayed.tolerance = o.anchoring.tolerance();
  replayed.before = replayed.question;
  for (const std::string& set : o.sets) {
    const auto [path, value] = split_assignment(set, "--set");
    replayed.question.say(find_path(path).path, value);
  }
  replayed.report = o.report;
  return run_replay(replayed, common);
}

int run_whatif(const WhatIfOptions& o, const CLI::App& verb, const CommonOptions& common) {
  check_report(common.report);
  if (o.paths) {
    print_paths(common);
    return 0;
  }
  if (is_folder(o.scenario.file())) return change_recording(o, verb, common);
  if (!o.recorded_on.empty()) throw InputError("--recorded-on: found no recording, expected one");
  if (!o.scenario.asks_anything())
    throw InputError("whatif: found no scenario, expected a file, or --model and what else there is to say");
  std::vector<std::string> sets = o.sets;
  const QuestionOptions options = with_scope(o, sets);
  if (o.best.axes.empty() && !o.best.arguments.empty())
    throw InputError("--arguments: found no --best, expected one, whose plan is written");
  const int questions =
      int{!sets.empty()} + int{!o.crossover.empty()} + int{!o.map.empty()} + int{o.sensitivity};
  if (questions == 0 && o.best.axes.empty())
    throw InputError(fmt::format(
        "whatif: found no question{}, expected --set, --crossover, --map, --sensitivity or --best",
        o.sets.empty() ? "" : " besides the scope"));
  if (!o.today.empty() && (o.sensitivity || !o.crossover.empty() || !o.map.empty() || !o.best.axes.empty()))
    throw InputError("--baseline: found another question, expected --set, with or without --each");
  const Base base = asked_about(o, options, common);
  if (!o.best.axes.empty()) {
    o.anchoring.refuse_measured("--best");
    if (!o.crossover.empty() || !o.map.empty() || o.sensitivity || o.each)
      throw InputError("--best: found another question, expected --best alone, or with --set");
    WhatifBest best = o.best;
    best.draws = std::min(o.draws, best.draws);
    return whatif_best(with_changes(base, sets), best, common);
  }
  if (!o.picture.empty() && o.map.empty())
    throw InputError("--picture: found no --map, expected one to draw");
  if (!o.between.empty() && o.map.empty() && o.crossover.empty())
    throw InputError("--between: found neither --crossover nor --map, expected one of them");
  if (o.sensitivity || !o.crossover.empty() || !o.map.empty()) {
    // Changes also apply to the question.
    if (questions - int{!sets.empty()} > 1)
      throw InputError("whatif: found several of --crossover, --map and --sensitivity, expected one");
    if (o.each) throw InputError("--each: found another question, expected --set alone");
    o.anchoring.refuse_measured("--crossover, --map or --sensitivity");
    const Base changed = with_changes(base, sets);
    if (o.sensitivity) return run_sensitivity(changed, o.draws, common);
    if (!o.map.empty()) return run_map(changed, o.map, o.between, o.draws, o.picture, common);
    return run_crossover(changed, o.crossover, o.between, o.draws, common);
  }
  const models::AnswerOptions asked{.draws = o.draws,
                                    .each = true,
                                    .tolerance = o.anchoring.tolerance(),
                                    .measured = o.anchoring.of(base.resolved.scenario)};
  return run_changes(base, sets, o.each, o.today, asked, common);
}

const ResultSchema kUnexplained("whatif", "whatif --measured", schema_of_unexplained);

}  // namespace

Verb whatif_verb() {
  return {"whatif",
          "change something in a scenario and see the difference, or find where the winner changes",
          "  moesim whatif scenario.json --set parallel.ep=16 --set cluster.nic.bandwidth=100GBps\n"
          "  moesim whatif --model qwen3-30b-a3b --cluster h100x4 --best parallel,dispatcher --under memory",
          [](CLI::App& app) -> Run {
            auto o = std::make_shared<WhatIfOptions>();
            o->scenario.declare(app, false);
            o->anchoring.declare(app);
            app.add_option("--set", o->sets, "path=value with its unit, or path=x2; several are one change")
                ->allow_extra_args(false);
            app.add_option("--baseline", o->today,
                           "With --set: the dispatcher that runs today [measured, the job's, recommended]");
            app.add_flag("--each", o->each, "Every --set by itself, the most helpful first");
            app.add_option("--crossover", o->crossover,
                           "path=low..high: where does the fastest dispatcher change?");
            app.add_option("--map", o->map, "path=low..high path=low..high: the fastest dispatcher over both")
                ->expected(2);
            app.add_option("--picture", o->picture, "With --map: FILE.svg to draw it in");
            app.add_option("--between", o->between, "Dispatchers for --crossover and --map [the scenario's]");
            app.add_flag("--sensitivity", o->sensitivity,
                         "By how many percent the time changes with 1 % of every hardware number");
            app.add_option("--best", o->best.axes,
                           "The best legal plans over parallel, dispatcher, recompute, precision, schedule, "
                           "overlap, launch, "
                           "sharding (joined with commas)");
            app.add_option("--under", o->best.under, "With --best: memory, to leave out what does not fit");
            app.add_option("--arguments", o->best.arguments,
                           "With --best: the best plan as arguments of a framework")
                ->type_name("megatron|torchtitan|deepspeed|nemo");
            app.add_option("--top", o->best.top, "With --best: plans shown [10]")->check(CLI::Range(1, 1000));
            app.add_option("--most", o->best.most,
                           fmt::format("With --best: forecasts at most [{}]", o->best.most))
                ->check(CLI::Range(1, 10000000));
            app.add_option("--draws", o->draws, "Draws of the profile for intervals; 0 for none [48]")
                ->check(CLI::Range(0, models::kMostDraws));
            app.add_flag("--paths", o->paths, "List the paths that can be set");
            declare_recorded_on(app, o->recorded_on);
            declare_report(app, o->report);
            return [o, verb = &app](const CommonOptions& common) {
              CommonOptions with_report = common;
              with_report.report = o->report;
              return run_whatif(*o, *verb, with_report);
            };
          },
          {"--model", "--cluster", "--set", "--each", "--crossover", "--map", "--best", "--sensitivity",
           "--paths", "--report"}};
}

}  // namespace moesim::tools
