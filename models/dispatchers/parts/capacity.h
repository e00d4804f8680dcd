// Expert capacity and the rows it drops.
#pragma once

#include <cstdint>
#include <vector>

#include "models/routing/routing.h"

namespace moesim::models {

// Returns C = ceil(T*K/E * factor) rows per source rank and expert (docs/spec.md 2.2.3).
std::int64_t capacity(std::int64_t tokens, std::int64_t topk, std::int64_t experts, double factor);
// Returns the capacity of every rank of a routing, from its own tokens.
std::vector<std::int64_t> capacities(const Routing& routing, double factor);
// Returns the rows that `after` lacks against `before`, summed over ranks and experts where it has fewer.
std::int64_t total_dropped(const Routing& before, const Routing& after);

}  // namespace moesim::models
