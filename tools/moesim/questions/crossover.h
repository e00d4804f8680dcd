// Finds where the fastest dispatcher changes along one path, with its uncertainty.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/study/points.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/terminal.h"

namespace moesim::tools {

// Returns the base restricted to the dispatchers of `between`, where it is not empty.
Base taking_part(const Base& base, const std::string& between);

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
  // By value: probes of the range, and the ends of every crossing.
  struct Point {
    double value = 0;
    std::string fastest;
    std::optional<double> probability;  // nullopt without draws
    bool fits = true;                   // at least one dispatcher fits the memory
    std::vector<std::pair<std::string, models::Estimate>> time_us;
  };
  std::vector<Point> points;
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
}  // namespace moesim::tools
