// The Pareto front of a sweep's rows.
#pragma once

#include <string>
#include <vector>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/study/sweep_summary.h"

namespace moesim::tools {

// Returns the indices of the Pareto-optimal points, where smaller is better in every coordinate. Of equal
// points the first stays. Ordered by the first coordinate.
std::vector<std::size_t> pareto_front(const std::vector<std::vector<double>>& points);

// Throws InputError for an unknown column.
void check_pareto_columns(const std::string& columns, const SweepTable& table);

// Prints the front of a sweep's CSV file. `columns`: names of columns, smaller is better; "-name": larger is
// better. Throws InputError for unknown columns. Also shows the inputs and the columns by which `shape` names
// the best.
void print_pareto(const std::string& csv_file, const std::string& columns, const SweepTable& table,
                  const SummaryShape& shape, const CommonOptions& common);

}  // namespace moesim::tools
