#include "models/dispatchers/parts/capacity.h"

#include <algorithm>
#include <cmath>

namespace moesim::models {

std::int64_t capacity(std::int64_t tokens, std::int64_t topk, std::int64_t experts, double factor) {
  const double rows =
      static_cast<double>(tokens) * static_cast<double>(topk) / static_cast<double>(experts) * factor;
  // A product that is integral up to rounding (T*K/E * 1.1) must not gain a row.
  const double nearest = std::round(rows);
  return static_cast<std::int64_t>(std::abs(rows - nearest) <= 1e-9 * std::max(1.0, rows) ? nearest
                                                                                          : std::ceil(rows));
}

std::vector<std::int64_t> capacities(const Routing& routing, double factor) {
  std::vector<std::int64_t> c(routing.ranks());
  for (int r = 0; r < routing.ranks(); ++r)
    c[r] = capacity(routing.tokens(r), routing.topk(), routing.experts(), factor);
  return c;
}

std::int64_t total_dropped(const Routing& before, const Routing& after) {
  if (&before == &after) return 0;
  std::int64_t dropped = 0;
  for (int r = 0; r < before.ranks(); ++r)
    for (int e = 0; e < before.experts(); ++e)
      dropped += std::max(std::int64_t{0}, before.count(r, e) - after.count(r, e));
  return dropped;
}

}  // namespace moesim::models
