#include "models/dispatchers/parts/fixed_capacity.h"

#include <algorithm>

#include "base/checked.h"
#include "models/dispatchers/parts/capacity.h"

namespace moesim::models {

FixedCapacity::FixedCapacity(const MoeLayer& layer, std::int64_t rows_per_expert)
    : sizes(layer),
      C(rows_per_expert),
      rows(checked_product("dispatcher: rows of its fixed capacity", {sizes.E, C, sizes.w}) / sizes.w) {
  LayerSizes& f = sizes;
  f.sent.assign(f.sent.size(), rows);
  f.arrived = f.sent;
  f.computed = f.sent;
  f.experts.assign(f.experts.size(), f.ep * C);
  dropped = total_dropped(
      *layer.routing, layer.routing->limited_to(std::vector<std::int64_t>(static_cast<std::size_t>(f.R), C)));
}

std::optional<std::string> FixedCapacity::illegal(const MoeLayer& layer) {
  if (layer.etp > 1) return "it does not split experts over etp where every rank holds its own tokens";
  if (!layer.routing->equal_tokens())
    return "every rank must hold the same number of tokens: all must agree on the capacity";
  return std::nullopt;
}

std::int64_t FixedCapacity::largest_count(const Routing& routing) {
  std::int64_t most = 0;
  for (int r = 0; r < routing.ranks(); ++r)
    for (const std::int64_t n : routing.counts(r)) most = std::max(most, n);
  return most;
}

}  // namespace moesim::models
