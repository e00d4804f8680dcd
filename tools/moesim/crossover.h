// Where the fastest dispatcher changes along one path, and how sure that place is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/moesim/scenario_document.h"
#include "tools/moesim/sweep_range.h"
#include "tools/moesim/verb.h"
#include "tools/moesim/whatif_evaluate.h"

namespace moesim::tools {

struct Crossover {
  std::string from, to;         // fastest below and above
  double below = 0, above = 0;  // neighbouring values (of a path that counts) or a bracket of 0.1 %
  double value = 0;             // between them, where the times are equal
  double low = 0, high = 0;     // outside of these, each is the fastest with probability >= 0.95
  bool low_open = false,
       high_open = false;  // that is not reached within the range (or up to the next change)
};

struct CrossoverResult {
  std::vector<Crossover> crossings;  // by value
  // What was evaluated, by value: the probes of the range and those of the bisections.
  struct Point {
    double value = 0;
    std::string fastest;
    double probability = 0;
    std::vector<std::pair<std::string, models::Estimate>> time_us;
  };
  std::vector<Point> points;
  std::vector<std::pair<double, std::string>> illegal;  // values without a forecast, and why
};

// Evaluates the range at up to 17 values, then bisects every change. `between`: dispatchers that take part;
// empty: the scenario's. Throws InputError when no value of the range has a forecast.
CrossoverResult find_crossovers(const ScenarioDocument& base, const SweepRange& range,
                                const std::string& between, int draws);

int run_crossover(const ScenarioDocument& base, const std::string& range, const std::string& between,
                  int draws, const CommonOptions& common);
// The fastest dispatcher over two paths.
int run_map(const ScenarioDocument& base, const std::vector<std::string>& ranges, const std::string& between,
            int draws, const CommonOptions& common);

}  // namespace moesim::tools
