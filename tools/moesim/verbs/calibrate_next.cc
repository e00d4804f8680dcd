#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "calibration/fit/next_rows.h"
#include "models/answers/sentences.h"
#include "models/workload/scenario.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/calibrate_rows.h"

namespace moesim::tools {

Columns<calibration::NextRow> columns_of(Of<calibration::NextRow>) {
  using N = calibration::NextRow;
  return {{"command", [](const N& n) { return n.row.command; }},
          {"minutes", [](const N& n) { return n.row.minutes; }},
          {"regret_before", &N::regret_before, "expected share of the best time that the choice loses"},
          {"regret_after", &N::regret_after, "the same when this and all measurements above it are known"}};
}

namespace {

using calibration::NextRow;

struct Options {
  std::string scenario;
  double minutes = 10;
  int draws = calibration::kPlanDraws;
};

struct Planned {
  const Comparison& comparison;
  const std::vector<NextRow>& rows;
};

Columns<Planned> columns_of(Of<Planned>) {
  using P = Planned;
  return {
      {"winner", [](const P& p) { return p.comparison.winner()->dispatcher; }, "the recommended dispatcher"},
      {"verdict", [](const P& p) { return models::name_of(p.comparison.decision.verdict); }},
      {"probability", [](const P& p) { return p.comparison.decision.probability(); },
       "that it is the fastest; null without draws"},
      {"measurements", [](const P& p) { return p.rows; }, "in the order in which they help most"}};
}

std::string text_of(const Comparison& c, const std::vector<NextRow>& plan, int draws) {
  std::string text = models::sentence(c) + "\n\n";
  if (plan.empty())
    return text +
           fmt::format(
               "Nothing that nccl-tests, DeepEP's tests or our bench measure surely helps the decision, "
               "as far as {} draws tell (--draws).\n",
               draws);
  int number = 0;
  for (const NextRow& one : plan)
    text += fmt::format("{}. {:.1f} min, expected loss {:.2f} % -> {:.2f} %\n   {}\n", ++number,
                        one.row.minutes, 100 * one.regret_before, 100 * one.regret_after, one.row.command);
  return text +
         "\nExpected loss: share of the step or layer that is lost by the choice, in the mean of the profile's "
         "draws.\n"
         "Then: moesim calibrate refine PROFILE --with LOGS --out mine.json\n";
}

int run(const Options& options, const CommonOptions& common) {
  models::AnswerOptions how;
  how.draws = options.draws;
  const models::Comparison c = ask(settle(question_of_file(options.scenario, common), common).scenario, how);
  for (const std::string& warning : c.warnings) warn(common, warning);
  if (!c.winner()) throw InputError("calibrate next: found no dispatcher that can be ranked, expected two");
  calibration::NextOptions next;
  next.minutes = options.minutes;
  const std::vector<NextRow> plan = calibration::next_rows(c, next);
  if (common.format == Format::kJson)
    print_result("calibrate-next", describe_inputs(common), json_of(Planned{c, plan}));
  else
    print(text_of(c, plan, options.draws));
  return 0;
}

}  // namespace

Run declare_next(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("scenario", options->scenario, "Scenario whose decision is to be made right")->required();
  app.add_option("--minutes", options->minutes, "Time there is for measuring")
      ->check(CLI::Range(0.1, 1e4))
      ->capture_default_str();
  app.add_option("--draws", options->draws, "Draws of the profile")
      ->check(CLI::Range(32, models::kMostDraws))
      ->capture_default_str();
  return [options](const CommonOptions& common) {
    if (common.format == Format::kCsv)
      throw InputError("calibrate next: found --format csv, expected table or json");
    return run(*options, common);
  };
}

const ResultSchema kCalibrateNextSchema("calibrate-next", "calibrate next", schema_of<Planned>);

}  // namespace moesim::tools
