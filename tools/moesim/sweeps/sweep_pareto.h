// The rows of a sweep that no other row beats in everything that matters.
#pragma once

#include <string>
#include <vector>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/sweeps/sweep_summary.h"

namespace moesim::tools {

// Indices of the points that no other point is at least as good as in every coordinate and better in one;
// smaller is better. Of equal points the first stays. In order of the first coordinate.
std::vector<std::size_t> pareto_front(const std::vector<std::vector<double>>& points);

// Throws InputError for a name that is no column.
void check_pareto_columns(const std::string& columns, const SweepTable& table);

// Prints the front of a sweep's CSV file. `columns` are names of columns, smaller is better, "-name" for the
// larger. Throws InputError for unknown columns.
// The inputs are shown beside them, and what `shape` names the best by.
void print_pareto(const std::string& csv_file, const std::string& columns, const SweepTable& table,
                  const SummaryShape& shape, const CommonOptions& common);

}  // namespace moesim::tools
