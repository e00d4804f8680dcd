// Quantiles of samples and of the normal distribution.
#pragma once

#include <span>
#include <vector>

namespace moesim {

// Half the width of a 90 % interval of a normal distribution, in standard deviations.
inline constexpr double kZ90 = 1.6448536269514722;

// Returns the value below which `share` of the values lies, linear between order statistics. Not empty,
// ascending.
double quantile(std::span<const double> sorted, double share);

// quantile() for values in any order.
double quantile_of(std::vector<double> values, double share);

// Returns the middle value, for an even number the mean of the two in the middle; 0 for none.
double median(std::vector<double> values);

// Return the probability that a standard normal variable is at most z, and the z of a probability in (0, 1).
double normal_below(double z);
double normal_quantile(double probability);

}  // namespace moesim
