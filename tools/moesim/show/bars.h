// Pictures made of letters, for tables on a terminal: bars of parts, and sparklines.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/graph/task_graph.h"
#include "tools/moesim/show/terminal.h"

namespace moesim::tools {

// A part of a bar is a run of its letter, so that a bar reads without colours; they help where there are any.
struct BarPart {
  char letter;
  const char* name;
  Ink ink;
  double value;
};

// Parts end to end, where `full` is `columns` wide. Every end is rounded by itself, so that bars with equal
// sums are equally long; a part that is too short to be seen is not there.
std::string bar(std::span<const BarPart> parts, double full, std::size_t columns,
                const Terminal& terminal = standard_output());

// "A attention  D dispatch ...": of the parts that are more than nothing in any of the bars; behind `indent`
// spaces, in as many lines as the terminal needs.
std::string bar_key(std::span<const std::vector<BarPart>> bars, std::size_t indent = 0,
                    const Terminal& terminal = standard_output());

// The parts of a breakdown, permutation and its reverse as one.
std::vector<BarPart> breakdown_parts(const std::array<double, sim::kCategories>& breakdown_us);

// A line per row, the longest as wide as the terminal allows (100 columns in a pipe), each followed by its
// total and `text`; under them the key.
struct BarRow {
  std::string name;
  std::vector<BarPart> parts;
  std::string text;
  bool best = false;
};
std::string bar_chart(std::span<const BarRow> rows, const Terminal& terminal = standard_output());

// One character per value, from the smallest (or zero) to the largest; of more than `most` values, the
// largest of each run.
std::string sparkline(std::span<const double> values, std::size_t most = 64, bool from_zero = true);

}  // namespace moesim::tools
