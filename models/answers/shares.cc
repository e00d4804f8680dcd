#include "models/answers/shares.h"

#include <algorithm>
#include <array>

namespace moesim::models {

std::vector<double> smallest_shares(std::span<const std::vector<double>> times) {
  const std::size_t draws = times.front().size();
  const auto counted = static_cast<double>(draws + 1);
  std::vector<double> shares(times.size(), 1 / static_cast<double>(times.size()));
  for (std::size_t d = 0; d < draws; ++d) {
    double best = times.front()[d];
    for (const std::vector<double>& one : times) best = std::min(best, one[d]);
    double as_small = 0;
    for (const std::vector<double>& one : times) as_small += one[d] == best ? 1 : 0;
    for (std::size_t i = 0; i < times.size(); ++i)
      if (times[i][d] == best) shares[i] += 1 / as_small;
  }
  for (double& share : shares) share = std::min(1.0, share / counted);
  return shares;
}

std::vector<int> tie_groups(std::span<const double> values, std::span<const std::vector<double>> times,
                            double sure) {
  std::vector<int> groups(values.size(), 0);
  std::size_t first = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const bool drawn = !times[first].empty() && times[first].size() == times[i].size();
    const bool apart =
        drawn ? smallest_shares(std::array{times[first], times[i]})[0] >= sure : values[i] > values[first];
    groups[i] = groups[i - 1] + (apart ? 1 : 0);
    if (apart) first = i;
  }
  return groups;
}

}  // namespace moesim::models
