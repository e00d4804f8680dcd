#include "tools/moesim/verbs/serve_questions.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files_read.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/text.h"
#include "models/answers/answer.h"
#include "models/answers/training_run.h"
#include "models/workload/fields.h"
#include "tools/moesim/questions/anchoring.h"
#include "tools/moesim/questions/around.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/command.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/verbs/command_line.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostDrawsAsked = 256;
const std::int64_t kMostPlansAsked = models::RunQuestion{}.most;

// Returns a command-line word that is a scenario and nothing else.
std::string scenario_word(const ordered_json& scenario) {
  if (!scenario.is_object()) throw InputError("scenario: found no object, expected a scenario");
  return scenario.dump();
}

// Removes a key from an object and returns its value.
ordered_json taken(ordered_json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return {};
  ordered_json value = *at;
  object.erase(at);
  return value;
}

std::string text_of(const ordered_json& value, const char* key) {
  if (!value.is_string())
    throw InputError(fmt::format("{}: found {}, expected a text", key, in_quotes(value.dump())));
  return value.get<std::string>();
}

std::int64_t count_of(ordered_json& asked, const char* key, std::int64_t fallback, std::int64_t least,
                      std::int64_t most) {
  const ordered_json value = taken(asked, key);
  if (value.is_null()) return fallback;
  if (!value.is_number_integer() || value < least || value > most)
    throw InputError(fmt::format("{}: found {}, expected a whole number from {} to {}", key,
                                 in_quotes(value.dump()), least, most));
  return value.get<std::int64_t>();
}

std::int64_t draws_of(ordered_json& asked, std::int64_t fallback) {
  return count_of(asked, "draws", fallback, 0, kMostDrawsAsked);
}

bool flag_of(ordered_json& asked, const char* key, bool fallback) {
  const ordered_json value = taken(asked, key);
  if (value.is_null()) return fallback;
  if (!value.is_boolean())
    throw InputError(fmt::format("{}: found {}, expected true or false", key, in_quotes(value.dump())));
  return value.get<bool>();
}

// Removes a key with a text value, as its option takes it; empty: missing.
std::string said_of(ordered_json& asked, const char* key) {
  const ordered_json value = taken(asked, key);
  return value.is_null() ? "" : text_of(value, key);
}

// A question to `compare`, with its command line.
struct Compared {
  const FilesRead files{FilesRead::Contents::kHashed, FilesRead::Of::kThread};
  models::AnswerOptions options;
  CommonOptions common;
  QuestionOptions scenario;
  Anchoring anchoring;

  explicit Compared(ordered_json& asked) {
    options.draws = static_cast<int>(draws_of(asked, options.draws));
    options.suggest = options.trace = true;
    options.each = flag_of(asked, "leave_out_illegal", false);
    common.quiet = true;
    std::vector<std::string> anchored;
    if (const std::string times = said_of(asked, "measured"); !times.empty()) {
      anchoring.say_measured(times);
      anchored.push_back("--measured=" + times);
    }
    if (const std::string share = said_of(asked, "tolerance"); !share.empty()) {
      anchoring.say_tolerance(share);
      anchored.push_back("--tolerance=" + share);
    }
    options.tolerance = anchoring.tolerance();
    common.command_line = {"compare", scenario_word(asked), fmt::format("--draws={}", options.draws)};
    scenario.take_file(common.command_line[1], std::nullopt);
    common.command_line.insert(common.command_line.end(), anchored.begin(), anchored.end());
  }
  models::Comparison comparison() {
    models::Scenario resolved = settle(scenario.question(common), common).scenario;
    options.measured = anchoring.of(resolved);
    return ask(std::move(resolved), options);
  }
};

std::string compare(ordered_json asked) {
  // Finding the measurement takes as long as the answer.
  const bool next = flag_of(asked, "measure_next", true);
  Compared compared(asked);
  compared.common.format = Format::kJson;
  compared.common.command_line.insert(compared.common.command_line.end(), {"--quiet", "--format", "json"});
  models::Comparison c = compared.comparison();
  if (c.anchor && !c.anchor->explained) return json_text(unexplained_json("compare", c, compared.common));
  if (next) name_measurement(c, compared.options);
  return json_text(comparison_json(c, Detail::kNone, compared.common));
}

