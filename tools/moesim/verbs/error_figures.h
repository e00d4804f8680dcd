// Error statistics of forecasts against measurements.
#pragma once

#include <vector>

namespace moesim::tools {

// Returns Spearman's rank correlation, ties at their mean rank; 0 for fewer than two different values.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace moesim::tools
