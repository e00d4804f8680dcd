// Two time breakdowns side by side, in parts with names for people.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "sim/graph/task_graph.h"

namespace moesim::models {

using Breakdown = std::array<double, sim::kCategories>;

struct BreakdownPart {
  std::string name;
  std::vector<sim::Category> categories;

  double us(const Breakdown& breakdown_us) const;
};

// Returns the parts in which `a` and `b` can be compared. A breakdown belongs to the rank that ends last.
// Where `a` and `b` are of different ranks, longer computing in one replaces waiting in the other, so both
// parts are merged.
std::vector<BreakdownPart> comparable_parts(std::vector<BreakdownPart> parts, const Breakdown& a,
                                            const Breakdown& b);

}  // namespace moesim::models
