// `moesim whatif --map`: the fastest dispatcher over two paths, as table, CSV, JSON and picture.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/study/points.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/terminal.h"

namespace moesim::tools {

struct MapCell {
  std::string error;                  // why there is no forecast; then the rest is empty
  std::string fastest;                // dispatcher
  std::optional<double> probability;  // nullopt without draws
  double speedup = 1;                 // of the fastest over the second
  bool fits = true;                   // at least one dispatcher fits the memory
  std::vector<std::pair<std::string, double>> time_us;
  std::vector<std::string> warnings;

  bool ok() const { return error.empty(); }
};

struct WinnerMap {
  ScenarioPath across, down;
  std::vector<PathValue> columns, rows;
  std::vector<MapCell> cells;  // row by row
  std::vector<std::string> warnings;

  const MapCell& at(std::size_t row, std::size_t column) const {
    return cells[row * columns.size() + column];
  }
  std::size_t without_forecast() const;
  std::size_t beyond_memory() const;  // cells where nothing fits
  const std::string& first_error() const;
};

// Answers every pair of values of two ranges ("path=values"; 9 for a range without steps). Throws InputError
// for invalid ranges, for more than 100,000 cells, and when no cell has a forecast.
WinnerMap winner_map(const Base& base, const std::vector<std::string>& ranges, const std::string& between,
                     int draws, int threads, const Progress& progress = {});

// `picture`: an SVG file to write as well; empty for none.
int run_map(const Base& base, const std::vector<std::string>& ranges, const std::string& between, int draws,
            const std::string& picture, const CommonOptions& common);

}  // namespace moesim::tools
