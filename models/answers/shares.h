// Win probabilities and tie groups from paired draws.
#pragma once

#include <span>
#include <vector>

namespace moesim::models {

// Returns the probability that each of several quantities is the smallest: its share of the draws, where
// equal values share a win. One draw in which all are equal is added, the resolution of so many draws.
// `times[i]`: the draws of quantity i, all of one length.
std::vector<double> smallest_shares(std::span<const std::vector<double>> times);

// Returns the tie group of each time, for times in ascending order of `values`: the first member is smaller
// than every other member of its group with a probability below `sure`. Without draws, equal values form a
// group.
std::vector<int> tie_groups(std::span<const double> values, std::span<const std::vector<double>> times,
                            double sure);

}  // namespace moesim::models
