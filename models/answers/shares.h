// Who is the fastest, and what is too close to call, by draws that all times were drawn with.
#pragma once

#include <span>
#include <vector>

namespace moesim::models {

// Probability that each of several is the smallest: its share of the draws, several that are alike share a
// win. One draw is added in which all are alike, since so many draws cannot tell more than that. `times`: of
// each, as many draws.
std::vector<double> smallest_shares(std::span<const std::vector<double>> times);

// Groups of what is too close to call, for times in ascending order of their values: the first of a group is
// smaller than each other one of it with a probability under `sure`. Without draws, equal values are a group.
std::vector<int> tie_groups(std::span<const double> values, std::span<const std::vector<double>> times,
                            double sure);

}  // namespace moesim::models