std::string printed(std::vector<std::string> words) {
  words.insert(words.end(), {"--quiet", "--format", "json"});
  return run_command(words).text;
}

void refuse_others(const ordered_json& asked, const char* expected) {
  if (!asked.empty())
    throw InputError(fmt::format("found the key {}, expected {}", in_quotes(asked.begin().key()), expected));
}

std::string crossover(ordered_json asked) {
  const ordered_json scenario = taken(asked, "scenario"), between = taken(asked, "between");
  std::vector<std::string> words{"whatif", scenario_word(scenario),
                                 "--crossover=" + text_of(taken(asked, "crossover"), "crossover"),
                                 fmt::format("--draws={}", draws_of(asked, 8))};
  if (!between.is_null()) words.push_back("--between=" + text_of(between, "between"));
  refuse_others(asked, "scenario, crossover, between or draws");
  return printed(words);
}

std::string plan(ordered_json asked) {
  std::vector<std::string> words{"plan", scenario_word(taken(asked, "scenario"))};
  // Without these the plan is that of the command line.
  const std::int64_t draws = draws_of(asked, -1), most = count_of(asked, "most", 0, 1, kMostPlansAsked);
  if (draws >= 0) words.push_back(fmt::format("--draws={}", draws));
  if (most > 0) words.push_back(fmt::format("--most={}", most));
  for (const char* key : {"tokens", "clusters", "deadline", "budget", "by"})
    if (const ordered_json value = taken(asked, key); !value.is_null())
      words.push_back(fmt::format("--{}={}", key, text_of(value, key)));
  refuse_others(asked, "scenario, tokens, clusters, deadline, budget, by, most or draws");
  return printed(words);
}

std::string report(ordered_json asked) {
  Compared compared(asked);
  compared.common.command_line.insert(compared.common.command_line.end(), {"--report", "report.html"});
  const models::Comparison c = compared.comparison();
  if (c.anchor && !c.anchor->explained)
    throw InputError("measured: found a run that the forecast does not explain, expected one that it does");
  // A map of steps takes longer than an answer may.
  std::vector<Around> around;
  if (c.decision.runner_up >= 0 && !c.scenario->is_step())
    around = map_around(Base::of(compared.scenario.question(compared.common), compared.common), 1);
  return comparison_report(c, compared.common, {}, around);
}

}  // namespace

std::string answer_question(char kind, const std::string& body) {
  ordered_json asked = parse_ordered(body, "scenario");
  switch (kind) {
    case kAnswerQuestion:
      return compare(std::move(asked));
    case kCrossoverQuestion:
      return crossover(std::move(asked));
    case kPlanQuestion:
      return plan(std::move(asked));
    case kReportQuestion:
      return report(std::move(asked));
    default:
      check(false, "a kind of question");
      return {};
  }
}

ordered_json page_data(bool files) {
  ordered_json data{{"schema", "moesim.live/1"}, {"version", version()}, {"sure", models::Decision::kSure}};
  const ordered_json listed = ordered_json::parse(run_command({"list", "--quiet", "--format", "json"}).text);
  for (const char* kind : {"models", "clusters", "dispatchers", "routings"}) data[kind] = listed.at(kind);
  data["files"] = files;
  data["fields"] = ordered_json::array();
  for (const models::Field& field : models::scenario_fields()) {
    ordered_json one{{"path", field.path},
                     {"flag", field.flag},
                     {"kind", "text"},
                     {"fallback", field.fallback},
                     {"unit", field.unit},
                     {"help", field.help},
                     {"scopes", static_cast<int>(field.scopes)}};
    if (models::is_number(field.type)) one["kind"] = "number";
    if (field.type == models::FieldType::kBoolean) one["kind"] = "boolean";
    for (const std::string_view choice : field.choices) one["choices"].push_back(choice);
    data["fields"].push_back(std::move(one));
  }
  data["categories"] = ordered_json::array();
  for (std::size_t c = 0; c < sim::kCategories; ++c)
    data["categories"].push_back(sim::name(static_cast<sim::Category>(c)));
  return data;
}

}  // namespace moesim::tools
