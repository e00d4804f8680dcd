// Text graphics for tables on a terminal: stacked bars and sparklines.
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

// A part of a bar is a run of its letter, so that a bar reads without colours.
struct BarPart {
  char letter;
  const char* name;
  Ink ink;
  double value;
};

// Draws parts end to end, where `full` is `columns` wide. Every end is rounded separately, so that bars with
// equal sums have equal length; parts that round to nothing are omitted.
std::string bar(std::span<const BarPart> parts, double full, std::size_t columns,
                const Terminal& terminal = standard_output());

// Returns "A attention  D dispatch ...": the parts above zero in any of the bars, indented by `indent`
// spaces, in as many lines as the terminal needs.
std::string bar_key(std::span<const std::vector<BarPart>> bars, std::size_t indent = 0,
                    const Terminal& terminal = standard_output());

// Returns the parts of a breakdown, with permutation and its reverse as one.
std::vector<BarPart> breakdown_parts(const std::array<double, sim::kCategories>& breakdown_us);

// A line per row, the longest as wide as the terminal allows (100 columns in a pipe), each followed by its
// total and `text`, with the key below.
struct BarRow {
  std::string name;
  std::vector<BarPart> parts;
  std::string text;
  bool best = false;
};
std::string bar_chart(std::span<const BarRow> rows, const Terminal& terminal = standard_output());

// Returns one character per value, from the smallest (or zero) to the largest; beyond `most` values, the
// largest of each run.
std::string sparkline(std::span<const double> values, std::size_t most = 64, bool from_zero = true);

}  // namespace moesim::tools
