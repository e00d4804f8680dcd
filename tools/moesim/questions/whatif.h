// `moesim whatif`: a question about a scenario with other values at some paths. Each kind of question is a study
// whose points it chooses: a change, many changes one by one, steps up and down of every hardware number, a
// bisection, a map.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/answers/plan_search.h"
#include "models/study/study.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/terminal.h"

namespace moesim::tools {

// Returns the base with all changes ("path=value"). Throws InputError for invalid paths and values.
Base with_changes(const Base& base, const std::vector<std::string>& sets);
// Returns the base restricted to the dispatchers of `between`, where it is not empty.
Base taking_part(const Base& base, const std::string& between);

// Prints what a question found: `figures` behind those that every result has; as CSV `rows`, which have the
// paths of the JSON as columns; or what `people` prints.
int show_whatif(const Base& base, const std::vector<std::string>& warnings,
                const nlohmann::ordered_json& figures, const nlohmann::ordered_json& rows,
                const CommonOptions& common, const std::function<void()>& people);
// A scenario, answered; `runs`: what differences are of.
struct Evaluation {
  const Comparison& comparison;
  const Answer* runs = nullptr;
};
Columns<Evaluation> columns_of(Of<Evaluation>);
// Prints below an answer of which scenario it is (model, machine with its network, scope, and the plan that
// was chosen), and of the warnings of many scenarios those that another option or file answers: not what the
// profile was measured on, and not what a dispatcher's program counts.
void print_asked(const Base& base, const std::vector<std::string>& warnings, const CommonOptions& common,
                 std::span<const ScenarioPath> varied = {});

// A point of a study, in a word.
struct PointRow {
  std::string error = {};                  // why there is no forecast; then the rest is empty
  std::string fastest = {};                // dispatcher
  std::optional<double> probability = {};  // nullopt without draws
  double speedup = 1;                      // of the fastest over the second
  bool fits = true;                        // at least one dispatcher fits the memory
  nlohmann::ordered_map<std::string, models::Estimate> time_us = {};
  std::vector<std::string> warnings = {};

  static PointRow of(const Comparison& comparison);
  bool ok() const { return error.empty(); }
  bool sure() const { return probability >= models::Decision::kSure; }
};
// Its figures; times with their `intervals`.
Columns<PointRow> point_figures(bool intervals);
// Returns the dispatchers with a time at some point, in the order of the scenario.
std::vector<std::string> dispatchers_of(std::span<const PointRow> rows);

// `--set`: "path=value" as written; values may be multiples of the baseline's ("x2"). The difference is to
// what somebody runs today: the measured dispatcher, else `today` (--baseline), else the job's own, else the
// recommended one; behind the change the same dispatcher runs, unless another is set. `each`: tries every
// change separately, most helpful first by tokens per second and GPU, which orders like time where the work is
// constant; an impossible change is listed with its error.
int run_changes(const Base& base, const std::vector<std::string>& sets, bool each, const std::string& today,
                const models::AnswerOptions& asked, const CommonOptions& common);

// `--sensitivity`: the elasticity of the time to every hardware number, that is the percent change of the time
// for one percent growth of the number.
using Elasticities = std::vector<std::pair<std::string, models::Estimate>>;  // by dispatcher

struct Sensitivity {
  std::string path;  // "cluster.nic.bandwidth"
  std::string what;  // description
  std::string value;
  Elasticities elasticity;
};

struct Sensitivities {
  Comparison baseline;
  std::vector<Sensitivity> numbers;  // strongest (for the fastest dispatcher) first
  // For all numbers improved at once: rates grow, latencies and launches shrink. -1 where all of the time
  // depends on them.
  Elasticities together;
};

// Computes central differences over 5 % up and down, under the same draws. `threads`: 0: all cores.
Sensitivities sensitivities(const models::Scenario& scenario, int draws, int threads = 1,
                            const Progress& progress = {});
int run_sensitivity(const Base& base, int draws, const CommonOptions& common);

// `--crossover`: where the fastest dispatcher changes along one path, with its uncertainty.
struct Crossover {
  std::string from, to;         // fastest below and above
  double below = 0, above = 0;  // neighbouring values (of an integer path) or a bracket of 0.1 %
  double value = 0;             // between them, where the times are equal
  double low = 0, high = 0;     // outside of these, each is the fastest with probability Decision::kSure
  bool low_open = false,
       high_open = false;  // not reached within the range (or up to the next change)
};

struct CrossoverResult {
  std::vector<Crossover> crossings;  // by value
  // Probes of the range, and the ends of every crossing.
  std::vector<double> values;
  std::vector<PointRow> points;
  std::vector<std::pair<double, std::string>> illegal;  // values without a forecast, with the reason
  std::vector<std::string> warnings;                    // of the forecasts on both sides of every crossing
};

// Finds the fastest at every value of a range with few (512 at layer scope, 34 at step scope), else at 17 or
// 33, then bisects every change. `between`: dispatchers to compare; empty: the scenario's. Throws InputError
// when no value of the range has a forecast.
CrossoverResult find_crossovers(const Base& base, const models::StudyAxis& range, const std::string& between,
                                int draws, const Progress& progress = {});
int run_crossover(const Base& base, const std::string& range, const std::string& between, int draws,
                  const CommonOptions& common);

// `--best`: the best legal plans of a scenario's model on its cluster.
struct WhatifBest {
  std::string axes;       // "parallel,dispatcher,recompute,...", any of them
  std::string under;      // "memory", or "" for no limit
  std::string arguments;  // a framework: prints the best plan as its arguments
  int top = 10;
  int draws = 16;
  std::int64_t most = models::kMostForecasts;
};

// Prints the plans and returns the exit code. Throws InputError for an unknown axis and where no plan is
// legal.
int whatif_best(const Base& base, const WhatifBest& options, const CommonOptions& common);

// `--map`: the fastest dispatcher over two paths ("path=values"; 9 for a range without steps).
struct WinnerMap {
  ScenarioPath across, down;
  std::vector<PathValue> columns, rows;
  std::vector<PointRow> cells;  // row by row

  const PointRow& at(std::size_t row, std::size_t column) const {
    return cells[row * columns.size() + column];
  }
};

// `picture`: an SVG file to write as well; empty for none. Throws InputError for invalid ranges, for more than
// 100,000 cells, and when no cell has a forecast.
int run_map(const Base& base, const std::vector<std::string>& ranges, const std::string& between, int draws,
            const std::string& picture, const CommonOptions& common);

// Returns an SVG document: a cell per scenario in the colour of its fastest dispatcher, stronger for a larger
// lead over the second; hatched where the winner is unsure, grey where there is no forecast. Values grow to
// the right and upwards. Hovering over a cell shows its times.
std::string map_svg(const WinnerMap& map, const std::string& title);
// Formats a value on an axis in its usual unit.
std::string label_of(const ScenarioPath& path, const PathValue& value);

}  // namespace moesim::tools
